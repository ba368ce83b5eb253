// Token losses (N16): c = dL/dlogprob and the loss term of each target, rho = exp(lp - q).
//
// crossEntropy: term -(w*lp), c = -w. importanceSampling: term and c -(rho*A).
// ppo: c = -(rho*A) if (A >= 0 ? rho <= hi : rho >= lo) else +0;
//      term -min(rho*A, clip(rho, lo, hi)*A). Weight or advantage 0: term and c exactly +0.
// Terms are fp32, widened and added in fp64 in order onto `sum`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotbed::kernels {

enum class LossKind : int32_t { crossEntropy = 0, importanceSampling = 1, ppo = 2 };

struct LossArgs {
  LossKind kind = LossKind::crossEntropy;
  size_t count = 0;
  const float* logprobs = nullptr;  // [count]
  const float* recorded = nullptr;  // [count] q; unused by crossEntropy
  const float* weights = nullptr;   // [count] w, or the advantages A
  float clipLow = 0.8f;             // ppo only
  float clipHigh = 1.2f;
  float* c = nullptr;  // [count] out, or null (forward only)
  double sum = 0;      // carried in
};

}  // namespace hotbed::kernels
