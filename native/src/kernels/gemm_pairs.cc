#include "kernels/path.h"
//
#include <immintrin.h>

#include "kernels/gemm_pairs.h"
#include "kernels/gemm_tile.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

// Denormals read and given as zeros, as VDPBF16PS always has it.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | kFlushAndZero); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kFlushAndZero = 0x8040;
  unsigned saved_;
};

#if defined(HOTBED_PATH_avx512bf16)

using PairValue = __m512bh;
using PairColumn = __m512bh;

HOTBED_INLINE PairValue pairValue(uint32_t word) {
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(word)));
}
HOTBED_INLINE PairColumn pairColumn(const uint32_t* words) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(words));
}
HOTBED_INLINE V16 dotPairs(V16 chain, PairValue x, PairColumn w) {
  return {_mm512_dpbf16_ps(chain.v, x, w)};
}

#else

struct PairValue {
  V16 even, odd;
};
using PairColumn = PairValue;

HOTBED_INLINE PairValue pairValue(uint32_t word) {
  return {set1(bitsToFloat(word << 16)), set1(bitsToFloat(word & 0xFFFF0000u))};
}
HOTBED_INLINE PairColumn pairColumn(const uint32_t* words) {
  return {widenLow(words), widenHigh(words)};
}
HOTBED_INLINE V16 dotPairs(V16 chain, const PairValue& x, const PairColumn& w) {
  return fma(x.even, w.even, fma(x.odd, w.odd, chain));
}

#endif

// MR x (NV * 16) outputs from row m0, 16-lane column j0.
template <int MR, int NV>
__attribute__((noinline)) void pairTile(const PairGemm& g, size_t m0, size_t j0, const char* soon) {
  V16 acc[MR][NV];
  const size_t last = minSize(16, g.n - (j0 + NV - 1) * 16);
  float* c = g.c + m0 * g.ldc + j0 * 16;
  startTile(acc, c, g.ldc, last, g.finish == Finish::carry);
  constexpr int kPointers = (MR + 3) / 4;
  const uint32_t* a[kPointers];
  for (int i = 0; i < kPointers; ++i) a[i] = g.a + (m0 + 4 * static_cast<size_t>(i)) * g.am;
  const size_t am = g.am;
  const size_t panelStride = g.panelStride;
  const uint32_t* b = g.b + (j0 / 2) * panelStride + (j0 % 2) * 16;
  // As gemm.cc: the first rows fetch the next panel, later rows what the caller reads soon.
  constexpr bool kFetches = NV <= 2;
  constexpr size_t kStepBytes = NV > 1 ? 128 : 64;
  const char* ahead = reinterpret_cast<const char*>(m0 == 0 ? b + panelStride : b);
  const size_t aheadStep = soon ? kStepBytes : kPanelWidth * sizeof *b;
  if (soon) ahead = soon;
  const size_t pairs = divideUp(g.k, 2);
  for (size_t k = 0; k < pairs; ++k) {
    if (kFetches) {
      __builtin_prefetch(ahead);
      if (kStepBytes > 64) __builtin_prefetch(ahead + 64);
      ahead += aheadStep;
    }
    PairColumn column[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      column[j] = pairColumn(b + static_cast<size_t>(j / 2) * panelStride + (j % 2) * 16);
    }
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) {
      const PairValue x = pairValue(a[m / 4][static_cast<size_t>(m % 4) * am]);
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) acc[m][j] = dotPairs(acc[m][j], x, column[j]);
    }
    for (int i = 0; i < kPointers; ++i) ++a[i];
    b += kPanelWidth;
  }
  if (g.finish == Finish::bias) {
    const float* bias = g.bias + j0 * 16;
    finishTile(acc, c, g.ldc, last,
               [=](V16 chain, auto, auto column) { return add(chain, column(bias)); });
  } else {
    finishTile(acc, c, g.ldc, last, [](V16 chain, auto, auto) { return chain; });
  }
}

using PairTile = void (*)(const PairGemm&, size_t m0, size_t j0, const char* soon);

// All rows of one column group, in tiles of nearly equal height.
template <int NV>
void pairColumns(const PairGemm& g, size_t j0) {
  constexpr int kRows = maxRows<NV>();
  if constexpr (kRows > 0) {
    static constexpr auto tiles = TileTable<PairTile, kRows>::of(
        [](auto rows) { return pairTile<decltype(rows)::value, NV>; });
    const size_t count = divideUp(g.m, kRows);
    for (size_t i = 0; i < count; ++i) {
      const size_t begin = g.m * i / count;
      const char* soon = i == 0 || !g.fetch ? nullptr : g.fetch->take(divideUp(g.k, 2) * 64);
      tiles.tile[g.m * (i + 1) / count - begin](g, begin, j0, soon);
    }
  }
}

// Nearest, ties to even, as bits; a NaN stays one.
HOTBED_INLINE uint32_t roundBf16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = bits >> 16 | 0x40u;
  return (bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded;
}

}  // namespace

void roundRows(const float* x, size_t ldx, size_t rows, size_t k, uint32_t* out, size_t ldout) {
  for (size_t row = 0; row < rows; ++row) {
    const float* from = x + row * ldx;
    uint32_t* to = out + row * ldout;
    for (size_t i = 0; i < k / 2; ++i) {
      to[i] = roundBf16(from[2 * i]) | roundBf16(from[2 * i + 1]) << 16;
    }
    if (k % 2) to[k / 2] = roundBf16(from[k - 1]);
  }
}

void roundRows(ThreadPool& pool, const float* x, size_t ldx, size_t rows, size_t k, uint32_t* out,
               size_t ldout) {
  constexpr size_t kElements = 16384;  // a few microseconds
  const size_t tasks = minSize(rows, divideUp(rows * k, kElements));
  pool.forEach(tasks, [=](size_t task, size_t) {
    const size_t begin = rows * task / tasks;
    const size_t end = rows * (task + 1) / tasks;
    roundRows(x + begin * ldx, ldx, end - begin, k, out + begin * ldout, ldout);
  });
}

void gemmPairs(const PairGemm& g, size_t columnBegin, size_t columnEnd) {
  if (g.m == 0) return;
  const FlushDenormals flush;
  const int widest = columnsFor(g.m);
  size_t j = columnBegin;
  if (widest >= 8) {
    for (; j + 8 <= columnEnd; j += 8) pairColumns<8>(g, j);
  }
  if (widest >= 4) {
    for (; j + 4 <= columnEnd; j += 4) pairColumns<4>(g, j);
  }
  if (widest >= 2) {
    for (; j + 2 <= columnEnd; j += 2) pairColumns<2>(g, j);
  }
  for (; j < columnEnd; ++j) pairColumns<1>(g, j);
}

}  // namespace hotbed::kernels::HOTBED_PATH
