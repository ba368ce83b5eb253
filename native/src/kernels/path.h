// Included first by every file that is built once per path. HOTBED_PATH (scalar, avx2, avx512,
// avx512bf16) names the namespace, HOTBED_PATH_<name> selects the lanes. Everything here has a name
// of its own in each path, so that the linker can never merge code of two instruction sets.
#pragma once

#ifndef HOTBED_PATH
#error "compile with -DHOTBED_PATH=<path> -DHOTBED_PATH_<path>"
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/constants.h"

#define HOTBED_INLINE static inline __attribute__((always_inline))

#if defined(HOTBED_PATH_avx512) || defined(HOTBED_PATH_avx512bf16)
#include "kernels/lanes_avx512.h"
#elif defined(HOTBED_PATH_avx2)
#include "kernels/lanes_avx2.h"
#else
#include "kernels/lanes_scalar.h"
#endif

namespace hotbed::kernels::HOTBED_PATH {

// In place of a number of lanes: all sixteen, without masks.
struct AllLanes {};
HOTBED_INLINE V16 load(const float* p, AllLanes) { return load(p); }
HOTBED_INLINE void store(float* p, V16 a, AllLanes) { store(p, a); }

constexpr float kInfinity = __builtin_inff();

HOTBED_INLINE float bitsToFloat(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

HOTBED_INLINE size_t minSize(size_t a, size_t b) { return a < b ? a : b; }
HOTBED_INLINE size_t maxSize(size_t a, size_t b) { return a < b ? b : a; }
HOTBED_INLINE size_t divideUp(size_t a, size_t b) { return (a + b - 1) / b; }

// exp of 16 lanes (N4); constants.h explains the method.
HOTBED_INLINE V16 exp16(V16 x) {
  const V16 magic = set1(kExpMagic);
  const V16 shifted = fma(x, set1(kLog2e), magic);
  const V16 n = sub(shifted, magic);
  V16 r = fma(n, set1(-kLn2High), x);
  r = fma(n, set1(-kLn2Low), r);
  V16 p = fma(set1(kExpC7), r, set1(kExpC6));
  p = fma(p, r, set1(kExpC5));
  p = fma(p, r, set1(kExpC4));
  p = fma(p, r, set1(kExpC3));
  p = fma(p, r, set1(kExpC2));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  V16 y = scaleByPowerOfTwo(p, shifted, n);
  y = select(less(x, set1(kExpLowest)), zero(), y);
  return select(less(set1(kExpHighest), x), set1(kInfinity), y);
}

// log of 16 lanes (N4).
HOTBED_INLINE V16 log16(V16 x) {
  const M16 small = less(x, set1(kSmallestNormal));
  const V16 scaled = select(small, mul(x, set1(kLogDenormalScale)), x);
  V16 m, e;
  splitExponent(scaled, m, e);
  e = select(small, sub(e, set1(23.0f)), e);
  const V16 f = sub(m, set1(1.0f));
  V16 q = fma(set1(kLogC8), f, set1(kLogC7));
  q = fma(q, f, set1(kLogC6));
  q = fma(q, f, set1(kLogC5));
  q = fma(q, f, set1(kLogC4));
  q = fma(q, f, set1(kLogC3));
  q = fma(q, f, set1(kLogC2));
  q = fma(q, f, set1(kLogC1));
  q = fma(q, f, set1(kLogC0));
  const V16 square = mul(f, f);
  V16 y = mul(mul(q, f), square);
  y = fma(e, set1(kLn2Low), y);
  y = fma(set1(-0.5f), square, y);
  y = fma(e, set1(kLn2High), add(f, y));
  y = select(equal(x, zero()), set1(-kInfinity), y);
  y = select(less(x, zero()), set1(bitsToFloat(0x7FC00000u)), y);
  y = select(equal(x, set1(kInfinity)), x, y);
  return select(isNan(x), add(x, x), y);
}

// dst[c][r] = src[r][c] of a block of any size.
HOTBED_INLINE void transposeBlock(const float* src, size_t lds, size_t rows, size_t columns,
                                  float* dst, size_t ldd) {
  const size_t wholeRows = rows / 16 * 16;
  const size_t wholeColumns = columns / 16 * 16;
  for (size_t r = 0; r < wholeRows; r += 16) {
    for (size_t c = 0; c < wholeColumns; c += 16)
      transpose16(src + r * lds + c, lds, dst + c * ldd + r, ldd);
    for (size_t c = wholeColumns; c < columns; ++c) {
      for (size_t i = r; i < r + 16; ++i) dst[c * ldd + i] = src[i * lds + c];
    }
  }
  for (size_t r = wholeRows; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) dst[c * ldd + r] = src[r * lds + c];
  }
}

HOTBED_INLINE float exp1(float x) { return firstLane(exp16(set1(x))); }
HOTBED_INLINE float log1(float x) { return firstLane(log16(set1(x))); }

}  // namespace hotbed::kernels::HOTBED_PATH
