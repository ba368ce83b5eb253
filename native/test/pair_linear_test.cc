// bf16-1's product (P1): every path against the reference, and the instruction against its
// emulation.
#include "kernel_support.h"
#include "kernels/bf16_dots.h"
#include "kernels/machine_burst.h"

using namespace hotbed;
using namespace hotbed::test;
using kernels::LinearArgs;

namespace {

struct PairCase {
  size_t rows, dIn, dOut;
  bool bias = false;
  size_t odd = 0;      // one element in `odd` is a NaN, an infinity, a denormal, ...
  float scale = 1.0f;  // of x: tiny ones reach the denormals
};

Floats bf16Matrix(Random& random, size_t rows, size_t columns, size_t every) {
  Floats w = randomMatrix(random, rows, columns, columns, 0.1f);
  if (every) sprinkle(random, w, every);
  for (size_t i = 0; i < w.size(); ++i) {
    if (w[i] == w[i]) w[i] = fromBits(bitsOf(w[i]) & 0xFFFF0000u);
  }
  return w;
}

AlignedBuffer<uint32_t> pairsOf(const KernelTable& table, ThreadPool& pool, const Floats& w,
                                size_t dOut, size_t dIn) {
  const Floats panels = packed(table, pool, w, dIn, dOut, dIn);
  AlignedBuffer<uint32_t> words(kernels::pairPanelWords(dOut, dIn));
  CHECK(table.pairPanels(pool, panels.data(), dOut, dIn, words.data()));
  return words;
}

// y of `rows` rows, without gaps on either side.
Floats multiply(const KernelTable& table, ThreadPool& pool, const float* x, size_t rows,
                const AlignedBuffer<uint32_t>& words, size_t dOut, size_t dIn) {
  Floats y(rows * dOut);
  LinearArgs args;
  args.x = x;
  args.ldx = dIn;
  args.rows = rows;
  args.weight.dOut = dOut;
  args.weight.dIn = dIn;
  args.weight.pairPanels = words.data();
  args.y = y.data();
  args.ldy = dOut;
  table.linear(pool, args);
  return y;
}

Floats runPairs(const KernelTable& table, ThreadPool& pool, const PairCase& c) {
  Random random(c.rows * 1000003 + c.dIn * 1009 + c.dOut);
  const size_t ldx = c.dIn + 3, ldy = c.dOut + 5;
  Floats x = randomMatrix(random, c.rows, c.dIn, ldx, c.scale);
  const Floats w = bf16Matrix(random, c.dOut, c.dIn, 10 * c.odd);
  const Floats bias = randomMatrix(random, 1, c.dOut, c.dOut, c.scale);
  if (c.odd) sprinkle(random, x, c.odd);
  const AlignedBuffer<uint32_t> words = pairsOf(table, pool, w, c.dOut, c.dIn);
  Floats y(c.rows * ldy, -77.0f);
  LinearArgs args;
  args.x = x.data();
  args.ldx = ldx;
  args.rows = c.rows;
  args.weight.dOut = c.dOut;
  args.weight.dIn = c.dIn;
  args.weight.bias = c.bias ? bias.data() : nullptr;
  args.weight.pairPanels = words.data();
  args.y = y.data();
  args.ldy = ldy;
  table.linear(pool, args);
  return y;
}

}  // namespace

TEST(pair_linear_equals_the_reference_over_shapes) {
  const PairCase cases[] = {
      {0, 8, 8},
      {1, 1, 1},
      {1, 7, 3},
      {1, 64, 128, true},
      {2, 33, 31},
      {3, 128, 384},
      {5, 17, 65, true},
      {13, 40, 200},
      {14, 24, 96},
      {15, 25, 96, true},
      {70, 64, 48},
      {193, 21, 40},
      {400, 12, 300},
      {1, 576, 1536},
      {9, 0, 20},
      {33, 64, 64, true, 50},
      {5, 41, 40, false, 7},
      {1, 300, 700, false, 100},
      {31, 50, 70, true, 0, 1e-37f},
      {31, 51, 70, false, 0, 3e-38f},
      {4, 50, 70, false, 0, 1e38f},
  };
  for (const PairCase& c : cases) {
    checkAgainstReference(
        "pairs " + std::to_string(c.rows) + "x" + std::to_string(c.dIn) + "x" +
            std::to_string(c.dOut),
        [&](const KernelTable& table, ThreadPool& pool) { return runPairs(table, pool, c); });
  }
}

TEST(pair_linear_is_near_the_exact_product_of_rounded_numbers) {
  Random random(12);
  const size_t rows = 5, dIn = 300, dOut = 40;
  const Floats x = bf16Matrix(random, rows, dIn, 0);
  const Floats w = bf16Matrix(random, dOut, dIn, 0);
  const KernelTable& reference = kernels::kernels(Path::reference);
  const AlignedBuffer<uint32_t> words = pairsOf(reference, poolOf(1), w, dOut, dIn);
  const Floats y = multiply(reference, poolOf(1), x.data(), rows, words, dOut, dIn);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t out = 0; out < dOut; ++out) {
      double exact = 0;
      for (size_t k = 0; k < dIn; ++k) {
        exact += static_cast<double>(x[row * dIn + k]) * static_cast<double>(w[out * dIn + k]);
      }
      CHECK(std::fabs(exact - static_cast<double>(y[row * dOut + out])) < 1e-5);
    }
  }
}

TEST(pair_linear_rows_do_not_depend_on_their_neighbours) {
  const size_t rows = 77, dIn = 96, dOut = 130;
  Random random(6);
  const Floats x = randomMatrix(random, rows, dIn, dIn);
  const Floats w = bf16Matrix(random, dOut, dIn, 0);
  for (Path path : fastPaths()) {
    const KernelTable& table = kernels::kernels(path);
    const AlignedBuffer<uint32_t> words = pairsOf(table, poolOf(1), w, dOut, dIn);
    const auto run = [&](size_t begin, size_t count) {
      return multiply(table, poolOf(2), x.data() + begin * dIn, count, words, dOut, dIn);
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

TEST(pair_linear_refuses_weights_that_are_not_bf16) {
  for (Path path : {Path::reference, Path::scalar, Path::avx2, Path::avx512, Path::avx512bf16}) {
    if (!kernels::supports(path)) continue;
    const KernelTable& table = kernels::kernels(path);
    for (const size_t dIn : {8, 9}) {
      Floats panels(kernels::packedLinearFloats(40, dIn), 1.5f);
      AlignedBuffer<uint32_t> words(kernels::pairPanelWords(40, dIn));
      CHECK(table.pairPanels(poolOf(2), panels.data(), 40, dIn, words.data()));
      panels[panels.size() - 1] = 1.1f;
      CHECK(!table.pairPanels(poolOf(2), panels.data(), 40, dIn, words.data()));
    }
  }
}

TEST(bf16_dots_of_this_machine_are_two_multiply_adds) {
  if (!kernels::hasBf16Dot()) return;
  for (const uint64_t seed : {1, 2}) CHECK(kernels::bf16DotsThatDiffer(1'000'000, seed) == 0);
}
