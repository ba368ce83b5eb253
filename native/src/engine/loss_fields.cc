#include "engine/loss_fields.h"

namespace hotbed {

const LossFields& FieldsOf(LossName name) {
  // word, weights, advantages, gradients, mask, clip, beta
  static const LossFields kFields[kLossCount] = {
      {"cross_entropy", true, false, false, false, false, false},
      {"importance_sampling", false, true, false, false, false, false},
      {"ppo", false, true, false, false, true, false},
      {"cispo", false, true, false, false, true, false},
      {"dro", false, true, false, false, false, true},
      {"gspo", false, true, false, true, true, false},
      {"given_gradient", false, false, true, false, false, false},
  };
  return kFields[static_cast<int>(name)];
}

const std::vector<float>& TargetWeights(const Branch& branch, LossName name) {
  const LossFields& fields = FieldsOf(name);
  return fields.weights     ? *branch.weights
         : fields.gradients ? *branch.gradients
                            : *branch.advantages;
}

const std::vector<float>* RecordedLogprobs(const Branch& branch, LossName name) {
  return FieldsOf(name).advantages ? &*branch.logprobs : nullptr;
}

}  // namespace hotbed
