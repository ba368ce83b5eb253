// V16: 16 fp32 lanes as an array; each lane is one scalar instruction.
#pragma once

namespace hotbed::kernels::HOTBED_PATH {

struct V16 {
  float v[16];
};
struct M16 {
  bool m[16];
};

HOTBED_INLINE uint32_t laneToBits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}
HOTBED_INLINE float laneFromBits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

#define HOTBED_LANES(expression)                              \
  V16 result;                                                 \
  for (size_t l = 0; l < 16; ++l) result.v[l] = (expression); \
  return result

#define HOTBED_MASKS(expression)                              \
  M16 result;                                                 \
  for (size_t l = 0; l < 16; ++l) result.m[l] = (expression); \
  return result

HOTBED_INLINE V16 set1(float x) { HOTBED_LANES(x); }
HOTBED_INLINE V16 zero() { return set1(0.0f); }
HOTBED_INLINE V16 load(const float* p) { HOTBED_LANES(p[l]); }
// Sixteen narrow panel words: columns 0-15 (low halves) or 16-31 (high halves).
HOTBED_INLINE V16 widenLow(const uint32_t* p) { HOTBED_LANES(laneFromBits(p[l] << 16)); }
HOTBED_INLINE V16 widenHigh(const uint32_t* p) { HOTBED_LANES(laneFromBits(p[l] & 0xFFFF0000u)); }
HOTBED_INLINE V16 widen(const uint32_t* p, int shift) {  // 16: low halves, 0: high halves
  HOTBED_LANES(laneFromBits((p[l] << shift) & 0xFFFF0000u));
}
HOTBED_INLINE void store(float* p, V16 a) {
  for (size_t l = 0; l < 16; ++l) p[l] = a.v[l];
}
HOTBED_INLINE M16 firstLanes(size_t n) { HOTBED_MASKS(l < n); }
HOTBED_INLINE V16 load(const float* p, size_t n) { HOTBED_LANES(l < n ? p[l] : 0.0f); }
HOTBED_INLINE V16 load(const float* p, size_t n, V16 fill) {
  HOTBED_LANES(l < n ? p[l] : fill.v[l]);
}
HOTBED_INLINE V16 load8(const float* p) { HOTBED_LANES(l < 8 ? p[l] : 0.0f); }
HOTBED_INLINE void store(float* p, V16 a, size_t n) {
  for (size_t l = 0; l < n; ++l) p[l] = a.v[l];
}

HOTBED_INLINE V16 add(V16 a, V16 b) { HOTBED_LANES(a.v[l] + b.v[l]); }
HOTBED_INLINE V16 sub(V16 a, V16 b) { HOTBED_LANES(a.v[l] - b.v[l]); }
HOTBED_INLINE V16 mul(V16 a, V16 b) { HOTBED_LANES(a.v[l] * b.v[l]); }
HOTBED_INLINE V16 div(V16 a, V16 b) { HOTBED_LANES(a.v[l] / b.v[l]); }
HOTBED_INLINE V16 sqrt(V16 a) { HOTBED_LANES(__builtin_sqrtf(a.v[l])); }
HOTBED_INLINE V16 fma(V16 a, V16 b, V16 c) { HOTBED_LANES(__builtin_fmaf(a.v[l], b.v[l], c.v[l])); }
HOTBED_INLINE V16 neg(V16 a) { HOTBED_LANES(-a.v[l]); }
HOTBED_INLINE V16 maxKeep(V16 m, V16 x) { HOTBED_LANES(x.v[l] > m.v[l] ? x.v[l] : m.v[l]); }

HOTBED_INLINE M16 less(V16 a, V16 b) { HOTBED_MASKS(a.v[l] < b.v[l]); }
HOTBED_INLINE M16 equal(V16 a, V16 b) { HOTBED_MASKS(a.v[l] == b.v[l]); }
HOTBED_INLINE M16 isNan(V16 a) { HOTBED_MASKS(a.v[l] != a.v[l]); }
HOTBED_INLINE V16 select(M16 m, V16 a, V16 b) { HOTBED_LANES(m.m[l] ? a.v[l] : b.v[l]); }
HOTBED_INLINE unsigned laneBits(M16 m) {
  unsigned bits = 0;
  for (unsigned l = 0; l < 16; ++l) bits |= static_cast<unsigned>(m.m[l]) << l;
  return bits;
}

HOTBED_INLINE float firstLane(V16 a) { return a.v[0]; }

HOTBED_INLINE float sumTree(V16 a) {
  for (size_t width = 8; width >= 1; width /= 2) {
    for (size_t l = 0; l < width; ++l) a.v[l] = a.v[l] + a.v[l + width];
  }
  return a.v[0];
}
HOTBED_INLINE float maxTree(V16 a) {
  for (size_t width = 8; width >= 1; width /= 2) {
    for (size_t l = 0; l < width; ++l) {
      if (a.v[l + width] > a.v[l]) a.v[l] = a.v[l + width];
    }
  }
  return a.v[0];
}

HOTBED_INLINE float scaleLane(float p, float shifted) {
  const int32_t n = static_cast<int32_t>(laneToBits(shifted) - kExpMagicBits);
  const int32_t first = n >> 1;  // two factors: n may be 128
  const uint32_t bits1 = (static_cast<uint32_t>(first) + 127u) << 23;
  const uint32_t bits2 = (static_cast<uint32_t>(n) - static_cast<uint32_t>(first) + 127u) << 23;
  return p * laneFromBits(bits1) * laneFromBits(bits2);
}
HOTBED_INLINE V16 scaleByPowerOfTwo(V16 p, V16 shifted, V16 /*n*/) {
  HOTBED_LANES(scaleLane(p.v[l], shifted.v[l]));
}

HOTBED_INLINE void splitExponent(V16 x, V16& m, V16& e) {
  for (size_t l = 0; l < 16; ++l) {
    const uint32_t bits = laneToBits(x.v[l]) - kLogSplitBits;
    e.v[l] = static_cast<float>(static_cast<int32_t>(bits) >> 23);
    m.v[l] = laneFromBits((bits & kMantissaMask) + kLogSplitBits);
  }
}

#undef HOTBED_LANES
#undef HOTBED_MASKS

// dst[c][r] = src[r][c] of a 16 x 16 block.
HOTBED_INLINE void transpose16(const float* src, size_t lds, float* dst, size_t ldd) {
  for (size_t r = 0; r < 16; ++r) {
    for (size_t c = 0; c < 16; ++c) dst[c * ldd + r] = src[r * lds + c];
  }
}

constexpr size_t kBurstChains = 1;
constexpr int kMaxRows1 = 1;  // 16 chains already hide the latency of a scalar fma
constexpr int kMaxRows2 = 0;
constexpr int kMaxRows4 = 0;
constexpr int kMaxRows8 = 0;
constexpr int columnsFor(size_t) { return 1; }

}  // namespace hotbed::kernels::HOTBED_PATH
