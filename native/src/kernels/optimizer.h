// AdamW and the gradient norm (N8).
//
// Scalars are computed in fp64 (powers of beta by repeated squaring) and rounded once.
// Per element: theta *= 1-lr*wd if wd != 0; m = fma(1-b1, g-m, m); v = fma((1-b2)*g, g, b2*v);
// theta = fma(-(lr/bc1), m/(sqrt(v)/sqrt(bc2) + eps), theta); g = +0. g is first multiplied by the
// clip factor if that is < 1. Sum of squares: fp64 tree16 of widened g by fma, per tensor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotbed::kernels {

struct AdamWHyper {
  double learningRate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-12;
  double weightDecay = 0;
};

// What N8 rounds once; made by adamWScalars for the step number counted from 1.
struct AdamWScalars {
  float oneMinusBeta1 = 0;
  float beta2 = 0;
  float oneMinusBeta2 = 0;
  float negativeStepSize = 0;  // -(lr/bc1)
  float sqrtBc2 = 1;
  float eps = 0;
  float decay = 1;  // 1 - lr*wd
  bool hasDecay = false;
};

struct AdamWTensor {
  float* theta = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  float* g = nullptr;
  size_t n = 0;
};

struct GradientTensor {
  const float* g = nullptr;
  size_t n = 0;
};

}  // namespace hotbed::kernels
