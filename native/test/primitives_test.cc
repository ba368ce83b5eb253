#include <cstdlib>

#include "kernel_support.h"

using namespace hotbed;
using namespace hotbed::test;

namespace {

// Distance in units in the last place of the exact value's float neighbourhood.
double ulpError(float actual, long double exact) {
  const float rounded = static_cast<float>(exact);
  int exponent;
  std::frexp(rounded, &exponent);
  const long double ulp = std::ldexp(1.0L, exponent - 24);
  return static_cast<double>(std::fabs(static_cast<long double>(actual) - exact) / ulp);
}

// FNV-1a over the bits, NaN counted as one value.
uint64_t digest(const Floats& values, uint64_t seed) {
  uint64_t hash = seed;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = std::isnan(values[i]) ? 0x7FC00000u : bitsOf(values[i]);
    hash = (hash ^ bits) * 0x100000001B3u;
  }
  return hash;
}

// Every `stride`-th of all 2^32 inputs.
template <class Function>
uint64_t digestOfRange(const Function& function, uint32_t stride) {
  constexpr size_t kChunk = 1 << 12;
  Floats x(kChunk), y(kChunk);
  uint64_t hash = 0xCBF29CE484222325u;
  uint64_t bits = 0;
  while (bits < (uint64_t{1} << 32)) {
    for (size_t i = 0; i < kChunk; ++i, bits += stride)
      x[i] = fromBits(static_cast<uint32_t>(bits));
    function(x.data(), y.data(), kChunk);
    hash = digest(y, hash);
  }
  return hash;
}

// A prime step reaches every exponent: 4.3 million inputs. HOTBED_FULL_RANGE=1 takes all 2^32.
const bool kFullRange = std::getenv("HOTBED_FULL_RANGE") != nullptr;
const uint32_t kStride = kFullRange ? 1 : 997;

}  // namespace

TEST(exp_and_log_give_one_digest_on_every_path) {
  const KernelTable& reference = kernels::kernels(Path::reference);
  const uint64_t exponential = digestOfRange(reference.expArray, kStride);
  const uint64_t logarithm = digestOfRange(reference.logArray, kStride);
  for (Path path : fastPaths()) {
    const KernelTable& table = kernels::kernels(path);
    CHECK_EQ(digestOfRange(table.expArray, kStride), exponential);
    CHECK_EQ(digestOfRange(table.logArray, kStride), logarithm);
  }
  // Golden: the numerics id f32-1 promises these functions for good.
  CHECK_EQ(exponential, kFullRange ? 7322009727720647684u : 13481087613990030522u);
  CHECK_EQ(logarithm, kFullRange ? 10551024113832828669u : 16339403968034319797u);
}

TEST(exp_is_accurate) {
  // Polynomial and reduction stay below 1 ulp (Cephes states 1.7e-7 relative, 1.4 ulp at most).
  const KernelTable& table = kernels::kernels(Path::scalar);
  double worst = 0;
  for (float x = -87.3f; x < 88.7f; x += 0.00071f) {
    float y;
    table.expArray(&x, &y, 1);
    worst = std::max(worst, ulpError(y, std::exp(static_cast<long double>(x))));
  }
  CHECK_MESSAGE(worst < 1.0, "worst error " << worst << " ulp");
}

TEST(exp_has_exact_edges) {
  for (Path path : fastPaths()) {
    const KernelTable& table = kernels::kernels(path);
    const float x[] = {0.0f,   -0.0f,  -87.34f, -INFINITY, INFINITY,    kPoison,
                       88.73f, 1e-45f, -1e-45f, 88.72283f, -87.3299942f};
    float y[11];
    table.expArray(x, y, 11);
    CHECK_EQ(y[0], 1.0f);
    CHECK_EQ(y[1], 1.0f);
    CHECK_EQ(bitsOf(y[2]), 0u);
    CHECK_EQ(bitsOf(y[3]), 0u);
    CHECK_EQ(y[4], INFINITY);
    CHECK(std::isnan(y[5]));
    CHECK_EQ(y[6], INFINITY);
    CHECK_EQ(y[7], 1.0f);
    CHECK_EQ(y[8], 1.0f);
    CHECK(std::isfinite(y[9]) && y[9] > 3.40e38f);
    CHECK(std::isnormal(y[10]));
  }
}

