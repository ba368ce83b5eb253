// AdamW on one adapter (N8).
#include <cmath>
#include <vector>

#include "engine/cpu_executor.h"
#include "engine/fault.h"

namespace hotbed {

OptimStepResult CpuExecutor::RunOptimizer(AdapterState* state, const AdamParams& params) {
  const std::vector<AdapterTensor>& tensors = state->layout->tensors();
  std::vector<kernels::GradientTensor> gradients(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    gradients[i] = {state->gradient.data() + tensors[i].offset, tensors[i].size()};
  }
  std::vector<double> squares(tensors.size());
  kernels_.sumSquares(pool_, gradients.data(), gradients.size(), squares.data());
  double sum = 0;
  for (double square : squares) sum += square;
  const double norm = std::sqrt(sum);
  if (!std::isfinite(norm)) {
    throw EngineFault(FaultCode::kNotFinite,
                      "gradient: its norm is not finite; the step was not taken");
  }

  kernels::AdamWHyper hyper;
  hyper.learningRate = params.learning_rate;
  hyper.beta1 = params.beta1;
  hyper.beta2 = params.beta2;
  hyper.eps = params.eps;
  hyper.weightDecay = params.weight_decay;
  const uint64_t step = state->step + 1;
  const kernels::AdamWScalars scalars = kernels_.adamWScalars(hyper, step);
  const float clip = kernels_.clipFactor(norm, params.grad_clip_norm);
  std::vector<kernels::AdamWTensor> updates(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t offset = tensors[i].offset;
    updates[i] = {state->weights->at(tensors[i]), state->m.data() + offset,
                  state->v.data() + offset, state->gradient.data() + offset, tensors[i].size()};
  }
  kernels_.adamW(pool_, updates.data(), updates.size(), scalars, clip);
  state->step = step;
  if (state->weights->executor_copy) {
    FillCopy(*state->weights, static_cast<CpuAdapterCopy*>(state->weights->executor_copy.get()));
  }

  OptimStepResult result;
  result.grad_norm = norm;
  result.step = step;
  return result;
}

}  // namespace hotbed
