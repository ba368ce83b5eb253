// V16: 16 fp32 lanes in one zmm register. The operations of the three lanes_*.h files agree.
#pragma once

#include <immintrin.h>

namespace hotbed::kernels::HOTBED_PATH {

struct V16 {
  __m512 v;
};
struct M16 {
  __mmask16 m;
};

HOTBED_INLINE V16 zero() { return {_mm512_setzero_ps()}; }
HOTBED_INLINE V16 set1(float x) { return {_mm512_set1_ps(x)}; }
HOTBED_INLINE V16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
// Sixteen narrow panel words: columns 0-15 (low halves) or 16-31 (high halves).
HOTBED_INLINE V16 widenLow(const uint32_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
}
HOTBED_INLINE V16 widenHigh(const uint32_t* p) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), mask))};
}
HOTBED_INLINE V16 widen(const uint32_t* p, int shift) {  // 16: low halves, 0: high halves
  const __m512i words = _mm512_sll_epi32(_mm512_loadu_si512(p), _mm_cvtsi32_si128(shift));
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  return {_mm512_castsi512_ps(_mm512_and_si512(words, mask))};
}
HOTBED_INLINE void store(float* p, V16 a) { _mm512_storeu_ps(p, a.v); }
// Lanes below n, 0 <= n <= 16.
HOTBED_INLINE M16 firstLanes(size_t n) { return {static_cast<__mmask16>((1u << n) - 1u)}; }
// Absent lanes are +0, or `fill`'s; they are not read.
HOTBED_INLINE V16 load(const float* p, size_t n) {
  return {_mm512_maskz_loadu_ps(firstLanes(n).m, p)};
}
HOTBED_INLINE V16 load(const float* p, size_t n, V16 fill) {
  return {_mm512_mask_loadu_ps(fill.v, firstLanes(n).m, p)};
}
// Eight lanes and eight zeros: faster than a masked load, which may straddle two cache lines.
HOTBED_INLINE V16 load8(const float* p) { return {_mm512_zextps256_ps512(_mm256_loadu_ps(p))}; }
HOTBED_INLINE void store(float* p, V16 a, size_t n) {
  _mm512_mask_storeu_ps(p, firstLanes(n).m, a.v);
}

HOTBED_INLINE V16 add(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }
HOTBED_INLINE V16 sub(V16 a, V16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
HOTBED_INLINE V16 mul(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
HOTBED_INLINE V16 div(V16 a, V16 b) { return {_mm512_div_ps(a.v, b.v)}; }
HOTBED_INLINE V16 sqrt(V16 a) { return {_mm512_sqrt_ps(a.v)}; }
HOTBED_INLINE V16 fma(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
HOTBED_INLINE V16 neg(V16 a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
// x > m ? x : m, so a NaN in x is passed over.
HOTBED_INLINE V16 maxKeep(V16 m, V16 x) { return {_mm512_max_ps(x.v, m.v)}; }

HOTBED_INLINE M16 less(V16 a, V16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
HOTBED_INLINE M16 equal(V16 a, V16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
HOTBED_INLINE M16 isNan(V16 a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
HOTBED_INLINE V16 select(M16 m, V16 a, V16 b) { return {_mm512_mask_blend_ps(m.m, b.v, a.v)}; }
HOTBED_INLINE unsigned laneBits(M16 m) { return m.m; }

HOTBED_INLINE float firstLane(V16 a) { return _mm512_cvtss_f32(a.v); }

// 8+8, 4+4, 2+2, 1+1.
HOTBED_INLINE float sumTree(V16 a) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
HOTBED_INLINE float maxTree(V16 a) {
  const __m256 s8 = _mm256_max_ps(_mm512_extractf32x8_ps(a.v, 1), _mm512_castps512_ps256(a.v));
  const __m128 s4 = _mm_max_ps(_mm256_extractf128_ps(s8, 1), _mm256_castps256_ps128(s8));
  const __m128 s2 = _mm_max_ps(_mm_movehl_ps(s4, s4), s4);
  return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(s2), s2));
}

// p * 2^n; `shifted` holds n as an integer in its low bits. scalef is exact, as the two factors
// are.
HOTBED_INLINE V16 scaleByPowerOfTwo(V16 p, V16 /*shifted*/, V16 n) {
  return {_mm512_scalef_ps(p.v, n.v)};
}

// x = m * 2^e, m in [sqrt(1/2), sqrt(2)), for positive normal x; anything else gives rubbish.
HOTBED_INLINE void splitExponent(V16 x, V16& m, V16& e) {
  const __m512i split = _mm512_set1_epi32(static_cast<int>(kLogSplitBits));
  const __m512i bits = _mm512_sub_epi32(_mm512_castps_si512(x.v), split);
  e.v = _mm512_cvtepi32_ps(_mm512_srai_epi32(bits, 23));
  const __m512i mantissa =
      _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(kMantissaMask)));
  m.v = _mm512_castsi512_ps(_mm512_add_epi32(mantissa, split));
}

// dst[c][r] = src[r][c] of a 16 x 16 block.
HOTBED_INLINE void transpose16(const float* src, size_t lds, float* dst, size_t ldd) {
  __m512 a[16], b[16];
#pragma GCC unroll 16
  for (size_t i = 0; i < 16; ++i) a[i] = _mm512_loadu_ps(src + i * lds);
#pragma GCC unroll 8
  for (size_t i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < 16; i += 4) {  // a[i + c]: column c of each 4 x 4 group of lanes
    a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
    a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xEE);
    a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
    a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (size_t c = 0; c < 4; ++c) {  // 128-bit groups: rows 0-3, 4-7, 8-11, 12-15
    const __m512 low = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88);
    const __m512 high = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xDD);
    const __m512 low2 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88);
    const __m512 high2 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xDD);
    _mm512_storeu_ps(dst + c * ldd, _mm512_shuffle_f32x4(low, low2, 0x88));
    _mm512_storeu_ps(dst + (8 + c) * ldd, _mm512_shuffle_f32x4(low, low2, 0xDD));
    _mm512_storeu_ps(dst + (4 + c) * ldd, _mm512_shuffle_f32x4(high, high2, 0x88));
    _mm512_storeu_ps(dst + (12 + c) * ldd, _mm512_shuffle_f32x4(high, high2, 0xDD));
  }
}

// Register tiles of the matrix kernel: rows for a given number of 16-lane columns.
constexpr size_t kBurstChains = 12;  // 2 ports x 4 cycles, with reserve
constexpr int kMaxRows1 = 14;
constexpr int kMaxRows2 = 14;  // 28 accumulators + 2 columns + 1 broadcast of 32 registers
constexpr int kMaxRows4 = 6;
constexpr int kMaxRows8 = 2;
// Widest column group for one row (8 independent chains hide the latency of the fma), for two, ...
constexpr int columnsFor(size_t rows) { return rows <= 2 ? 8 : rows <= 3 ? 4 : 2; }

}  // namespace hotbed::kernels::HOTBED_PATH
