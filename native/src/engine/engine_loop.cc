#include <algorithm>

#include "engine/engine_impl.h"
#include "util/thread_pool.h"

namespace hotbed {

namespace {

// A sampling step reads every weight however few rows it has; below so many rows its cost does not
// fall.
constexpr double kLeastStepRows = 16;

}  // namespace

// Everything that has arrived is taken before a step is planned, so that calls made together run
// together.
void Engine::Impl::Loop() {
  FloatEnvironment environment;
  std::vector<Command> taken;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock,
                 [&] { return stopping_ || !commands_.empty() || memory_changed_ || HasWork(); });
      std::swap(taken, commands_);
      if (stopping_) break;
    }
    for (Command& command : taken) command.run();
    taken.clear();
    trainer_->RunImmediate();
    Answer();  // what needed no step does not wait for one
    StepOnce();
    Answer();
  }
  for (Command& command : taken) command.reject(Disposed());
  sampler_->RejectAll(Disposed());
  trainer_->RejectAll(Disposed());
  RunCompletions();
}

void Engine::Impl::Answer() {
  if (!HasWork()) memory_changed_ = true;  // what was made for the work is gone
  Publish();
  RunCompletions();
}

void Engine::Impl::RunCompletions() {
  for (const std::function<void()>& completion : completions_) completion();
  completions_.clear();
}

void Engine::Impl::StepOnce() {
  const bool sampling = sampler_->has_work();
  const bool training = trainer_->has_pass();
  if (!sampling && !training) return;
  const WorkKind next =
      shares_.Choose(sampling, training, sampling && training ? sampler_->waiting_weight() : 0,
                     sampling && training ? trainer_->waiting_weight() : 0);
  const bool in_pass = trainer_->in_pass();
  double cost;
  if (next == WorkKind::kSampling) {
    const uint64_t lanes = sampler_->lane_changes();
    cost = sampler_->Step(shares_.clock());
    if (preempt_every_ != 0 && ++steps_ % preempt_every_ == 0) sampler_->PreemptLatest();
    stats_.sampling_flops += cost;
    cost = std::max(cost, kLeastStepRows * flops_.row());
    decode_wait_ = 0;
    if (lanes != sampled_lanes_) memory_changed_ = true;
    sampled_lanes_ = sampler_->lane_changes();
  } else {
    cost = trainer_->Work(shares_.clock());
    stats_.training_flops += cost;
    trainer_->RunImmediate();
    decode_wait_ = sampling ? decode_wait_ + cost : 0;
    stats_.max_decode_wait_flops = std::max(stats_.max_decode_wait_flops, decode_wait_);
    if (in_pass != trainer_->in_pass()) memory_changed_ = true;
  }
  shares_.Charge(next, cost);
}

}  // namespace hotbed
