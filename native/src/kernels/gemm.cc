#include "kernels/path.h"
//
#include "kernels/gemm.h"
#include "kernels/gemm_tile.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

// How a tile reads 16 lanes of B's row, column j of a group that begins with column j0. In panels
// groups of two columns and more begin with an even one.
struct RowColumns {
  using Element = float;
  static constexpr bool kPadded = false;  // the last column may be short
  static const float* begin(const Gemm& g, size_t j0) { return g.b + j0 * 16; }
  static size_t stride(const Gemm& g) { return g.ldb; }
  static V16 read(const float* b, int j, size_t /*panelStride*/, int /*shift*/) {
    return load(b + j * 16);
  }
};

struct PanelColumns {
  using Element = float;
  static constexpr bool kPadded = true;
  static const float* begin(const Gemm& g, size_t j0) {
    return g.b + (j0 / 2) * g.panelStride + (j0 % 2) * 16;
  }
  static size_t stride(const Gemm&) { return 32; }
  static V16 read(const float* b, int j, size_t panelStride, int /*shift*/) {
    return load(b + static_cast<size_t>(j / 2) * panelStride + (j % 2) * 16);
  }
};

template <bool kSingle>
struct NarrowColumns {
  using Element = uint32_t;
  static constexpr bool kPadded = true;
  static const uint32_t* begin(const Gemm& g, size_t j0) {
    return g.narrow + (j0 / 2) * g.panelStride;
  }
  static size_t stride(const Gemm&) { return 16; }
  static V16 read(const uint32_t* b, int j, size_t panelStride, int shift) {
    if (kSingle) return widen(b, shift);
    const uint32_t* words = b + static_cast<size_t>(j / 2) * panelStride;
    return j % 2 == 0 ? widenLow(words) : widenHigh(words);
  }
};

// MR x (NV * 16) outputs from row m0, 16-lane column j0.
template <int MR, int NV, class Columns>
__attribute__((noinline)) void gemmTile(const Gemm& g, size_t m0, size_t j0, const char* soon) {
  V16 acc[MR][NV];
  // Lanes present in the last column; the other columns are always full.
  const size_t last = minSize(16, g.n - (j0 + NV - 1) * 16);
  float* c = g.c + m0 * g.ldc + j0 * 16;
  startTile(acc, c, g.ldc, last, g.finish == Finish::carry);
  // Four rows share a pointer: [p], [p + am], [p + 2 am], [p + 3 am] fit x86 addressing.
  constexpr int kPointers = (MR + 3) / 4;
  const float* a[kPointers];
  for (int i = 0; i < kPointers; ++i) a[i] = g.a + (m0 + 4 * static_cast<size_t>(i)) * g.am;
  const size_t am = g.am;
  const size_t ak = g.ak;
  const size_t ldb = Columns::stride(g);
  const typename Columns::Element* b = Columns::begin(g, j0);
  const int shift = j0 % 2 == 0 ? 16 : 0;  // of a single narrow column
  const size_t panelStride = g.panelStride;
  // While the first rows pass over a panel the next one is fetched, so that reading memory and
  // computing overlap where few rows share a panel (16 rows of 128 x 128: 117 -> 207 GFLOP/s).
  // Kernels over several panels are bound by memory anyhow; there it would cost.
  // Later rows fetch what the caller will read soon.
  constexpr bool kFetches = Columns::kPadded && NV <= 2;
  constexpr size_t kStepBytes = NV > 1 && sizeof(*b) == sizeof(float) ? 128 : 64;
  const char* ahead = reinterpret_cast<const char*>(m0 == 0 ? b + panelStride : b);
  const size_t aheadStep = soon ? kStepBytes : ldb * sizeof(*b);
  if (soon) ahead = soon;
  const auto step = [&](const auto& read) __attribute__((always_inline)) {
    for (size_t k = 0; k < g.k; ++k) {
      V16 column[NV];
      for (int j = 0; j < NV; ++j) column[j] = read(j);
      for (int m = 0; m < MR; ++m) {
        const V16 x = set1(a[m / 4][static_cast<size_t>(m % 4) * am]);
        for (int j = 0; j < NV; ++j) acc[m][j] = fma(x, column[j], acc[m][j]);
      }
      for (int i = 0; i < kPointers; ++i) a[i] += ak;
      b += ldb;
    }
  };
  if constexpr (!Columns::kPadded && NV == 1) {
    if (last == 16) {
      step([&](int) { return load(b); });
    } else if (last == 8) {  // the commonest rank
      step([&](int) { return load8(b); });
    } else {
      step([&](int) { return load(b, last); });
    }
  } else {
    step([&](int j) {
      if (kFetches && j == 0) {
        __builtin_prefetch(ahead);
        if (kStepBytes > 64) __builtin_prefetch(ahead + 64);
        ahead += aheadStep;
      }
      return Columns::read(b, j, panelStride, shift);
    });
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

using GemmTile = void (*)(const Gemm&, size_t m0, size_t j0, const char* soon);

// What a tile fetches at each step of k, at least.
constexpr size_t kFetchBytes = 64;

// All rows of one column group, in tiles of nearly equal height.
template <int NV, class Columns>
HOTBED_INLINE void gemmColumns(const Gemm& g, size_t j0) {
  constexpr int kRows = maxRows<NV>();
  if constexpr (kRows > 0) {
    static constexpr auto tiles = TileTable<GemmTile, kRows>::of(
        [](auto rows) { return gemmTile<decltype(rows)::value, NV, Columns>; });
    const size_t count = divideUp(g.m, kRows);
    for (size_t i = 0; i < count; ++i) {
      const size_t begin = g.m * i / count;
      const char* soon = i == 0 || !g.fetch ? nullptr : g.fetch->take(g.k * kFetchBytes);
      tiles.tile[g.m * (i + 1) / count - begin](g, begin, j0, soon);
    }
  }
}

// Columns [columnBegin, columnEnd) of 16 lanes; g.n bounds the last one. Panel kernels on wide
// lanes work on whole panels, whose padding columns are computed and dropped.
template <class Columns, class Single>
void gemmRange(const Gemm& g, size_t columnBegin, size_t columnEnd) {
  if (g.m == 0) return;
  const int widest = columnsFor(g.m);
  size_t j = columnBegin;
  // A group of several columns has to end inside n; in panels its last column may be short, as the
  // padding can be read.
  const size_t whole = Columns::kPadded ? columnEnd : minSize(columnEnd, g.n / 16);
  if (widest >= 8) {
    for (; j + 8 <= whole; j += 8) gemmColumns<8, Columns>(g, j);
  }
  if (widest >= 4) {
    for (; j + 4 <= whole; j += 4) gemmColumns<4, Columns>(g, j);
  }
  if (widest >= 2) {
    for (; j + 2 <= whole; j += 2) gemmColumns<2, Columns>(g, j);
  }
  for (; j < columnEnd; ++j) gemmColumns<1, Single>(g, j);
}

}  // namespace

void gemmRows(const Gemm& g) { gemmRange<RowColumns, RowColumns>(g, 0, divideUp(g.n, 16)); }

void gemmPanels(const Gemm& g, size_t columnBegin, size_t columnEnd) {
  if (g.narrow) {
    gemmRange<NarrowColumns<false>, NarrowColumns<true>>(g, columnBegin, columnEnd);
  } else {
    gemmRange<PanelColumns, PanelColumns>(g, columnBegin, columnEnd);
  }
}

}  // namespace hotbed::kernels::HOTBED_PATH
