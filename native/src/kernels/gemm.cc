#include "kernels/path.h"
//
#include "kernels/gemm.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

// Writes result(chain, old, column) for every accumulator; old() loads what c holds, column(p)
// loads p's elements of the same columns. Unrolled, or the accumulators would go through memory.
template <int MR, int NV, class Result>
HOTBED_INLINE void finishTile(const V16 (&acc)[MR][NV], float* c, size_t ldc, size_t last,
                              const Result& result) {
  if (last == 16) {
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) {
        float* to = c + static_cast<size_t>(m) * ldc + j * 16;
        const auto old = [=] { return load(to); };
        const auto column = [=](const float* p) { return load(p + j * 16); };
        store(to, result(acc[m][j], old, column));
      }
    }
    return;
  }
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      float* to = c + static_cast<size_t>(m) * ldc + j * 16;
      const size_t lanes = j == NV - 1 ? last : 16;
      const auto old = [=] { return load(to, lanes); };
      const auto column = [=](const float* p) { return load(p + j * 16, lanes); };
      store(to, result(acc[m][j], old, column), lanes);
    }
  }
}

// MR x (NV * 16) outputs from row m0, 16-lane column j0.
template <int MR, int NV, bool kPanels>
__attribute__((noinline)) void gemmTile(const Gemm& g, size_t m0, size_t j0) {
  V16 acc[MR][NV];
  // Lanes present in the last column; the other columns are always full.
  const size_t last = minSize(16, g.n - (j0 + NV - 1) * 16);
  float* c = g.c + m0 * g.ldc + j0 * 16;
  if (g.finish == Finish::carry) {
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) {
        const float* from = c + static_cast<size_t>(m) * g.ldc + j * 16;
        acc[m][j] = j == NV - 1 && last != 16 ? load(from, last) : load(from);
      }
    }
  } else {
    for (int m = 0; m < MR; ++m) {
      for (int j = 0; j < NV; ++j) acc[m][j] = zero();
    }
  }
  // Four rows share a pointer: [p], [p + am], [p + 2 am], [p + 3 am] fit x86 addressing.
  constexpr int kPointers = (MR + 3) / 4;
  const float* a[kPointers];
  for (int i = 0; i < kPointers; ++i) a[i] = g.a + (m0 + 4 * static_cast<size_t>(i)) * g.am;
  const size_t am = g.am;
  const size_t ak = g.ak;
  const size_t ldb = kPanels ? 32 : g.ldb;
  const float* b = kPanels ? g.b + (j0 / 2) * g.panelStride + (j0 % 2) * 16 : g.b + j0 * 16;
  const size_t panelStride = g.panelStride;
  // While the first rows pass over a panel the next one is fetched, so that reading memory and
  // computing overlap where few rows share a panel (16 rows of 128 x 128: 117 -> 207 GFLOP/s).
  // Kernels over several panels are bound by memory anyhow; there it would cost.
  constexpr bool kFetches = kPanels && NV <= 2;
  const size_t ahead = m0 == 0 ? panelStride : 0;
  const bool masked = !kPanels && NV == 1 && last != 16;
  if (masked && last == 8) {  // the commonest rank
    for (size_t k = 0; k < g.k; ++k) {
      const V16 column = load8(b);
      for (int m = 0; m < MR; ++m) {
        acc[m][0] = fma(set1(a[m / 4][static_cast<size_t>(m % 4) * am]), column, acc[m][0]);
      }
      for (int i = 0; i < kPointers; ++i) a[i] += ak;
      b += ldb;
    }
  } else if (masked) {
    for (size_t k = 0; k < g.k; ++k) {
      const V16 column = load(b, last);
      for (int m = 0; m < MR; ++m) {
        acc[m][0] = fma(set1(a[m / 4][static_cast<size_t>(m % 4) * am]), column, acc[m][0]);
      }
      for (int i = 0; i < kPointers; ++i) a[i] += ak;
      b += ldb;
    }
  } else {
    for (size_t k = 0; k < g.k; ++k) {
      V16 column[NV];
      if constexpr (kFetches) {
        __builtin_prefetch(b + ahead);
        if (NV > 1) __builtin_prefetch(b + ahead + 16);
      }
      for (int j = 0; j < NV; ++j) {
        column[j] = load(kPanels ? b + static_cast<size_t>(j / 2) * panelStride + (j % 2) * 16
                                 : b + j * 16);
      }
      for (int m = 0; m < MR; ++m) {
        const V16 x = set1(a[m / 4][static_cast<size_t>(m % 4) * am]);
        for (int j = 0; j < NV; ++j) acc[m][j] = fma(x, column[j], acc[m][j]);
      }
      for (int i = 0; i < kPointers; ++i) a[i] += ak;
      b += ldb;
    }
  }
  switch (g.finish) {
    case Finish::store:
    case Finish::carry:
      return finishTile(acc, c, g.ldc, last, [](V16 chain, auto, auto) { return chain; });
    case Finish::bias: {
      const float* bias = g.bias + j0 * 16;
      return finishTile(acc, c, g.ldc, last,
                        [=](V16 chain, auto, auto column) { return add(chain, column(bias)); });
    }
    case Finish::scale:
      return finishTile(acc, c, g.ldc, last,
                        [s = set1(g.s)](V16 chain, auto, auto) { return mul(s, chain); });
    case Finish::addTo:
      return finishTile(acc, c, g.ldc, last,
                        [](V16 chain, auto old, auto) { return add(old(), chain); });
    case Finish::scaledAdd:
      return finishTile(acc, c, g.ldc, last, [s = set1(g.s)](V16 chain, auto old, auto) {
        return fma(s, chain, old());
      });
  }
}

