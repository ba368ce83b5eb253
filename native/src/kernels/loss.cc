#include "kernels/path.h"
//
#include "kernels/path_table.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

struct TokenLoss {
  float term;
  float c;
};

float clipped(const LossArgs& args, float ratio) {
  return ratio < args.clipLow ? args.clipLow : ratio > args.clipHigh ? args.clipHigh : ratio;
}

TokenLoss clippedObjective(const LossArgs& args, float ratio, float advantage) {
  const float free = ratio * advantage;
  const float bounded = clipped(args, ratio) * advantage;
  const float smaller = bounded < free ? bounded : free;
  const bool inside = advantage >= 0.0f ? ratio <= args.clipHigh : ratio >= args.clipLow;
  return {-smaller, inside ? -free : 0.0f};
}

TokenLoss tokenLoss(const LossArgs& args, size_t i, float ratio) {
  const float logprob = args.logprobs[i];
  const float weight = args.weights[i];
  switch (args.kind) {
    case LossKind::importanceSampling: {
      const float c = -(ratio * weight);
      return {c, c};
    }
    case LossKind::ppo:
    case LossKind::gspo:
      return clippedObjective(args, ratio, weight);
    case LossKind::cispo: {
      const float c = -(clipped(args, ratio) * weight);
      return {c * logprob, c};
    }
    case LossKind::dro: {
      const float distance = logprob - args.recorded[i];
      const float pull = args.beta * distance;
      const float gain = logprob * weight;
      return {-(gain - (0.5f * pull) * distance), pull - weight};
    }
    case LossKind::givenGradient:
      return {weight * logprob, weight};
    case LossKind::crossEntropy:
      break;
  }
  return {-(weight * logprob), -weight};
}

// The targets in the mask, and gspo's ratio over them.
size_t sequenceRatio(const LossArgs& args, float& ratio) {
  double sum = 0;
  size_t counted = 0;
  for (size_t i = 0; i < args.count; ++i) {
    if (args.mask[i] == 0.0f) continue;
    sum += static_cast<double>(args.logprobs[i] - args.recorded[i]);
    ++counted;
  }
  if (counted != 0) ratio = exp1(static_cast<float>(sum / static_cast<double>(counted)));
  return counted;
}

bool hasRatio(LossKind kind) {
  return kind == LossKind::importanceSampling || kind == LossKind::ppo || kind == LossKind::cispo;
}

}  // namespace

double loss(const LossArgs& args) {
  FloatEnvironment environment;
  float sequence = 0.0f;
  const bool silent = args.kind == LossKind::gspo && sequenceRatio(args, sequence) == 0;
  double sum = args.sum;
  for (size_t begin = 0; begin < args.count; begin += 16) {
    const size_t lanes = minSize(16, args.count - begin);
    float ratio[16] = {};
    if (hasRatio(args.kind)) {
      store(ratio,
            exp16(sub(load(args.logprobs + begin, lanes), load(args.recorded + begin, lanes))));
    }
    for (size_t l = 0; l < lanes; ++l) {
      const size_t i = begin + l;
      TokenLoss value{0.0f, 0.0f};
      if (args.weights[i] != 0.0f && !silent) {
        value = tokenLoss(args, i, args.kind == LossKind::gspo ? sequence : ratio[l]);
      }
      if (args.c) args.c[i] = value.c;
      sum += static_cast<double>(value.term);
    }
  }
  return sum;
}

}  // namespace hotbed::kernels::HOTBED_PATH
