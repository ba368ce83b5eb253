#include "kernels/path.h"
//
#include "kernels/path_table.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

double power(double base, uint64_t exponent) {
  double result = 1.0;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result = result * base;
    base = base * base;
  }
  return result;
}

double sumOfSquares(const float* g, size_t n) {
  double lane[16] = {};
  size_t j = 0;
  for (; j + 16 <= n; j += 16) {
    for (size_t l = 0; l < 16; ++l) {
      const double x = g[j + l];
      lane[l] = __builtin_fma(x, x, lane[l]);
    }
  }
  for (size_t l = 0; j + l < n; ++l) {
    const double x = g[j + l];
    lane[l] = __builtin_fma(x, x, lane[l]);
  }
  for (size_t width = 8; width >= 1; width /= 2) {
    for (size_t l = 0; l < width; ++l) lane[l] = lane[l] + lane[l + width];
  }
  return lane[0];
}

}  // namespace

void sumSquares(ThreadPool& pool, const GradientTensor* tensors, size_t count, double* out) {
  pool.forEach(count, [=](size_t t, size_t) { out[t] = sumOfSquares(tensors[t].g, tensors[t].n); });
}

AdamWScalars adamWScalars(const AdamWHyper& hyper, uint64_t step) {
  FloatEnvironment environment;
  const double bc1 = 1.0 - power(hyper.beta1, step);
  const double bc2 = 1.0 - power(hyper.beta2, step);
  AdamWScalars scalars;
  scalars.oneMinusBeta1 = static_cast<float>(1.0 - hyper.beta1);
  scalars.beta2 = static_cast<float>(hyper.beta2);
  scalars.oneMinusBeta2 = static_cast<float>(1.0 - hyper.beta2);
  scalars.negativeStepSize = static_cast<float>(-(hyper.learningRate / bc1));
  scalars.sqrtBc2 = static_cast<float>(__builtin_sqrt(bc2));
  scalars.eps = static_cast<float>(hyper.eps);
  scalars.decay = static_cast<float>(1.0 - hyper.learningRate * hyper.weightDecay);
  scalars.hasDecay = hyper.weightDecay != 0.0;
  return scalars;
}

float clipFactor(double norm, double clip) {
  if (!(clip > 0.0)) return 1.0f;
  FloatEnvironment environment;
  const double factor = clip / (norm + 1e-6);
  return factor < 1.0 ? static_cast<float>(factor) : 1.0f;
}

void adamW(ThreadPool& pool, const AdamWTensor* tensors, size_t count, const AdamWScalars& s,
           float factor) {
  constexpr size_t kChunk = 16384;  // elements of a task: four streams of 64 KiB
  size_t chunks = 0;
  for (size_t t = 0; t < count; ++t) chunks += divideUp(tensors[t].n, kChunk);
  pool.forEach(chunks, [&](size_t task, size_t) {
    size_t t = 0;
    for (;; ++t) {
      const size_t own = divideUp(tensors[t].n, kChunk);
      if (task < own) break;
      task -= own;
    }
    const AdamWTensor& tensor = tensors[t];
    const size_t end = minSize((task + 1) * kChunk, tensor.n);
    const bool clips = factor < 1.0f;
    const auto update = [&](size_t j, auto lanes) {
      V16 g = load(tensor.g + j, lanes);
      if (clips) g = mul(g, set1(factor));
      V16 theta = load(tensor.theta + j, lanes);
      if (s.hasDecay) theta = mul(theta, set1(s.decay));
      V16 m = load(tensor.m + j, lanes);
      m = fma(set1(s.oneMinusBeta1), sub(g, m), m);
      const V16 v =
          fma(mul(set1(s.oneMinusBeta2), g), g, mul(set1(s.beta2), load(tensor.v + j, lanes)));
      const V16 denominator = add(div(sqrt(v), set1(s.sqrtBc2)), set1(s.eps));
      theta = fma(set1(s.negativeStepSize), div(m, denominator), theta);
      store(tensor.theta + j, theta, lanes);
      store(tensor.m + j, m, lanes);
      store(tensor.v + j, v, lanes);
      store(tensor.g + j, zero(), lanes);
    };
    size_t j = task * kChunk;
    for (; j + 16 <= end; j += 16) update(j, AllLanes{});
    if (j < end) update(j, end - j);
  });
}

}  // namespace hotbed::kernels::HOTBED_PATH
