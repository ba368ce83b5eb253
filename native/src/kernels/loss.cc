#include "kernels/path.h"
//
#include "kernels/path_table.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

struct TokenLoss {
  float term;
  float c;
};

TokenLoss tokenLoss(const LossArgs& args, float logprob, float ratio, float weight) {
  if (args.kind == LossKind::crossEntropy) return {-(weight * logprob), -weight};
  const float unclipped = ratio * weight;
  if (args.kind == LossKind::importanceSampling) return {-unclipped, -unclipped};
  float bounded = ratio;
  if (ratio < args.clipLow) {
    bounded = args.clipLow;
  } else if (ratio > args.clipHigh) {
    bounded = args.clipHigh;
  }
  const float clipped = bounded * weight;
  const float smaller = clipped < unclipped ? clipped : unclipped;
  const bool inside = weight >= 0.0f ? ratio <= args.clipHigh : ratio >= args.clipLow;
  return {-smaller, inside ? -unclipped : 0.0f};
}

}  // namespace

double loss(const LossArgs& args) {
  FloatEnvironment environment;
  double sum = args.sum;
  for (size_t begin = 0; begin < args.count; begin += 16) {
    const size_t lanes = minSize(16, args.count - begin);
    float ratio[16] = {};
    if (args.kind != LossKind::crossEntropy) {
      store(ratio,
            exp16(sub(load(args.logprobs + begin, lanes), load(args.recorded + begin, lanes))));
    }
    for (size_t l = 0; l < lanes; ++l) {
      const size_t i = begin + l;
      TokenLoss value{0.0f, 0.0f};
      if (args.weights[i] != 0.0f) {
        value = tokenLoss(args, args.logprobs[i], ratio[l], args.weights[i]);
      }
      if (args.c) args.c[i] = value.c;
      sum += static_cast<double>(value.term);
    }
  }
  return sum;
}

}  // namespace hotbed::kernels::HOTBED_PATH