TEST(log_is_accurate) {
  const KernelTable& table = kernels::kernels(Path::scalar);
  double worst = 0;
  for (uint32_t bits = 1; bits < 0x7F800000u; bits += 104729) {
    const float x = fromBits(bits);
    float y;
    table.logArray(&x, &y, 1);
    if (x != 1.0f) worst = std::max(worst, ulpError(y, std::log(static_cast<long double>(x))));
  }
  for (uint32_t bits = 0x3F700000u; bits < 0x3F900000u; bits += 11) {  // beside 1
    const float x = fromBits(bits);
    float y;
    table.logArray(&x, &y, 1);
    if (x != 1.0f) worst = std::max(worst, ulpError(y, std::log(static_cast<long double>(x))));
  }
  CHECK_MESSAGE(worst < 1.0, "worst error " << worst << " ulp");
}

TEST(log_has_exact_edges) {
  for (Path path : fastPaths()) {
    const KernelTable& table = kernels::kernels(path);
    const float x[] = {1.0f, 0.0f, -0.0f, -1.0f, INFINITY, kPoison, 1.0f - 0x1p-24f, 1e-45f};
    float y[8];
    table.logArray(x, y, 8);
    CHECK_EQ(bitsOf(y[0]), 0u);
    CHECK_EQ(y[1], -INFINITY);
    CHECK_EQ(y[2], -INFINITY);
    CHECK(std::isnan(y[3]));
    CHECK_EQ(y[4], INFINITY);
    CHECK(std::isnan(y[5]));
    CHECK_EQ(y[6], -0x1p-24f);
    CHECK(std::fabs(y[7] + 103.278929f) < 1e-4f);
  }
}

TEST(multiply_and_add_are_not_contracted) {
  // (1 + e)(1 - e) rounds to 1; fused with a following add it would not. Two places where a product
  // is an addend of its own: N8's b2*v, and RoPE's x_i*s.
  volatile float e = 0x1p-13f;
  const float a = 1.0f + e, b = 1.0f - e;
  for (Path path : {Path::reference, Path::scalar, Path::avx2, Path::avx512, Path::avx512bf16}) {
    if (!kernels::supports(path)) continue;
    const KernelTable& table = kernels::kernels(path);
    kernels::AdamWScalars s;
    s.beta2 = a;
    s.oneMinusBeta2 = -1.0f;
    float theta = 1, m = 0, v = b, g = 1;  // v' = fma(-1*g, g, round(a*b)) = 0, or -e^2
    const kernels::AdamWTensor tensor{&theta, &m, &v, &g, 1};
    table.adamW(poolOf(1), &tensor, 1, s, 1.0f);
    CHECK_EQ(v, 0.0f);
    // rope's second half: fma(x_j, c, x_i*s) with x_i*s rounded to 1 and x_j*c = -1: exactly 0.
    float x[2] = {a, -1.0f};
    const float cosine = 1.0f, sine = b;
    const int32_t position = 0;
    kernels::RopeArgs rope;
    rope.x = x;
    rope.ldx = 2;
    rope.rows = 1;
    rope.heads = 1;
    rope.headDim = 2;
    rope.positions = &position;
    rope.cos = &cosine;
    rope.sin = &sine;
    table.rope(poolOf(1), rope);
    CHECK_EQ(x[1], 0.0f);
  }
}

TEST(philox_matches_the_published_vectors) {
  // Random123 kat_vectors, philox 4x32 10.
  struct Vector {
    uint64_t seed;
    uint32_t counter[4];
    uint32_t words[4];
  };
  const Vector vectors[] = {
      {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {0xffffffffffffffffu,
       {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x299f31d0a4093822u,
       {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (Path path : {Path::reference, Path::scalar, Path::avx2, Path::avx512, Path::avx512bf16}) {
    if (!kernels::supports(path)) continue;
    for (const Vector& vector : vectors) {
      for (unsigned w = 0; w < 4; ++w) {
        const float expected = static_cast<float>(2 * (vector.words[w] >> 9) + 1) * 0x1p-24f;
        CHECK_EQ(kernels::kernels(path).uniform(vector.seed, vector.counter, w), expected);
      }
    }
  }
}
