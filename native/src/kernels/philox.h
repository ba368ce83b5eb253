// Philox 4x32-10 (N9), one counter or sixteen consecutive ones.
#pragma once

#include "kernels/path.h"

namespace hotbed::kernels::HOTBED_PATH {

// Replaces the counter by its four random words.
HOTBED_INLINE void philox1(uint64_t seed, uint32_t c[4]) {
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kPhiloxM0) * c[0];
    const uint64_t p1 = static_cast<uint64_t>(kPhiloxM1) * c[2];
    c[0] = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key0;
    c[2] = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key1;
    c[1] = static_cast<uint32_t>(p1);
    c[3] = static_cast<uint32_t>(p0);
    key0 += kPhiloxW0;
    key1 += kPhiloxW1;
  }
}

// words[4*i + w] of counters first, first + 1, ..., first + 15 in the first place. Integer work in
// plain loops, which the compiler turns into vectors of the path.
HOTBED_INLINE void philox16(uint64_t seed, uint32_t first, uint32_t c1, uint32_t c2, uint32_t c3,
                            uint32_t words[64]) {
  uint32_t x0[16], x1[16], x2[16], x3[16];
  for (uint32_t i = 0; i < 16; ++i) {
    x0[i] = first + i;
    x1[i] = c1;
    x2[i] = c2;
    x3[i] = c3;
  }
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 16; ++i) {
      const uint64_t p0 = static_cast<uint64_t>(kPhiloxM0) * x0[i];
      const uint64_t p1 = static_cast<uint64_t>(kPhiloxM1) * x2[i];
      x0[i] = static_cast<uint32_t>(p1 >> 32) ^ x1[i] ^ key0;
      x2[i] = static_cast<uint32_t>(p0 >> 32) ^ x3[i] ^ key1;
      x1[i] = static_cast<uint32_t>(p1);
      x3[i] = static_cast<uint32_t>(p0);
    }
    key0 += kPhiloxW0;
    key1 += kPhiloxW1;
  }
  for (int i = 0; i < 16; ++i) {
    words[4 * i] = x0[i];
    words[4 * i + 1] = x1[i];
    words[4 * i + 2] = x2[i];
    words[4 * i + 3] = x3[i];
  }
}

// (2*(w >> 9) + 1) * 2^-24: 24 bits, exact, never 0 or 1.
HOTBED_INLINE float uniformOf(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(2 * (word >> 9) + 1)) * kTwoToMinus24;
}

}  // namespace hotbed::kernels::HOTBED_PATH
