#include "kernel_support.h"

using namespace hotbed;
using namespace hotbed::test;
using kernels::AttentionArgs;
using kernels::AttentionBackwardArgs;
using kernels::AttentionRows;
using kernels::AttentionShape;
using kernels::kKeyBlock;

namespace {

// One sequence with its pages; slots that no key was written to hold NaN.
struct Sequence {
  AttentionShape shape;
  size_t length;
  Floats q, k, v, dout;
  std::vector<Floats> pages;
  std::vector<float*> pagePointers;

  Sequence(const AttentionShape& shape_, size_t length_, uint64_t seed, size_t odd = 0)
      : shape(shape_), length(length_) {
    Random random(seed);
    q = randomMatrix(random, length, queryWidth(), queryWidth(), 2.0f);
    k = randomMatrix(random, length, keyWidth(), keyWidth());
    v = randomMatrix(random, length, keyWidth(), keyWidth());
    dout = randomMatrix(random, length, queryWidth(), queryWidth());
    if (odd) {
      sprinkle(random, q, odd);
      sprinkle(random, v, odd);
    }
  }
  size_t queryWidth() const { return shape.queryHeads * shape.headDim; }
  size_t keyWidth() const { return shape.kvHeads * shape.headDim; }

  void write(const KernelTable& table, ThreadPool& pool) {
    pages.clear();
    pagePointers.clear();
    for (size_t i = 0; i * kKeyBlock < length; ++i) {
      pages.emplace_back(kernels::kvPageFloats(shape.kvHeads, shape.headDim), kPoison);
    }
    for (Floats& page : pages) pagePointers.push_back(page.data());
    // In two pieces, the second from the middle of a page.
    kernels::KvWriteRows rows[2];
    const size_t cut = length / 3;
    rows[0].rowCount = cut;
    rows[1].rowBegin = rows[1].positionBegin = cut;
    rows[1].rowCount = length - cut;
    rows[0].pages = rows[1].pages = pagePointers.data();
    kernels::KvWriteArgs args;
    args.shape = shape;
    args.k = k.data();
    args.ldk = keyWidth();
    args.v = v.data();
    args.ldv = keyWidth();
    args.sequences = rows;
    args.sequenceCount = 2;
    table.writeKv(pool, args);
  }
};

// o and lse of rows [begin, begin + count) of every sequence, in one call.
Floats attend(const KernelTable& table, ThreadPool& pool, const std::vector<Sequence*>& sequences,
              const std::vector<size_t>& begins, const std::vector<size_t>& counts) {
  const AttentionShape& shape = sequences[0]->shape;
  const size_t width = shape.queryHeads * shape.headDim;
  size_t rows = 0;
  std::vector<AttentionRows> parts;
  for (size_t i = 0; i < sequences.size(); ++i) {
    AttentionRows part;
    part.rowBegin = rows;
    part.rowCount = counts[i];
    part.positionBegin = begins[i];
    part.pages = sequences[i]->pagePointers.data();
    parts.push_back(part);
    rows += counts[i];
  }
  const size_t ld = width + 8;
  Floats q(rows * ld, kPoison), o(rows * ld, 1.5f), lse(rows * shape.queryHeads, 2.5f);
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (size_t r = 0; r < counts[i]; ++r) {
      for (size_t c = 0; c < width; ++c) {
        q[(parts[i].rowBegin + r) * ld + c] = sequences[i]->q[(begins[i] + r) * width + c];
      }
    }
  }
  AttentionArgs args;
  args.shape = shape;
  args.q = q.data();
  args.ldq = ld;
  args.o = o.data();
  args.ldo = ld;
  args.lse = lse.data();
  args.sequences = parts.data();
  args.sequenceCount = parts.size();
  table.attention(pool, args);
  return joined(o, lse);
}

}  // namespace

