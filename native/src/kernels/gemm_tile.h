// What the register tiles of gemm.cc and gemm_pairs.cc share: how they begin, how they end, and the
// tables of their heights.
#pragma once

#include "kernels/path.h"

namespace hotbed::kernels::HOTBED_PATH {

// The accumulators at +0, or at what c holds. `last` lanes are present in the last column.
template <int MR, int NV>
HOTBED_INLINE void startTile(V16 (&acc)[MR][NV], const float* c, size_t ldc, size_t last,
                             bool carry) {
  if (carry) {
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) {
        const float* from = c + static_cast<size_t>(m) * ldc + j * 16;
        acc[m][j] = j == NV - 1 && last != 16 ? load(from, last) : load(from);
      }
    }
  } else {
    for (int m = 0; m < MR; ++m) {
      for (int j = 0; j < NV; ++j) acc[m][j] = zero();
    }
  }
}

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

// Rows of a tile of NV columns at most.
template <int NV>
constexpr int maxRows() {
  return NV == 1 ? kMaxRows1 : NV == 2 ? kMaxRows2 : NV == 4 ? kMaxRows4 : kMaxRows8;
}

template <int MR>
struct Height {
  static constexpr int value = MR;
};

// tile[i]: the kernel of i rows; index 0 is unused.
template <class Tile, int kRows>
struct TileTable {
  Tile tile[kRows + 1] = {};

  // kernel(Height<i>) gives the one of i rows.
  template <class Kernel>
  static constexpr TileTable of(Kernel kernel) {
    TileTable table;
    table.template fill<kRows>(kernel);
    return table;
  }

 private:
  template <int MR, class Kernel>
  constexpr void fill(Kernel kernel) {
    if constexpr (MR > 0) {
      tile[MR] = kernel(Height<MR>{});
      fill<MR - 1>(kernel);
    }
  }
};

}  // namespace hotbed::kernels::HOTBED_PATH
