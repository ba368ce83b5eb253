#include <cstring>
#include <limits>

#include "kernels/constants.h"
#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

uint32_t bitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

float floatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

namespace {

float powerOfTwo(int n) { return floatOf(static_cast<uint32_t>(n + 127) << 23); }

float reduceSum(float lane[16]) {
  for (int width = 8; width >= 1; width /= 2) {
    for (int l = 0; l < width; ++l) lane[l] = lane[l] + lane[l + width];
  }
  return lane[0];
}

}  // namespace

float fmaf1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

float exp1(float x) {
  if (x != x) return x + x;
  if (x < kExpLowest) return 0.0f;
  if (x > kExpHighest) return std::numeric_limits<float>::infinity();
  const float shifted = fmaf1(x, kLog2e, kExpMagic);
  const float n = shifted - kExpMagic;
  float r = fmaf1(n, -kLn2High, x);
  r = fmaf1(n, -kLn2Low, r);
  const float coefficients[] = {kExpC6, kExpC5, kExpC4, kExpC3, kExpC2, 1.0f, 1.0f};
  float p = kExpC7;
  for (float c : coefficients) p = fmaf1(p, r, c);
  const int exponent = static_cast<int>(n);
  if (exponent > 127) return p * powerOfTwo(127) * powerOfTwo(exponent - 127);
  return p * powerOfTwo(exponent);
}

float log1(float x) {
  if (x != x) return x + x;
  if (x < 0) return std::numeric_limits<float>::quiet_NaN();
  if (x == 0) return -std::numeric_limits<float>::infinity();
  if (x == std::numeric_limits<float>::infinity()) return x;
  int exponent = 0;
  if (x < kSmallestNormal) {
    x = x * kLogDenormalScale;
    exponent = -23;
  }
  float m = x;  // into [sqrt(1/2), sqrt(2)); powers of two are exact
  while (bitsOf(m) >= kLogSplitBits + 0x00800000u) {
    m = m * 0.5f;
    ++exponent;
  }
  while (bitsOf(m) < kLogSplitBits) {
    m = m * 2.0f;
    --exponent;
  }
  const float f = m - 1.0f;
  const float e = static_cast<float>(exponent);
  const float coefficients[] = {kLogC7, kLogC6, kLogC5, kLogC4, kLogC3, kLogC2, kLogC1, kLogC0};
  float q = kLogC8;
  for (float c : coefficients) q = fmaf1(q, f, c);
  const float square = f * f;
  float y = (q * f) * square;
  y = fmaf1(e, kLn2Low, y);
  y = fmaf1(-0.5f, square, y);
  return fmaf1(e, kLn2High, f + y);
}

float treeSum(const float* x, size_t n) {
  float lane[16] = {};
  for (size_t j = 0; j < n; ++j) lane[j % 16] = lane[j % 16] + x[j];
  return reduceSum(lane);
}

float treeDot(const float* x, const float* y, size_t n) {
  float lane[16] = {};
  for (size_t j = 0; j < n; ++j) lane[j % 16] = fmaf1(x[j], y[j], lane[j % 16]);
  return reduceSum(lane);
}

float treeMax(const float* x, size_t n) {
  float lane[16];
  for (float& l : lane) l = -std::numeric_limits<float>::infinity();
  for (size_t j = 0; j < n; ++j) {
    if (x[j] > lane[j % 16]) lane[j % 16] = x[j];  // a NaN is skipped here and shows in the sum
  }
  for (int width = 8; width >= 1; width /= 2) {
    for (int l = 0; l < width; ++l) {
      if (lane[l + width] > lane[l]) lane[l] = lane[l + width];
    }
  }
  return lane[0];
}

Partial softmaxPartial(const float* x, size_t n) {
  const float max = treeMax(x, n);
  float lane[16] = {};
  for (size_t j = 0; j < n; ++j) lane[j % 16] = lane[j % 16] + exp1(x[j] - max);
  return {max, reduceSum(lane)};
}

MergeFactors mergePartial(Partial& carried, const Partial& block) {
  const float max = block.max > carried.max ? block.max : carried.max;
  const MergeFactors factors{exp1(carried.max - max), exp1(block.max - max)};
  carried.sum = fmaf1(carried.sum, factors.a, block.sum * factors.b);
  carried.max = max;
  return factors;
}

void philox(uint64_t seed, const uint32_t counter[4], uint32_t out[4]) {
  uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kPhiloxM0) * c[0];
    const uint64_t product1 = static_cast<uint64_t>(kPhiloxM1) * c[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(product0)};
    std::memcpy(c, next, sizeof c);
    key0 += kPhiloxW0;
    key1 += kPhiloxW1;
  }
  std::memcpy(out, c, sizeof c);
}

float uniformOf(uint32_t word) { return static_cast<float>(2 * (word >> 9) + 1) * kTwoToMinus24; }

float uniform(uint64_t seed, const uint32_t counter[4], unsigned word) {
  uint32_t out[4];
  philox(seed, counter, out);
  return uniformOf(out[word]);
}

void expArray(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = exp1(x[i]);
}

void logArray(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = log1(x[i]);
}

double fmaBurst(size_t repeats) {
  float x = 0.5f;
  for (size_t r = 0; r < repeats; ++r) x = fmaf1(x, 0.999f, 0.001f);
  return x > 0 ? 2.0 * static_cast<double>(repeats) : 0.0;
}

}  // namespace hotbed::kernels::reference
