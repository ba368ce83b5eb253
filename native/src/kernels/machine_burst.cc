#include "kernels/machine_burst.h"

#include <immintrin.h>

namespace hotbed::kernels {

namespace {

constexpr size_t kChains = 12;  // latency 4..6, two units: enough to keep both busy
// How far ahead a line is asked for: about the latency of memory at 30 GB/s per core.
constexpr size_t kAheadFloats = 1024;

}  // namespace

bool hasBf16Dot() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
}

__attribute__((target("avx512f,avx512bf16"))) double bf16DotBurst(size_t repeats) {
  __m512 chain[kChains];
  for (size_t i = 0; i < kChains; ++i) chain[i] = _mm512_set1_ps(static_cast<float>(i));
  // 0x3f80 is 1; the compiler must not know, or it would fold the chains.
  volatile int one = 0x3f803f80;
  const __m512bh a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(one));
  for (size_t r = 0; r < repeats; ++r) {
#pragma GCC unroll 12
    for (size_t i = 0; i < kChains; ++i) chain[i] = _mm512_dpbf16_ps(chain[i], a, a);
  }
  alignas(64) float lanes[16];
  float sum = 0;
  for (size_t i = 0; i < kChains; ++i) {
    _mm512_store_ps(lanes, chain[i]);
    sum += lanes[0];
  }
  // Always above 0, which the compiler cannot know: the chains stay.
  return sum > 0 ? 4.0 * 16.0 * static_cast<double>(kChains * repeats) : 0.0;
}

__attribute__((target("avx2"))) float readBurst(const float* x, size_t count) {
  __m256 sum[8];
  for (__m256& s : sum) s = _mm256_setzero_ps();
  for (size_t i = 0; i < count; i += 64) {
    for (size_t line = 0; line < 4; ++line) {
      _mm_prefetch(reinterpret_cast<const char*>(x + i + kAheadFloats + 16 * line), _MM_HINT_T0);
    }
#pragma GCC unroll 8
    for (size_t l = 0; l < 8; ++l) sum[l] = _mm256_add_ps(sum[l], _mm256_load_ps(x + i + 8 * l));
  }
  alignas(32) float lanes[8];
  float total = 0;
  for (const __m256& s : sum) {
    _mm256_store_ps(lanes, s);
    for (float lane : lanes) total += lane;
  }
  return total;
}

}  // namespace hotbed::kernels
