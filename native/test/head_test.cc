#include "kernel_support.h"

using namespace hotbed;
using namespace hotbed::test;

namespace {

// How the head's weights are stored; all but wide ones are bf16 numbers.
enum class Panels { wide, narrow, pairs };

struct HeadCase {
  size_t rows, d, vocab;
  size_t targetsPerRow;  // 0, 1, or up to this many
  bool wantLogits;
  size_t odd = 0;
  Panels panels = Panels::wide;
  // Adapters on the head: a gap of rows without one, then the next adapter's rows, and so on.
  struct Pair {
    size_t gap, rows, rank;
  };
  std::vector<Pair> lora = {};
};

struct HeadAdapter {
  Floats a, b, at, bt, gradA, gradB;
};

Floats runHead(const KernelTable& table, ThreadPool& pool, const HeadCase& c) {
  Random random(c.rows + 7 * c.d + 31 * c.vocab);
  const size_t ldx = c.d + 2, ldl = c.vocab + 3, ldu = 36;
  Floats x = randomMatrix(random, c.rows, c.d, ldx);
  Floats w = randomMatrix(random, c.vocab, c.d, c.d, 0.3f);
  if (c.panels != Panels::wide) {
    for (size_t i = 0; i < w.size(); ++i) w[i] = fromBits(bitsOf(w[i]) & 0xFFFF0000u);
  }
  if (c.odd) sprinkle(random, x, c.odd);
  const Floats panels = packed(table, pool, w, c.d, c.vocab, c.d);
  const Floats panelsT = packedTransposed(table, pool, w, c.d, c.vocab, c.d);
  std::vector<size_t> offsets{0};
  std::vector<int32_t> targets;
  for (size_t r = 0; r < c.rows; ++r) {
    const size_t count =
        c.targetsPerRow <= 1 ? c.targetsPerRow : random.between(0, c.targetsPerRow);
    for (size_t i = 0; i < count; ++i) {
      targets.push_back(static_cast<int32_t>(random.between(0, c.vocab - 1)));
      if (i == 2) targets.back() = targets[targets.size() - 2];  // the same id twice
    }
    offsets.push_back(targets.size());
  }
  Floats lse(c.rows, 5.0f), logits(c.wantLogits ? c.rows * ldl : 0, 6.0f);
  Floats logprobs(targets.size(), 7.0f), gradient(targets.size()), dx(c.rows * ldx, 8.0f);
  for (size_t i = 0; i < targets.size(); ++i) gradient[i] = i % 5 == 4 ? 0.0f : random.normal();
  std::vector<HeadAdapter> adapters(c.lora.size());
  std::vector<kernels::HeadLora> lora;
  Floats u(c.rows * ldu, -5.0f), du(c.rows * ldu, -6.0f);
  size_t row = 0;
  for (size_t i = 0; i < c.lora.size(); ++i) {
    HeadAdapter& adapter = adapters[i];
    const size_t rank = c.lora[i].rank;
    adapter.a = randomMatrix(random, rank, c.d, c.d, 0.3f);
    adapter.b = randomMatrix(random, c.vocab, rank, rank, 0.3f);
    adapter.at = Floats(adapter.a.size());
    adapter.bt = Floats(adapter.b.size());
    table.transpose(pool, {adapter.a.data(), rank, c.d, adapter.at.data()});
    table.transpose(pool, {adapter.b.data(), c.vocab, rank, adapter.bt.data()});
    adapter.gradA = randomMatrix(random, rank, c.d, c.d);
    adapter.gradB = randomMatrix(random, c.vocab, rank, rank);
    kernels::HeadLora segment;
    segment.rowBegin = row + c.lora[i].gap;
    segment.rowEnd = row = segment.rowBegin + c.lora[i].rows;
    segment.rank = rank;
    segment.scale = 0.5f + random.uniform();
    segment.at = adapter.at.data();
    segment.bt = adapter.bt.data();
    segment.a = adapter.a.data();
    segment.b = adapter.b.data();
    segment.gradA = adapter.gradA.data();
    segment.gradB = adapter.gradB.data();
    lora.push_back(segment);
  }
  kernels::HeadArgs args;
  args.x = x.data();
  args.ldx = ldx;
  args.rows = c.rows;
  args.weight.panels = panels.data();
  args.weight.dOut = c.vocab;
  args.weight.dIn = c.d;
  args.lse = lse.data();
  args.lora = lora.data();
  args.loraCount = lora.size();
  args.u = u.data();
  args.ldu = ldu;
  args.logits = c.wantLogits ? logits.data() : nullptr;
  args.ldlogits = ldl;
  args.targetOffsets = offsets.data();
  args.targets = targets.data();
  args.logprobs = logprobs.data();
  AlignedBuffer<uint32_t> words, wordsT;
  kernels::PackedLinear transposed;
  transposed.panels = panelsT.data();
  transposed.dOut = c.d;
  transposed.dIn = c.vocab;
  if (c.panels == Panels::narrow) {
    words = AlignedBuffer<uint32_t>(kernels::narrowPanelWords(panels.size()));
    wordsT = AlignedBuffer<uint32_t>(kernels::narrowPanelWords(panelsT.size()));
    CHECK(table.narrowPanels(pool, panels.data(), panels.size(), words.data()));
    CHECK(table.narrowPanels(pool, panelsT.data(), panelsT.size(), wordsT.data()));
    args.weight.narrowPanels = words.data();
    transposed.narrowPanels = wordsT.data();
  }
  if (c.panels == Panels::pairs) {
    words = AlignedBuffer<uint32_t>(kernels::pairPanelWords(c.vocab, c.d));
    wordsT = AlignedBuffer<uint32_t>(kernels::pairPanelWords(c.d, c.vocab));
    CHECK(table.pairPanels(pool, panels.data(), c.vocab, c.d, words.data()));
    CHECK(table.pairPanels(pool, panelsT.data(), c.d, c.vocab, wordsT.data()));
    args.weight.pairPanels = words.data();
    transposed.pairPanels = wordsT.data();
  }
  table.head(pool, args);
  kernels::HeadBackwardArgs back;
  back.x = x.data();
  back.ldx = ldx;
  back.rows = c.rows;
  back.weight = args.weight;
  back.weightTransposed = transposed;
  back.lse = lse.data();
  back.targetOffsets = offsets.data();
  back.targets = targets.data();
  back.c = gradient.data();
  back.dx = dx.data();
  back.lddx = ldx;
  back.lora = lora.data();
  back.loraCount = lora.size();
  back.u = u.data();
  back.ldu = ldu;
  back.du = du.data();
  back.lddu = ldu;
  const Floats forward = joined(lse, logits);
  if (c.wantLogits) {  // kept for the backward pass, which turns them into dlogit
    back.logits = logits.data();
    back.ldlogits = ldl;
  }
  table.headBackward(pool, back);
  Floats all = joined(joined(forward, logits), joined(logprobs, dx));
  for (const HeadAdapter& adapter : adapters) {
    all = joined(all, joined(adapter.gradA, adapter.gradB));
  }
  return joined(all, joined(u, du));
}

// Each case as it is, and from pair panels.
template <size_t N>
void checkCases(const std::string& what, const HeadCase (&cases)[N]) {
  for (HeadCase c : cases) {
    for (const bool pairs : {false, true}) {
      if (pairs) c.panels = Panels::pairs;
      checkAgainstReference(
          what + std::to_string(c.rows) + "x" + std::to_string(c.d) + "x" +
              std::to_string(c.vocab) + (pairs ? " of pairs" : ""),
          [&](const KernelTable& table, ThreadPool& pool) { return runHead(table, pool, c); });
    }
  }
}

}  // namespace

