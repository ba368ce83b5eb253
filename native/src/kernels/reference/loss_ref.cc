#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

namespace {

float clip(float ratio, const LossArgs& args) {
  if (ratio < args.clipLow) return args.clipLow;
  if (ratio > args.clipHigh) return args.clipHigh;
  return ratio;
}

}  // namespace

double loss(const LossArgs& args) {
  float s = 0.0f;
  size_t counted = 0;
  if (args.kind == LossKind::gspo) {
    double sum = 0;
    for (size_t i = 0; i < args.count; ++i) {
      if (args.mask[i] != 0.0f) {
        sum += static_cast<double>(args.logprobs[i] - args.recorded[i]);
        counted += 1;
      }
    }
    if (counted != 0) s = exp1(static_cast<float>(sum / static_cast<double>(counted)));
  }
  double sum = args.sum;
  for (size_t i = 0; i < args.count; ++i) {
    const float lp = args.logprobs[i];
    const float w = args.weights[i];
    float term = 0.0f;
    float c = 0.0f;
    if (w != 0.0f) {
      if (args.kind == LossKind::crossEntropy) {
        term = -(w * lp);
        c = -w;
      } else if (args.kind == LossKind::givenGradient) {
        c = w;
        term = c * lp;
      } else if (args.kind == LossKind::importanceSampling) {
        const float rho = exp1(lp - args.recorded[i]);
        term = -(rho * w);
        c = -(rho * w);
      } else if (args.kind == LossKind::cispo) {
        const float rho = exp1(lp - args.recorded[i]);
        c = -(clip(rho, args) * w);
        term = c * lp;
      } else if (args.kind == LossKind::dro) {
        const float e = lp - args.recorded[i];
        c = (args.beta * e) - w;
        term = -((lp * w) - ((0.5f * (args.beta * e)) * e));
      } else if (args.kind == LossKind::ppo || counted != 0) {
        const float rho = args.kind == LossKind::gspo ? s : exp1(lp - args.recorded[i]);
        const float free = rho * w;
        const float clipped = clip(rho, args) * w;
        term = -(clipped < free ? clipped : free);
        const bool inside = w >= 0.0f ? rho <= args.clipHigh : rho >= args.clipLow;
        c = inside ? -free : 0.0f;
      }
    }
    if (args.c) args.c[i] = c;
    sum += static_cast<double>(term);
  }
  return sum;
}

}  // namespace hotbed::kernels::reference
