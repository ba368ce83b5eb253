#include "kernel_support.h"

using namespace hotbed;
using namespace hotbed::test;
using kernels::LinearArgs;

namespace {

struct LinearCase {
  size_t rows, dIn, dOut;
  bool bias = false;
  size_t odd = 0;  // one element in `odd` is a NaN, an infinity, a denormal, ...
};

Floats runLinear(const KernelTable& table, ThreadPool& pool, const LinearCase& c, bool transposed) {
  Random random(c.rows * 1000003 + c.dIn * 1009 + c.dOut);
  const size_t ldx = c.dIn + 3;
  const size_t ldy = c.dOut + 5;
  Floats x = randomMatrix(random, c.rows, c.dIn, ldx);
  // Transposed: the layer is [dIn, dOut] and we ask for the gradient of its input.
  Floats w = transposed ? randomMatrix(random, c.dIn, c.dOut, c.dOut + 1, 0.1f)
                        : randomMatrix(random, c.dOut, c.dIn, c.dIn + 1, 0.1f);
  Floats bias = randomMatrix(random, 1, c.dOut, c.dOut);
  if (c.odd) {
    sprinkle(random, x, c.odd);
    sprinkle(random, w, 10 * c.odd);
  }
  const Floats panels = transposed ? packedTransposed(table, pool, w, c.dOut + 1, c.dIn, c.dOut)
                                   : packed(table, pool, w, c.dIn + 1, c.dOut, c.dIn);
  Floats y(c.rows * ldy, -77.0f);
  LinearArgs args;
  args.x = x.data();
  args.ldx = ldx;
  args.rows = c.rows;
  args.weight.panels = panels.data();
  args.weight.dOut = c.dOut;
  args.weight.dIn = c.dIn;
  args.weight.bias = c.bias ? bias.data() : nullptr;
  args.y = y.data();
  args.ldy = ldy;
  table.linear(pool, args);
  return joined(y, panels);
}

}  // namespace

TEST(linear_is_the_same_whatever_it_fetches_on_the_way) {
  Random random(3);
  const Floats other = randomMatrix(random, 1, 5000, 5000);
  const kernels::FetchSpan spans[] = {{other.data(), 100},
                                      {other.data() + 64, 0},
                                      {other.data() + 128, 4096},
                                      {other.data() + 2000, 9000}};
  for (const size_t rows : {1, 20, 33, 70}) {
    const size_t dIn = 48, dOut = 130;
    const Floats x = randomMatrix(random, rows, dIn, dIn);
    const Floats w = randomMatrix(random, dOut, dIn, dIn);
    checkAgainstReference("linear that fetches", [&](const KernelTable& table, ThreadPool& pool) {
      const Floats panels = packed(table, pool, w, dIn, dOut, dIn);
      Floats y(rows * dOut, kPoison);
      kernels::LinearArgs args;
      args.x = x.data();
      args.ldx = dIn;
      args.rows = rows;
      args.weight.panels = panels.data();
      args.weight.dOut = dOut;
      args.weight.dIn = dIn;
      args.y = y.data();
      args.ldy = dOut;
      args.fetch = spans;
      args.fetchCount = 4;
      table.linear(pool, args);
      return y;
    });
  }
}

TEST(linear_equals_the_reference_over_shapes) {
  const LinearCase cases[] = {
      {0, 8, 8},
      {1, 1, 1},
      {1, 7, 3},
      {1, 64, 128, true},
      {2, 33, 31},
      {3, 128, 384},
      {5, 17, 65, true},
      {6, 16, 32},
      {7, 100, 47},
      {13, 40, 200},
      {14, 24, 96},
      {15, 24, 96},
      {29, 31, 33, true},
      {64, 128, 128},
      {70, 64, 48},
      {193, 20, 40},
      {400, 12, 300},
      {1, 576, 1536},
      {9, 0, 20},
      {33, 64, 64, true, 50},
      {5, 40, 40, false, 7},
      {1, 300, 700, false, 100},
  };
  for (const LinearCase& c : cases) {
    for (bool transposed : {false, true}) {
      checkAgainstReference("linear " + std::to_string(c.rows) + "x" + std::to_string(c.dIn) + "x" +
                                std::to_string(c.dOut),
                            [&](const KernelTable& table, ThreadPool& pool) {
                              return runLinear(table, pool, c, transposed);
                            });
    }
  }
}

