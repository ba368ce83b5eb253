// Token losses (N16): c = dL/dlogprob and the loss term of each target. lp = policy log-prob, q the
// recorded one, A the advantage, rho = exp(lp - q); clip(x) = x < lo ? lo : x > hi ? hi : x.
//
// crossEntropy: term -(w*lp), c = -w. givenGradient: c as given, term c*lp.
// importanceSampling: term and c -(rho*A).
// ppo: c = -(rho*A) if (A >= 0 ? rho <= hi : rho >= lo) else +0; term -min(rho*A, clip(rho)*A).
// cispo: c = -(clip(rho)*A), term c*lp.
// dro: e = lp - q; c = (beta*e) - A; term -((lp*A) - ((0.5*(beta*e))*e)).
// gspo: ppo with one ratio for all targets of the call, s = exp(float(sum / n)): the fp64 sum, from
//      +0 and ascending, of the widened fp32 lp - q over the n targets whose mask is not 0. n = 0:
//      every term and c +0.
// Weight, advantage or given gradient 0: term and c exactly +0, whatever the ratio; for dro its
// quadratic term too, so that padding (A = 0, q = 0) is no part of the loss.
// Terms are fp32, widened and added in fp64 in order onto `sum`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotbed::kernels {

enum class LossKind : int32_t {
  crossEntropy = 0,
  importanceSampling = 1,
  ppo = 2,
  cispo = 3,
  dro = 4,
  gspo = 5,
  givenGradient = 6
};

// A target's term and c follow from its own lp, q and weight, so a call may be cut anywhere. The
// others (gspo) take all targets of one branch in one call.
constexpr bool isTokenWise(LossKind kind) { return kind != LossKind::gspo; }

struct LossArgs {
  LossKind kind = LossKind::crossEntropy;
  size_t count = 0;
  const float* logprobs = nullptr;  // [count]
  const float* recorded = nullptr;  // [count] q; unused by crossEntropy, givenGradient
  const float* weights = nullptr;   // [count] w, or the advantages A, or the given c
  const float* mask = nullptr;      // [count] gspo only
  float clipLow = 0.8f;             // ppo, cispo, gspo
  float clipHigh = 1.2f;
  float beta = 0;      // dro only
  float* c = nullptr;  // [count] out, or null (forward only)
  double sum = 0;      // carried in
};

}  // namespace hotbed::kernels
