// What stands behind the engine's doors: the engine thread with all that it owns, the queue of
// commands to it, and what the doors may look up without it.
//
// engine.cc checks arguments and posts; engine_impl.cc is construction, adapters, policies and the
// queue; engine_loop.cc is the engine thread; engine_accounts.cc counts memory, work and tenants.
//
// Everything under "Engine thread" is touched by that thread alone once it runs; everything under
// "Doors" is guarded by its mutex and may be used from any thread.
#ifndef HOTBED_ENGINE_ENGINE_IMPL_H_
#define HOTBED_ENGINE_ENGINE_IMPL_H_

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/fault_of.h"
#include "engine/flops.h"
#include "engine/sampler.h"
#include "engine/tenant_desk.h"
#include "engine/trainer.h"
#include "engine/work_shares.h"

namespace hotbed {

// What a stopped engine answers.
const Fault& Disposed();
EngineFault UnknownHandle(const char* field, uint64_t handle);

// Runs `check`; a fault goes to `done` and the call is over.
template <typename T, typename Check>
bool Passes(const Done<T>& done, Check check) {
  try {
    check();
    return true;
  } catch (...) {
    done(FaultOf(std::current_exception()));
    return false;
  }
}

class Engine::Impl {
 public:
  Impl(const EngineOptions& options, ModelConfig config, ModelWeights weights,
       std::string base_digest);
  ~Impl();

  // For use on any thread.
  const EngineInfo& info() const { return info_; }
  const ModelConfig& config() const { return config_; }
  EngineStats stats() const;
  TenantDesk& desk() { return desk_; }
  RequestId NextRequest() { return next_request_++; }
  void Stop();

  // `done` for a call that counts as pending until it is called. Throws EngineFault busy.
  template <typename T>
  Done<T> Admitted(AccountId account, const PendingWork& work, const Done<T>& done) {
    const Ticket ticket = desk_.Admit(account, work);
    return [this, ticket, done](Result<T> result) {
      desk_.Release(ticket);
      done(std::move(result));
    };
  }

  // `run` executes on the engine thread; `reject` instead of it when the engine is stopped. Exactly
  // one is called.
  void Post(std::function<void()> run, std::function<void(const Fault&)> reject);

  // body(reply) runs on the engine thread; it may throw. `done` is called exactly once.
  template <typename T, typename Body>
  void Call(const Done<T>& done, Body body) {
    Post(
        [this, done, body]() mutable {
          const Done<T> reply = AfterPublishing(done);
          try {
            body(reply);
          } catch (...) {
            reply(FaultOf(std::current_exception()));
          }
        },
        [done](const Fault& fault) { done(fault); });
  }

  // `done` to be called when the statistics that include the call are out: at the end of the loop's
  // turn. For use on the engine thread.
  template <typename T>
  Done<T> AfterPublishing(Done<T> done) {
    return [this, done = std::move(done)](Result<T> result) {
      auto kept = std::make_shared<Result<T>>(std::move(result));
      completions_.push_back([done, kept] { done(std::move(*kept)); });
    };
  }

  void Train(bool backward, std::optional<AdapterHandle> adapter, const std::string& tenant,
             const Loss& loss, std::vector<Datum> datums, const Done<ForwardBackwardResult>& done);

  // A pinned state: whose adapter's, who pays.
  struct Policy {
    std::shared_ptr<const AdapterWeights> weights;
    AdapterHandle adapter = 0;
    AccountId account = 0;
  };
  // Throws EngineFault invalid_argument for an unknown handle.
  Policy PolicyOf(PolicyHandle policy) const;
  void Release(PolicyHandle policy);

  // What the doors know of a live adapter.
  struct Known {
    AdapterSpec spec;
    AccountId account = 0;
  };
  std::optional<Known> FindKnown(AdapterHandle adapter) const;

  // For use on the engine thread.
  void AddAdapter(std::unique_ptr<AdapterState> state, AccountId account,
                  const Done<AdapterHandle>& done);
  void DropAdapter(AdapterHandle handle);
  PolicyHandle AddPolicy(AdapterHandle adapter, const AdapterState& state);
  void SetWeight(AccountId account, double weight);
  std::vector<TenantStats> Tenants() const;
  // Of one adapter, or (nullopt) of all; a buffer that several hold is counted once.
  AdapterMemory MemoryOf(std::optional<AdapterHandle> only) const;
  Executor& executor() { return *executor_; }
  Sampler& sampler() { return *sampler_; }
  // The trainer, for a call on this adapter. Throws EngineFault invalid_argument for an unknown
  // handle.
  Trainer& TrainerOf(AdapterHandle adapter);

 private:
  struct Command {
    std::function<void()> run;
    std::function<void(const Fault&)> reject;
  };

  void Loop();
  void Answer();
  void RunCompletions();
  bool HasWork() const { return sampler_->has_work() || trainer_->has_pass(); }
  void StepOnce();
  void Publish();

  const ModelConfig config_;
  const FlopsModel flops_;
  EngineInfo info_;

  // Engine thread.
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Trainer> trainer_;
  EngineStats stats_;
  std::vector<std::function<void()>> completions_;
  uint64_t preempt_every_ = 0;
  uint64_t steps_ = 0;  // of the sampler
  AdapterHandle next_adapter_ = 1;
  WorkShares shares_;
  double decode_wait_ = 0;      // FLOPs of training since the last step, while sampling had work
  uint64_t sampled_lanes_ = 0;  // lane_changes() after the last step

  // Doors.
  TenantDesk desk_;  // guards itself
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Command> commands_;
  bool stopping_ = false;
  std::unordered_map<AdapterHandle, Known> known_;
  std::unordered_map<PolicyHandle, Policy> policies_;
  PolicyHandle next_policy_ = 1;
  EngineStats published_stats_;
  std::atomic<RequestId> next_request_{1};
  std::atomic<bool> memory_changed_{false};

  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_ENGINE_IMPL_H_