using GemmTile = void (*)(const Gemm&, size_t m0, size_t j0);

template <int NV, bool kPanels, int kRows>
struct GemmTiles {
  // tile[i]: i rows; index 0 is unused.
  GemmTile tile[kRows + 1];
  constexpr GemmTiles() : tile{} { fill<kRows>(); }
  template <int MR>
  constexpr void fill() {
    if constexpr (MR > 0) {
      tile[MR] = gemmTile<MR, NV, kPanels>;
      fill<MR - 1>();
    }
  }
};

template <int NV>
constexpr int maxRows() {
  return NV == 1 ? kMaxRows1 : NV == 2 ? kMaxRows2 : NV == 4 ? kMaxRows4 : kMaxRows8;
}

// All rows of one column group, in tiles of nearly equal height.
template <int NV, bool kPanels>
HOTBED_INLINE void gemmColumns(const Gemm& g, size_t j0) {
  constexpr int kRows = maxRows<NV>();
  if constexpr (kRows > 0) {
    static constexpr GemmTiles<NV, kPanels, kRows> tiles;
    const size_t count = divideUp(g.m, kRows);
    for (size_t i = 0; i < count; ++i) {
      const size_t begin = g.m * i / count;
      tiles.tile[g.m * (i + 1) / count - begin](g, begin, j0);
    }
  }
}

// Columns [columnBegin, columnEnd) of 16 lanes; g.n bounds the last one. Panel kernels on wide
// lanes work on whole panels, whose padding columns are computed and dropped.
template <bool kPanels>
void gemmRange(const Gemm& g, size_t columnBegin, size_t columnEnd) {
  if (g.m == 0) return;
  const int widest = columnsFor(g.m);
  size_t j = columnBegin;
  // A group of several columns has to end inside n (its last column may be partial with panels,
  // whose padding can be read).
  const size_t whole = kPanels ? columnEnd : minSize(columnEnd, g.n / 16);
  if (widest >= 8) {
    for (; j + 8 <= whole; j += 8) gemmColumns<8, kPanels>(g, j);
  }
  if (widest >= 4) {
    for (; j + 4 <= whole; j += 4) gemmColumns<4, kPanels>(g, j);
  }
  if (widest >= 2) {
    for (; j + 2 <= whole; j += 2) gemmColumns<2, kPanels>(g, j);
  }
  for (; j < columnEnd; ++j) gemmColumns<1, kPanels>(g, j);
}

}  // namespace

void gemmRows(const Gemm& g) { gemmRange<false>(g, 0, divideUp(g.n, 16)); }

void gemmPanels(const Gemm& g, size_t columnBegin, size_t columnEnd) {
  gemmRange<true>(g, columnBegin, columnEnd);
}

}  // namespace hotbed::kernels::HOTBED_PATH
