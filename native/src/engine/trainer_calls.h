// The trainer's own view of its adapters and of the calls in their queues.
#ifndef HOTBED_ENGINE_TRAINER_CALLS_H_
#define HOTBED_ENGINE_TRAINER_CALLS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>

#include "engine/trainer.h"

namespace hotbed {

// One entry of an adapter's queue: a pass call, an optimizer step or a visit.
struct Trainer::Call {
  std::unique_ptr<TrainingCall> training;
  std::function<void(Adapter*)> immediate;
  std::function<void(const Fault&)> reject;

  // Of a training call.
  ForwardBackwardResult result;
  size_t next_datum = 0;
  size_t planned = 0;  // datums from next_datum that are in the plan
  AlignedBuffer<float> saved_gradient;
  bool begun = false;
};

struct Trainer::Adapter {
  AdapterHandle handle = 0;  // 0: the base
  AccountId account = 0;
  std::unique_ptr<AdapterState> state;  // null: the base
  std::deque<Call> calls;
  // No call has added to the gradient since it was last zero.
  bool gradient_is_zero = true;
  bool dropped = false;

  bool wants_pass() const { return !calls.empty() && calls.front().training != nullptr; }
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_TRAINER_CALLS_H_