TEST(attention_equals_the_reference_over_shapes) {
  struct Case {
    AttentionShape shape;
    std::vector<size_t> lengths, begins;
    size_t odd;
  };
  const Case cases[] = {
      {{1, 1, 8}, {1}, {0}, 0},
      {{4, 2, 16}, {63, 64, 65, 130}, {0, 0, 0, 0}, 0},
      {{9, 3, 64}, {200, 129, 70}, {199, 128, 69}, 0},  // decode: one row each
      {{9, 3, 24}, {150, 90}, {60, 10}, 0},             // chunks
      {{4, 4, 40}, {77}, {5}, 0},
      {{8, 2, 128}, {140}, {100}, 0},
      {{64, 1, 16}, {70}, {66}, 0},  // more heads in a group than a task usually takes
      {{4, 2, 32}, {100, 90}, {0, 64}, 200},
      {{2, 1, 8}, {0, 3}, {0, 0}, 0},
  };
  for (const Case& c : cases) {
    checkAgainstReference("attention hd " + std::to_string(c.shape.headDim),
                          [&](const KernelTable& table, ThreadPool& pool) {
                            std::vector<Sequence> sequences;
                            sequences.reserve(c.lengths.size());
                            std::vector<Sequence*> pointers;
                            std::vector<size_t> counts;
                            Floats pages;
                            for (size_t i = 0; i < c.lengths.size(); ++i) {
                              sequences.emplace_back(c.shape, c.lengths[i], 17 + i, c.odd);
                              sequences[i].write(table, pool);
                              pointers.push_back(&sequences[i]);
                              counts.push_back(c.lengths[i] - c.begins[i]);
                              for (const Floats& page : sequences[i].pages)
                                pages = joined(pages, page);
                            }
                            return joined(attend(table, pool, pointers, c.begins, counts), pages);
                          });
  }
}

TEST(attention_rows_do_not_depend_on_chunks_or_company) {
  // N3: decode, chunked prefill and one pass over everything agree.
  const AttentionShape shape{6, 2, 32};
  const size_t width = shape.queryHeads * shape.headDim, ld = width + 8;
  for (Path path : fastPaths()) {
    const KernelTable& table = kernels::kernels(path);
    Sequence a(shape, 150, 3), b(shape, 80, 4);
    a.write(table, poolOf(1));
    b.write(table, poolOf(1));
    const Floats whole = attend(table, poolOf(2), {&a}, {0}, {150});
    for (size_t chunk : {1, 7, 50, 64, 100}) {
      for (size_t begin = 0; begin < 150; begin += chunk) {
        const size_t count = std::min(chunk, 150 - begin);
        const Floats part = attend(table, poolOf(5), {&b, &a}, {20, begin}, {60, count});
        for (size_t r = 0; r < count; ++r) {
          for (size_t c = 0; c < width; ++c) {
            CHECK(bitsOf(part[(60 + r) * ld + c]) == bitsOf(whole[(begin + r) * ld + c]));
          }
          for (size_t h = 0; h < shape.queryHeads; ++h) {
            CHECK(bitsOf(part[(60 + count) * ld + (60 + r) * shape.queryHeads + h]) ==
                  bitsOf(whole[150 * ld + (begin + r) * shape.queryHeads + h]));
          }
        }
      }
    }
  }
}

