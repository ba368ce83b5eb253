#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

double loss(const LossArgs& args) {
  double sum = args.sum;
  for (size_t i = 0; i < args.count; ++i) {
    const float w = args.weights[i];
    float term = 0.0f;
    float c = 0.0f;
    if (w != 0.0f) {
      const float lp = args.logprobs[i];
      if (args.kind == LossKind::crossEntropy) {
        term = -(w * lp);
        c = -w;
      } else {
        const float rho = exp1(lp - args.recorded[i]);
        const float unclipped = rho * w;
        if (args.kind == LossKind::importanceSampling) {
          term = -unclipped;
          c = -unclipped;
        } else {
          const float clippedRho = rho < args.clipLow    ? args.clipLow
                                   : rho > args.clipHigh ? args.clipHigh
                                                         : rho;
          const float clipped = clippedRho * w;
          term = -(clipped < unclipped ? clipped : unclipped);
          const bool inside = w >= 0.0f ? rho <= args.clipHigh : rho >= args.clipLow;
          c = inside ? -unclipped : 0.0f;
        }
      }
    }
    if (args.c) args.c[i] = c;
    sum += static_cast<double>(term);
  }
  return sum;
}

}  // namespace hotbed::kernels::reference
