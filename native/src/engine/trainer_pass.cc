// A pass from its first slice to its answers; a fault puts back the gradients.
#include <cmath>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "engine/fault_of.h"
#include "engine/trainer.h"
#include "engine/trainer_calls.h"

namespace hotbed {

double Trainer::Work(double clock) {
  const double before = in_pass_ ? pass_done_ : 0;
  try {
    if (!in_pass_) BeginPass(clock);
    pass_done_ = executor_->AdvanceTraining();
  } catch (...) {
    in_pass_ = false;
    FailPlan(FaultOf(std::current_exception()));
    dropped_.clear();
    return pass_cost_;
  }
  if (pass_done_ == 1) EndPass();
  return (pass_done_ - before) * pass_cost_;
}

void Trainer::BeginPass(double clock) {
  pass_cost_ = 0;
  pass_done_ = 0;
  BuildPlan(clock);
  for (Adapter* adapter : owners_) BeginCall(adapter, &adapter->calls.front());
  executor_->BeginTraining(plan_, &output_);
  in_pass_ = true;
}

void Trainer::EndPass() {
  in_pass_ = false;
  size_t adapters = 0;
  for (const TrainingSegment& segment : plan_.segments) {
    adapters += segment.adapter != nullptr;
    if (segment.backward) stats_->tokens_trained += segment.row_end - segment.row_begin;
  }
  ++stats_->train_passes;
  if (adapters > 1) ++stats_->mixed_train_passes;
  stats_->train_pass_adapters += adapters;
  Deliver();
  dropped_.clear();
}

void Trainer::BeginCall(Adapter* adapter, Call* call) {
  if (call->begun || !call->training->backward) return;
  if (!adapter->gradient_is_zero) {
    const AlignedBuffer<float>& gradient = adapter->state->gradient;
    call->saved_gradient = AlignedBuffer<float>(gradient.size(), Contents::kAnything);
    std::memcpy(call->saved_gradient.data(), gradient.data(), gradient.bytes());
  }
  call->begun = true;
  ++adapter->state->gradient_changes;
  adapter->gradient_is_zero = false;
}

void Trainer::RestoreGradient(Adapter* adapter, Call* call) {
  if (!call->begun) return;
  AlignedBuffer<float>& gradient = adapter->state->gradient;
  if (call->saved_gradient.size() != 0) {
    std::memcpy(gradient.data(), call->saved_gradient.data(), gradient.bytes());
  } else {
    std::memset(gradient.data(), 0, gradient.bytes());
    adapter->gradient_is_zero = true;
  }
}

void Trainer::FailPlan(const Fault& fault) {
  for (Adapter* adapter : owners_) {
    if (adapter->dropped) continue;
    Call call = std::move(adapter->calls.front());
    adapter->calls.pop_front();
    RestoreGradient(adapter, &call);
    call.reject(fault);
  }
}

void Trainer::Deliver() {
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const TrainingSegment& segment = plan_.segments[s];
    Adapter* adapter = owners_[s];
    if (adapter->dropped) continue;
    Call& call = adapter->calls.front();
    std::string not_finite;
    for (size_t i = segment.datum_begin; i < segment.datum_end && not_finite.empty(); ++i) {
      const TrainingDatum& datum = plan_.datums[i];
      const size_t index = call.next_datum + (i - segment.datum_begin);
      auto& branches = call.result.logprobs[index];
      branches.clear();
      for (size_t r = datum.run_begin; r < datum.run_end; ++r) {
        const TrainingRun& run = plan_.runs[r];
        const size_t* offsets = plan_.target_offsets.data() + run.target_row_begin;
        branches.emplace_back(output_.logprobs.begin() + offsets[0],
                              output_.logprobs.begin() + offsets[run.row_count]);
        const std::vector<float>& logprobs = branches.back();
        for (size_t t = 0; t < logprobs.size() && not_finite.empty(); ++t) {
          if (std::isfinite(logprobs[t])) continue;
          not_finite = "datums[" + std::to_string(index) + "].branches[" +
                       std::to_string(r - datum.run_begin) + "].tokens[" +
                       std::to_string(t / (logprobs.size() / run.row_count)) +
                       "]: the model's log-prob is not finite";
        }
      }
      call.result.loss_sum += output_.datum_loss[i];
      call.result.tokens += datum.target_row_end - datum.target_row_begin;
      if (not_finite.empty() && !std::isfinite(output_.datum_loss[i])) {
        not_finite = "datums[" + std::to_string(index) + "]: its loss is not finite";
      }
    }
    if (!not_finite.empty()) {
      Call failed = std::move(call);
      adapter->calls.pop_front();
      RestoreGradient(adapter, &failed);
      failed.reject({FaultCode::kNotFinite, not_finite});
      continue;
    }
    call.next_datum += call.planned;
    if (call.next_datum < call.training->datums.size()) continue;
    Call finished = std::move(call);
    adapter->calls.pop_front();
    if (adapter->calls.empty() && adapter->state) adapter->state->weights->executor_copy.reset();
    finished.training->done(std::move(finished.result));
  }
}

}  // namespace hotbed