namespace {

// A group (N15): `branches` completions on a shared part; dq, dk, dv of everything.
Floats groupBackward(const KernelTable& table, ThreadPool& pool, const AttentionShape& shape,
                     size_t shared, const std::vector<size_t>& branches, bool oneCall,
                     size_t odd = 0) {
  const size_t queryWidth = shape.queryHeads * shape.headDim;
  const size_t keyWidth = shape.kvHeads * shape.headDim;
  Random random(99);
  const Sequence prompt(shape, shared, 1, odd);
  Floats sharedDk = randomMatrix(random, shared, keyWidth, keyWidth);
  Floats sharedDv = randomMatrix(random, shared, keyWidth, keyWidth);
  struct Run {
    std::vector<float*> pages;
    Sequence whole;
    Floats o, lse, dq, dk, dv;
    std::vector<kernels::KvGradientRange> ranges;
  };
  std::vector<Run> runs;
  runs.reserve(branches.size() + 1);
  std::vector<AttentionBackwardArgs> args;
  for (size_t i = 0; i <= branches.size(); ++i) {
    const bool isShared = i == branches.size();
    const size_t own = isShared ? shared : branches[i];
    if (own == 0) continue;
    const size_t begin = isShared ? 0 : shared;
    runs.push_back({{}, Sequence(shape, begin + own, 50 + i, odd), {}, {}, {}, {}, {}, {}});
    Run& run = runs.back();
    for (size_t e = 0; e < shared * keyWidth; ++e) {
      run.whole.k[e] = prompt.k[e];
      run.whole.v[e] = prompt.v[e];
    }
    run.whole.write(table, pool);
    const Floats out = attend(table, pool, {&run.whole}, {begin}, {own});
    const size_t ld = queryWidth + 8;
    run.o = Floats(own * queryWidth);
    for (size_t r = 0; r < own; ++r) {
      for (size_t c = 0; c < queryWidth; ++c) run.o[r * queryWidth + c] = out[r * ld + c];
    }
    run.lse = Floats(own * shape.queryHeads);
    for (size_t e = 0; e < run.lse.size(); ++e) run.lse[e] = out[own * ld + e];
    run.dq = Floats(own * queryWidth, 7.0f);
    run.dk = Floats(own * keyWidth);
    run.dv = Floats(own * keyWidth);
    if (shared)
      run.ranges.push_back({0, shared, sharedDk.data(), keyWidth, sharedDv.data(), keyWidth});
    if (!isShared) {
      run.ranges.push_back(
          {shared, shared + own, run.dk.data(), keyWidth, run.dv.data(), keyWidth});
    }
    AttentionBackwardArgs a;
    a.shape = shape;
    a.rowCount = own;
    a.positionBegin = begin;
    a.pages = run.whole.pagePointers.data();
    a.q = run.whole.q.data() + begin * queryWidth;
    a.ldq = queryWidth;
    a.o = run.o.data();
    a.ldo = queryWidth;
    a.lse = run.lse.data();
    a.dout = run.whole.dout.data() + begin * queryWidth;
    a.lddout = queryWidth;
    a.dq = run.dq.data();
    a.lddq = queryWidth;
    a.ranges = run.ranges.data();
    a.rangeCount = run.ranges.size();
    args.push_back(a);
  }
  if (oneCall) {
    const kernels::AttentionBackwardGroup group{args.data(), args.size()};
    table.attentionBackwardGroups(pool, &group, 1);
  } else {
    for (const AttentionBackwardArgs& a : args) table.attentionBackward(pool, a);
  }
  Floats all = joined(sharedDk, sharedDv);
  for (const Run& run : runs) all = joined(joined(all, run.dq), joined(run.dk, run.dv));
  return all;
}

}  // namespace

TEST(attention_backward_equals_the_reference_over_groups) {
  struct Case {
    AttentionShape shape;
    size_t shared;
    std::vector<size_t> branches;
    size_t odd;
  };
  const Case cases[] = {
      {{1, 1, 8}, 0, {1}, 0},
      {{4, 2, 16}, 0, {64}, 0},
      {{4, 2, 16}, 0, {130}, 0},
      {{9, 3, 24}, 0, {77}, 0},
      {{6, 2, 64}, 5, {9, 3}, 0},
      {{4, 2, 32}, 64, {10, 70}, 0},
      {{4, 1, 16}, 100, {33, 1, 64}, 0},
      {{2, 2, 40}, 130, {70}, 0},
      {{4, 2, 16}, 30, {50, 20}, 300},
  };
  for (const Case& c : cases) {
    for (bool oneCall : {false, true}) {
      checkAgainstReference("attention backward hd " + std::to_string(c.shape.headDim) +
                                ", shared " + std::to_string(c.shared),
                            [&](const KernelTable& table, ThreadPool& pool) {
                              return groupBackward(table, pool, c.shape, c.shared, c.branches,
                                                   oneCall, c.odd);
                            });
    }
  }
}
