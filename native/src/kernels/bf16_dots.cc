#include "kernels/bf16_dots.h"

#include <immintrin.h>

namespace hotbed::kernels {

namespace {

constexpr unsigned kFlushAndZero = 0x8040;

// SplitMix64 (Steele, Lea, Flood).
uint64_t nextRandom(uint64_t& state) {
  uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Sixteen lanes of inputs.
struct Inputs {
  alignas(64) uint32_t x[16];
  alignas(64) uint32_t w[16];
  alignas(64) uint32_t chain[16];
};

// Exponents [lowest, lowest + span) of the factors and of the chain, and the chain's mantissa bits;
// span 0: any bits.
struct Kind {
  uint32_t factor, factorSpan;
  uint32_t chain, chainSpan;
  uint32_t mantissa;
};

constexpr Kind kKinds[] = {
    {0, 0, 0, 0, 0},               // any: NaN, infinities, denormals, overflow
    {120, 16, 110, 36, 0x7FFFFF},  // ordinary: every sum rounds
    {58, 12, 0, 12, 0x7FFFFF},     // products and chains about the smallest normal number
    {184, 12, 248, 7, 0x7FFFFF},   // about the largest
    // The smallest normal numbers and products far below them: whether a sum counts as denormal
    // before or after it is rounded.
    {20, 50, 1, 1, 0x3},
};

uint32_t bf16Bits(uint64_t random, uint32_t exponent, uint32_t span) {
  const uint32_t bits = static_cast<uint32_t>(random) & 0xFFFFu;
  if (span == 0) return bits;
  return (bits & 0x807Fu) | (exponent + static_cast<uint32_t>(random >> 32) % span) << 7;
}

void fill(Inputs& inputs, const Kind& kind, uint64_t& state) {
  for (size_t l = 0; l < 16; ++l) {
    const auto factor = [&] { return bf16Bits(nextRandom(state), kind.factor, kind.factorSpan); };
    const uint32_t even = factor(), odd = factor(), evenW = factor(), oddW = factor();
    inputs.x[l] = even | odd << 16;
    inputs.w[l] = evenW | oddW << 16;
    const uint64_t random = nextRandom(state);
    const uint32_t bits = static_cast<uint32_t>(random);
    inputs.chain[l] = bits;
    if (kind.chainSpan != 0) {
      const uint32_t exponent = kind.chain + static_cast<uint32_t>(random >> 32) % kind.chainSpan;
      inputs.chain[l] = (bits & (0x80000000u | kind.mantissa)) | exponent << 23;
    }
  }
}

// Kept out of line: the float environment that the caller sets must not be moved across.
__attribute__((noinline, target("avx512f,avx512bf16"))) void byInstruction(const Inputs& inputs,
                                                                           float* out) {
  const __m512bh x = reinterpret_cast<__m512bh>(_mm512_load_si512(inputs.x));
  const __m512bh w = reinterpret_cast<__m512bh>(_mm512_load_si512(inputs.w));
  _mm512_store_ps(out, _mm512_dpbf16_ps(_mm512_load_ps(inputs.chain), x, w));
}

__attribute__((noinline, target("avx2,fma"))) void byMultiplyAdds(const Inputs& inputs,
                                                                  float* out) {
  const auto fromBits = [](uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
  };
  for (size_t l = 0; l < 16; ++l) {
    const uint32_t x = inputs.x[l];
    const uint32_t w = inputs.w[l];
    const float odd = __builtin_fmaf(fromBits(x & 0xFFFF0000u), fromBits(w & 0xFFFF0000u),
                                     fromBits(inputs.chain[l]));
    out[l] = __builtin_fmaf(fromBits(x << 16), fromBits(w << 16), odd);
  }
}

bool same(float a, float b) {
  return __builtin_memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

}  // namespace

size_t bf16DotsThatDiffer(size_t samples, uint64_t seed) {
  constexpr size_t kKindCount = sizeof kKinds / sizeof *kKinds;
  size_t differing = 0;
  Inputs inputs;
  alignas(64) float instruction[16];
  alignas(64) float multiplyAdds[16];
  const unsigned saved = _mm_getcsr();
  for (size_t i = 0; 16 * i < samples; ++i) {
    fill(inputs, kKinds[i % kKindCount], seed);
    byInstruction(inputs, instruction);
    _mm_setcsr(saved | kFlushAndZero);
    byMultiplyAdds(inputs, multiplyAdds);
    _mm_setcsr(saved);
    for (size_t l = 0; l < 16; ++l) differing += !same(instruction[l], multiplyAdds[l]);
  }
  return differing;
}

}  // namespace hotbed::kernels
