#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

namespace {

double power(double base, uint64_t exponent) {
  double result = 1.0;
  while (exponent != 0) {
    if (exponent & 1) result = result * base;
    base = base * base;
    exponent >>= 1;
  }
  return result;
}

}  // namespace

void sumSquares(ThreadPool&, const GradientTensor* tensors, size_t count, double* out) {
  for (size_t t = 0; t < count; ++t) {
    double lane[16] = {};
    for (size_t j = 0; j < tensors[t].n; ++j) {
      const double g = tensors[t].g[j];
      lane[j % 16] = __builtin_fma(g, g, lane[j % 16]);
    }
    for (int width = 8; width >= 1; width /= 2) {
      for (int l = 0; l < width; ++l) lane[l] = lane[l] + lane[l + width];
    }
    out[t] = lane[0];
  }
}

AdamWScalars adamWScalars(const AdamWHyper& hyper, uint64_t step) {
  const double bc1 = 1.0 - power(hyper.beta1, step);
  const double bc2 = 1.0 - power(hyper.beta2, step);
  AdamWScalars scalars;
  scalars.oneMinusBeta1 = static_cast<float>(1.0 - hyper.beta1);
  scalars.beta2 = static_cast<float>(hyper.beta2);
  scalars.oneMinusBeta2 = static_cast<float>(1.0 - hyper.beta2);
  scalars.negativeStepSize = -static_cast<float>(hyper.learningRate / bc1);
  scalars.sqrtBc2 = static_cast<float>(__builtin_sqrt(bc2));
  scalars.eps = static_cast<float>(hyper.eps);
  scalars.decay = static_cast<float>(1.0 - hyper.learningRate * hyper.weightDecay);
  scalars.hasDecay = hyper.weightDecay != 0.0;
  return scalars;
}

float clipFactor(double norm, double clip) {
  if (!(clip > 0.0)) return 1.0f;
  const double factor = clip / (norm + 1e-6);
  return static_cast<float>(factor < 1.0 ? factor : 1.0);
}

void adamW(ThreadPool&, const AdamWTensor* tensors, size_t count, const AdamWScalars& s,
           float factor) {
  for (size_t t = 0; t < count; ++t) {
    const AdamWTensor& tensor = tensors[t];
    for (size_t j = 0; j < tensor.n; ++j) {
      float g = tensor.g[j];
      if (factor < 1.0f) g = g * factor;
      float theta = tensor.theta[j];
      if (s.hasDecay) theta = theta * s.decay;
      const float m = fmaf1(s.oneMinusBeta1, g - tensor.m[j], tensor.m[j]);
      const float v = fmaf1(s.oneMinusBeta2 * g, g, s.beta2 * tensor.v[j]);
      const float denominator = __builtin_sqrtf(v) / s.sqrtBc2 + s.eps;
      tensor.theta[j] = fmaf1(s.negativeStepSize, m / denominator, theta);
      tensor.m[j] = m;
      tensor.v[j] = v;
      tensor.g[j] = 0.0f;
    }
  }
}

}  // namespace hotbed::kernels::reference