TEST(linear_gives_the_same_bits_from_narrow_panels) {
  for (const LinearCase& c : {LinearCase{1, 40, 70}, LinearCase{2, 33, 64}, LinearCase{5, 64, 130},
                              LinearCase{31, 48, 96}, LinearCase{100, 20, 33}}) {
    Random random(c.rows);
    const Floats x = randomMatrix(random, c.rows, c.dIn, c.dIn);
    Floats w = randomMatrix(random, c.dOut, c.dIn, c.dIn);
    for (size_t i = 0; i < w.size(); ++i) w[i] = fromBits(bitsOf(w[i]) & 0xFFFF0000u);
    const auto run = [&](const KernelTable& table, ThreadPool& pool, bool narrow) {
      const Floats panels = packed(table, pool, w, c.dIn, c.dOut, c.dIn);
      AlignedBuffer<uint32_t> words(kernels::narrowPanelWords(panels.size()));
      CHECK(table.narrowPanels(pool, panels.data(), panels.size(), words.data()));
      Floats y(c.rows * c.dOut);
      LinearArgs args;
      args.x = x.data();
      args.ldx = c.dIn;
      args.rows = c.rows;
      args.weight = {narrow ? nullptr : panels.data(), c.dOut, c.dIn, nullptr,
                     narrow ? words.data() : nullptr};
      args.y = y.data();
      args.ldy = c.dOut;
      table.linear(pool, args);
      return y;
    };
    checkAgainstReference("narrow linear", [&](const KernelTable& table, ThreadPool& pool) {
      return run(table, pool, true);
    });
    const KernelTable& reference = kernels::kernels(Path::reference);
    checkSame("narrow and wide", run(reference, poolOf(1), true), run(reference, poolOf(1), false));
  }
}

TEST(linear_refuses_to_narrow_what_is_not_bf16) {
  for (Path path : {Path::reference, Path::scalar, Path::avx2, Path::avx512, Path::avx512bf16}) {
    if (!kernels::supports(path)) continue;
    Floats panels(kernels::packedLinearFloats(40, 9), 1.5f);
    AlignedBuffer<uint32_t> words(kernels::narrowPanelWords(panels.size()));
    const KernelTable& table = kernels::kernels(path);
    CHECK(table.narrowPanels(poolOf(2), panels.data(), panels.size(), words.data()));
    panels[panels.size() - 1] = 1.1f;
    CHECK(!table.narrowPanels(poolOf(2), panels.data(), panels.size(), words.data()));
  }
}

TEST(linear_rows_do_not_depend_on_their_neighbours) {
  // N1: a row alone, or anywhere in a batch of any size, gives the same bits.
  const size_t rows = 77, dIn = 96, dOut = 130;
  Random random(5);
  const Floats x = randomMatrix(random, rows, dIn, dIn);
  const Floats w = randomMatrix(random, dOut, dIn, dIn);
  for (Path path : fastPaths()) {
    const KernelTable& table = kernels::kernels(path);
    const Floats panels = packed(table, poolOf(1), w, dIn, dOut, dIn);
    const auto run = [&](size_t begin, size_t count) {
      Floats y(count * dOut);
      LinearArgs args;
      args.x = x.data() + begin * dIn;
      args.ldx = dIn;
      args.rows = count;
      args.weight.panels = panels.data();
      args.weight.dOut = dOut;
      args.weight.dIn = dIn;
      args.y = y.data();
      args.ldy = dOut;
      table.linear(poolOf(2), args);
      return y;
    };
    const Floats all = run(0, rows);
    for (size_t count : {1, 2, 5, 8, 14, 20, 50}) {
      for (size_t begin = 0; begin + count <= rows; begin += 9) {
        const Floats part = run(begin, count);
        for (size_t i = 0; i < part.size(); ++i) {
          CHECK_MESSAGE(bitsOf(part[i]) == bitsOf(all[begin * dOut + i]),
                        table.name << ", rows " << begin << "+" << count << ", element " << i);
        }
      }
    }
  }
}