TEST(head_equals_the_reference_forward_and_backward) {
  const HeadCase cases[] = {
      {1, 8, 5, 1, true},
      {3, 16, 512, 1, false},
      {5, 24, 513, 1, true},
      {70, 32, 100, 1, true},
      {61, 16, 1100, 1, false},
      {7, 40, 4701, 4, true},
      {150, 8, 1030, 5, false},
      {4, 16, 90, 0, true},
      {0, 8, 70, 1, false},
      {6, 16, 700, 3, true, 40},
      {20, 48, 4700, 1, true, 0, Panels::narrow},
      {131, 16, 8705, 1, false},
  };
  checkCases("head ", cases);
}

TEST(head_with_adapters_equals_the_reference) {
  const HeadCase cases[] = {
      {1, 8, 5, 1, true, 0, Panels::wide, {{0, 1, 1}}},
      {3, 16, 513, 1, true, 0, Panels::wide, {{1, 1, 16}}},
      {70, 24, 530, 1, false, 0, Panels::narrow, {{0, 60, 4}, {0, 10, 33}}},
      {150, 40, 4700, 3, false, 0, Panels::wide, {{3, 40, 8}, {0, 1, 3}, {2, 90, 16}, {5, 2, 5}}},
      {9, 16, 1100, 0, true, 0, Panels::wide, {{0, 9, 2}}},
      {40, 16, 700, 2, true, 60, Panels::wide, {{1, 30, 7}}},
  };
  checkCases("head with adapters ", cases);
}

TEST(head_rows_do_not_depend_on_their_neighbours) {
  // N11: the sampler's one row and the trainer's many give the same log-probability bits.
  const size_t rows = 66, d = 48, vocab = 1300;
  Random random(8);
  const Floats x = randomMatrix(random, rows, d, d);
  const Floats w = randomMatrix(random, vocab, d, d, 0.3f);
  for (Path path : fastPaths()) {
    const KernelTable& table = kernels::kernels(path);
    const Floats panels = packed(table, poolOf(1), w, d, vocab, d);
    const auto run = [&](size_t begin, size_t count) {
      Floats lse(count), logprobs(count);
      std::vector<size_t> offsets(count + 1);
      std::vector<int32_t> targets(count);
      for (size_t i = 0; i < count; ++i) {
        offsets[i + 1] = i + 1;
        targets[i] = static_cast<int32_t>((begin + i) * 19 % vocab);
      }
      kernels::HeadArgs args;
      args.x = x.data() + begin * d;
      args.ldx = d;
      args.rows = count;
      args.weight.panels = panels.data();
      args.weight.dOut = vocab;
      args.weight.dIn = d;
      args.lse = lse.data();
      args.targetOffsets = offsets.data();
      args.targets = targets.data();
      args.logprobs = logprobs.data();
      table.head(poolOf(2), args);
      return joined(lse, logprobs);
    };
    const Floats all = run(0, rows);
    for (size_t count : {1, 3, 17, 40}) {
      for (size_t begin = 0; begin + count <= rows; begin += 5) {
        const Floats part = run(begin, count);
        for (size_t i = 0; i < count; ++i) {
          CHECK(bitsOf(part[i]) == bitsOf(all[begin + i]));
          CHECK(bitsOf(part[count + i]) == bitsOf(all[rows + begin + i]));
        }
      }
    }
  }
}
