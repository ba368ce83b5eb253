// V16: 16 fp32 lanes in two ymm registers, lanes 0-7 and 8-15.
#pragma once

#include <immintrin.h>

namespace hotbed::kernels::HOTBED_PATH {

struct V16 {
  __m256 lo, hi;
};
struct M16 {
  __m256 lo, hi;
};

HOTBED_INLINE V16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
HOTBED_INLINE V16 set1(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
HOTBED_INLINE V16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
// Sixteen narrow panel words: columns 0-15 (low halves) or 16-31 (high halves).
HOTBED_INLINE __m256i loadWords(const uint32_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
HOTBED_INLINE V16 widenLow(const uint32_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(loadWords(p), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(loadWords(p + 8), 16))};
}
HOTBED_INLINE V16 widenHigh(const uint32_t* p) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(loadWords(p), mask)),
          _mm256_castsi256_ps(_mm256_and_si256(loadWords(p + 8), mask))};
}
HOTBED_INLINE V16 widen(const uint32_t* p, int shift) {  // 16: low halves, 0: high halves
  const __m128i count = _mm_cvtsi32_si128(shift);
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(_mm256_sll_epi32(loadWords(p), count), mask)),
          _mm256_castsi256_ps(_mm256_and_si256(_mm256_sll_epi32(loadWords(p + 8), count), mask))};
}
HOTBED_INLINE void store(float* p, V16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
HOTBED_INLINE M16 firstLanes(size_t n) {
  const __m256i count = _mm256_set1_epi32(static_cast<int>(n));
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(count, low)),
          _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, high))};
}
HOTBED_INLINE V16 load(const float* p, size_t n) {
  const M16 m = firstLanes(n);
  return {_mm256_maskload_ps(p, _mm256_castps_si256(m.lo)),
          _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.hi))};
}
HOTBED_INLINE V16 select(M16 m, V16 a, V16 b) {
  return {_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}
HOTBED_INLINE V16 load(const float* p, size_t n, V16 fill) {
  return select(firstLanes(n), load(p, n), fill);
}
HOTBED_INLINE V16 load8(const float* p) { return {_mm256_loadu_ps(p), _mm256_setzero_ps()}; }
HOTBED_INLINE void store(float* p, V16 a, size_t n) {
  const M16 m = firstLanes(n);
  _mm256_maskstore_ps(p, _mm256_castps_si256(m.lo), a.lo);
  _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.hi), a.hi);
}

HOTBED_INLINE V16 add(V16 a, V16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
HOTBED_INLINE V16 sub(V16 a, V16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
HOTBED_INLINE V16 mul(V16 a, V16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
HOTBED_INLINE V16 div(V16 a, V16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
HOTBED_INLINE V16 sqrt(V16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
HOTBED_INLINE V16 fma(V16 a, V16 b, V16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
HOTBED_INLINE V16 neg(V16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}
HOTBED_INLINE V16 maxKeep(V16 m, V16 x) {
  return {_mm256_max_ps(x.lo, m.lo), _mm256_max_ps(x.hi, m.hi)};
}

HOTBED_INLINE M16 less(V16 a, V16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
HOTBED_INLINE M16 equal(V16 a, V16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
}
HOTBED_INLINE M16 isNan(V16 a) {
  return {_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)};
}
HOTBED_INLINE unsigned laneBits(M16 m) {
  return static_cast<unsigned>(_mm256_movemask_ps(m.lo)) |
         static_cast<unsigned>(_mm256_movemask_ps(m.hi)) << 8;
}

HOTBED_INLINE float firstLane(V16 a) { return _mm256_cvtss_f32(a.lo); }

HOTBED_INLINE float sumTree(V16 a) {
  const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
HOTBED_INLINE float maxTree(V16 a) {
  const __m256 s8 = _mm256_max_ps(a.hi, a.lo);
  const __m128 s4 = _mm_max_ps(_mm256_extractf128_ps(s8, 1), _mm256_castps256_ps128(s8));
  const __m128 s2 = _mm_max_ps(_mm_movehl_ps(s4, s4), s4);
  return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(s2), s2));
}

HOTBED_INLINE __m256 scaleHalf(__m256 p, __m256 shifted) {
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted),
                                     _mm256_set1_epi32(static_cast<int>(kExpMagicBits)));
  const __m256i first = _mm256_srai_epi32(n, 1);  // two factors: n may be 128
  const __m256i second = _mm256_sub_epi32(n, first);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 f1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23));
  const __m256 f2 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(p, f1), f2);
}
HOTBED_INLINE V16 scaleByPowerOfTwo(V16 p, V16 shifted, V16 /*n*/) {
  return {scaleHalf(p.lo, shifted.lo), scaleHalf(p.hi, shifted.hi)};
}

HOTBED_INLINE void splitHalf(__m256 x, __m256& m, __m256& e) {
  const __m256i split = _mm256_set1_epi32(static_cast<int>(kLogSplitBits));
  const __m256i bits = _mm256_sub_epi32(_mm256_castps_si256(x), split);
  e = _mm256_cvtepi32_ps(_mm256_srai_epi32(bits, 23));
  const __m256i mantissa =
      _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(kMantissaMask)));
  m = _mm256_castsi256_ps(_mm256_add_epi32(mantissa, split));
}
HOTBED_INLINE void splitExponent(V16 x, V16& m, V16& e) {
  splitHalf(x.lo, m.lo, e.lo);
  splitHalf(x.hi, m.hi, e.hi);
}

HOTBED_INLINE void transpose8(const float* src, size_t lds, float* dst, size_t ldd) {
  __m256 a[8], b[8];
#pragma GCC unroll 8
  for (size_t i = 0; i < 8; ++i) a[i] = _mm256_loadu_ps(src + i * lds);
#pragma GCC unroll 4
  for (size_t i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
#pragma GCC unroll 2
  for (size_t i = 0; i < 8; i += 4) {
    a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
    a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xEE);
    a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
    a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (size_t c = 0; c < 4; ++c) {
    _mm256_storeu_ps(dst + c * ldd, _mm256_permute2f128_ps(a[c], a[4 + c], 0x20));
    _mm256_storeu_ps(dst + (4 + c) * ldd, _mm256_permute2f128_ps(a[c], a[4 + c], 0x31));
  }
}
// dst[c][r] = src[r][c] of a 16 x 16 block.
HOTBED_INLINE void transpose16(const float* src, size_t lds, float* dst, size_t ldd) {
  transpose8(src, lds, dst, ldd);
  transpose8(src + 8, lds, dst + 8 * ldd, ldd);
  transpose8(src + 8 * lds, lds, dst + 8, ldd);
  transpose8(src + 8 * lds + 8, lds, dst + 8 * ldd + 8, ldd);
}

constexpr size_t kBurstChains = 6;  // of two registers
constexpr int kMaxRows1 =
    6;  // 12 accumulators + 2 halves of a column + 1 broadcast of 16 registers
constexpr int kMaxRows2 = 2;
constexpr int kMaxRows4 = 1;
constexpr int kMaxRows8 = 0;
constexpr int columnsFor(size_t rows) { return rows <= 1 ? 4 : rows <= 2 ? 2 : 1; }

}  // namespace hotbed::kernels::HOTBED_PATH
