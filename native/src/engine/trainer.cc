// The queues: calls come in and apply in each adapter's order. What a pass takes of them is chosen
// in trainer_plan.cc; how it runs and is answered stands in trainer_pass.cc.
#include "engine/trainer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <utility>

#include "engine/fault_of.h"
#include "engine/trainer_calls.h"

namespace hotbed {

namespace {

// Every bit: -0 is not the zero that a reset gradient has. In blocks, which the compiler
// vectorizes: creating an adapter waits for it.
bool IsZero(const AlignedBuffer<float>& buffer) {
  constexpr size_t kBlock = 4096;
  for (size_t begin = 0; begin < buffer.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, buffer.size());
    uint32_t any = 0;
    for (size_t i = begin; i < end; ++i) {
      uint32_t bits;
      std::memcpy(&bits, buffer.data() + i, sizeof(bits));
      any |= bits;
    }
    if (any != 0) return false;
  }
  return true;
}

}  // namespace

Trainer::Trainer(const ModelConfig& config, Executor* executor, int max_train_rows,
                 double max_wait_flops, EngineStats* stats)
    : executor_(executor),
      max_train_rows_(max_train_rows),
      stats_(stats),
      flops_(config),
      shares_(max_wait_flops) {}

Trainer::~Trainer() = default;

void Trainer::Add(AdapterHandle handle, AccountId account, std::unique_ptr<AdapterState> state) {
  auto adapter = std::make_unique<Adapter>();
  adapter->handle = handle;
  adapter->account = account;
  adapter->gradient_is_zero = IsZero(state->gradient);
  adapter->state = std::move(state);
  by_handle_[handle] = adapter.get();
  adapters_.push_back(std::move(adapter));
}

bool Trainer::Has(AdapterHandle handle) const { return by_handle_.count(handle) != 0; }

void Trainer::Drop(AdapterHandle handle) {
  Adapter* adapter = Find(handle);
  const Fault fault{FaultCode::kCancelled, "adapter: dropped while the call was pending"};
  std::deque<Call> calls = std::move(adapter->calls);
  by_handle_.erase(handle);
  const auto at = std::find_if(adapters_.begin(), adapters_.end(),
                               [&](const auto& owned) { return owned.get() == adapter; });
  if (in_pass_) {
    adapter->dropped = true;
    dropped_.push_back(std::move(*at));
  }
  adapters_.erase(at);
  for (const Call& call : calls) call.reject(fault);
}

Trainer::Adapter* Trainer::Find(AdapterHandle handle) { return by_handle_.at(handle); }

Trainer::Call Trainer::CallOf(std::unique_ptr<TrainingCall> training) {
  Call call;
  call.reject = [done = training->done](const Fault& fault) { done(fault); };
  call.result.logprobs.resize(training->datums.size());
  call.training = std::move(training);
  return call;
}

void Trainer::Run(AdapterHandle handle, std::unique_ptr<TrainingCall> training) {
  Find(handle)->calls.push_back(CallOf(std::move(training)));
}

void Trainer::RunBase(AccountId account, std::unique_ptr<TrainingCall> training) {
  Adapter*& base = bases_[account];
  if (!base) {
    adapters_.push_back(std::make_unique<Adapter>());
    base = adapters_.back().get();
    base->account = account;
  }
  base->calls.push_back(CallOf(std::move(training)));
}

void Trainer::OptimStep(AdapterHandle handle, const AdamParams& params,
                        Done<OptimStepResult> done) {
  Call call;
  call.reject = [done](const Fault& fault) { done(fault); };
  call.immediate = [this, params, done](Adapter* adapter) {
    AdapterState& state = *adapter->state;
    if (state.weights.use_count() > 1) {
      state.weights = CloneOf(*state.weights);
    } else {
      state.weights->RenewIdentity();
    }
    // Whoever let go of the weights last, on any thread, has read them before.
    std::atomic_thread_fence(std::memory_order_acquire);
    OptimStepResult result = executor_->RunOptimizer(&state, params);
    ++state.weights_changes;
    ++state.moments_changes;
    ++state.gradient_changes;
    adapter->gradient_is_zero = true;
    done(result);
  };
  Find(handle)->calls.push_back(std::move(call));
}

void Trainer::Visit(AdapterHandle handle, std::function<void(const AdapterState&)> visit,
                    std::function<void(const Fault&)> reject) {
  Call call;
  call.reject = std::move(reject);
  call.immediate = [visit = std::move(visit)](Adapter* adapter) { visit(*adapter->state); };
  Find(handle)->calls.push_back(std::move(call));
}

void Trainer::RejectAll(const Fault& fault) {
  for (const auto& adapter : adapters_) {
    std::deque<Call> calls = std::move(adapter->calls);
    adapter->calls.clear();
    for (const Call& call : calls) call.reject(fault);
  }
}

void Trainer::RunImmediate() {
  for (const auto& adapter : adapters_) Advance(adapter.get());
}

void Trainer::Advance(Adapter* adapter) {
  if (adapter->calls.empty()) return;
  while (!adapter->calls.empty() && adapter->calls.front().immediate) {
    const Call call = std::move(adapter->calls.front());
    adapter->calls.pop_front();
    try {
      call.immediate(adapter);
    } catch (...) {
      call.reject(FaultOf(std::current_exception()));
    }
  }
  // An adapter at rest costs its own bytes and no more.
  if (adapter->calls.empty() && adapter->state) adapter->state->weights->executor_copy.reset();
}

bool Trainer::has_pass() const {
  if (in_pass_) return true;
  for (const auto& adapter : adapters_) {
    if (adapter->wants_pass()) return true;
  }
  return false;
}

double Trainer::waiting_weight() const {
  std::vector<AccountId> seen;
  double weight = 0;
  const auto add = [&](AccountId account) {
    if (std::find(seen.begin(), seen.end(), account) != seen.end()) return;
    seen.push_back(account);
    weight += shares_.weight(account);
  };
  if (in_pass_) {
    for (const Adapter* owner : owners_) add(owner->account);
  }
  for (const auto& adapter : adapters_) {
    if (adapter->wants_pass()) add(adapter->account);
  }
  return weight;
}

void Trainer::ForEach(
    const std::function<void(AdapterHandle, AccountId, const AdapterState&, size_t)>& visit) const {
  for (const auto& adapter : adapters_) {
    if (!adapter->state) continue;
    const size_t copies =
        adapter->calls.empty() ? 0 : adapter->calls.front().saved_gradient.bytes();
    visit(adapter->handle, adapter->account, *adapter->state, copies);
  }
}

}  // namespace hotbed
