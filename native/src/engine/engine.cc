#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/cpu_count.h"
#include "engine/cpu_executor.h"
#include "engine/fault_of.h"
#include "engine/sampler.h"
#include "engine/tenant_desk.h"
#include "engine/trainer.h"
#include "engine/validate.h"
#include "engine/work_shares.h"
#include "util/thread_pool.h"

namespace hotbed {

namespace {

constexpr char kNumericsId[] = "f32-1";
constexpr size_t kMiB = size_t{1} << 20;
// A sampling step reads every weight however few rows it has; below so many rows its cost does not
// fall.
constexpr double kLeastStepRows = 16;

const Fault& Disposed() {
  static const Fault fault{FaultCode::kDisposed, "the engine was disposed"};
  return fault;
}

EngineFault UnknownHandle(const char* field, uint64_t handle) {
  return EngineFault(FaultCode::kInvalidArgument, std::string(field) + ": handle " +
                                                      std::to_string(handle) +
                                                      " is unknown, dropped or released");
}

kernels::Path PathOf(const std::optional<std::string>& word) {
  if (!word) return kernels::bestPath();
  for (const char* known : {"scalar", "avx2", "avx512", "reference"}) {
    if (*word != known) continue;
    const kernels::Path path = kernels::parsePath(known);
    kernels::kernels(path);  // throws unsupported_cpu naming what is missing
    return path;
  }
  throw EngineFault(FaultCode::kInvalidArgument,
                    "kernels: expected scalar, avx2, avx512 or reference, got '" + *word + "'");
}

CpuExecutorOptions ExecutorOptions(const EngineOptions& options) {
  ValidateOptions(options);
  CpuExecutorOptions executor;
  executor.path = PathOf(options.kernels);
  executor.threads = options.threads ? *options.threads : PhysicalCores();
  executor.activation_budget_bytes = static_cast<size_t>(options.activation_budget_mib) * kMiB;
  executor.slice_flops = options.train_slice_flops;
  executor.mutation = options.mutation;
  return executor;
}

// A sampling call at its most.
PendingWork WorkOf(const ModelConfig& config, const SampleRequest& request) {
  const uint64_t room = static_cast<uint64_t>(config.max_position) - request.prompt.size();
  const uint64_t drawn = std::min<uint64_t>(static_cast<uint64_t>(request.params.max_tokens), room);
  PendingWork work;
  work.sampling_calls = 1;
  work.sampling_tokens = request.prompt.size() + request.seeds.size() * drawn;
  return work;
}

PendingWork WorkOf(const std::vector<Datum>& datums) {
  const auto bytes = [](const auto& values) { return values ? values->size() * 4 : 0; };
  PendingWork work;
  for (const Datum& datum : datums) {
    work.training_rows += datum.prompt.size() - 1;
    work.training_bytes += datum.prompt.size() * 4;
    for (const Branch& branch : datum.branches) {
      work.training_rows += branch.tokens.size();
      work.training_bytes += branch.tokens.size() * 4 + bytes(branch.weights) +
                             bytes(branch.logprobs) + bytes(branch.advantages) +
                             bytes(branch.targets) + bytes(branch.gradients) + bytes(branch.mask);
    }
  }
  return work;
}

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

}  // namespace

// Invariants: everything under "engine thread" is touched by that thread alone once it runs;
// everything under "doors" is guarded by its mutex and may be used from any thread.
class Engine::Impl {
 public:
  Impl(const EngineOptions& options, ModelConfig config, ModelWeights weights,
       std::string base_digest)
      : config_(std::move(config)),
        flops_(config_),
        shares_(options.decode_floor, options.training_floor, options.max_wait_flops),
        desk_(options.limits) {
    const CpuExecutorOptions executor_options = ExecutorOptions(options);
    const uint64_t parameter_count = weights.parameter_count;
    auto executor = std::make_unique<CpuExecutor>(executor_options, config_, std::move(weights));
    const size_t page_count =
        static_cast<size_t>(options.kv_cache_mib) * kMiB / executor->page_bytes();
    if (page_count == 0) {
      throw EngineFault(FaultCode::kInvalidArgument,
                        "kvCacheMiB: one key/value page of this model takes " +
                            std::to_string(executor->page_bytes() / kMiB + 1) + " MiB");
    }
    info_.base_digest = std::move(base_digest);
    info_.numerics_id = kNumericsId;
    info_.kernels = kernels::kernels(executor_options.path).name;
    info_.threads = static_cast<int>(executor_options.threads);
    info_.architecture = config_.architecture;
    info_.hidden_size = config_.hidden_size;
    info_.layers = config_.num_layers;
    info_.vocabulary_size = config_.vocab_size;
    info_.tokenizer_size = config_.tokenizer_size;
    info_.context_length = config_.max_position;
    if (config_.bos_token_id >= 0) info_.bos_token_id = config_.bos_token_id;
    info_.eos_token_ids = config_.eos_token_ids;
    info_.parameter_count = parameter_count;
    info_.base_bytes = executor->base_bytes();

    preempt_every_ = static_cast<uint64_t>(options.preempt_every);
    executor_ = std::move(executor);
    sampler_ = std::make_unique<Sampler>(config_, executor_.get(), page_count,
                                         options.max_step_rows, options.max_wait_flops, &stats_);
    trainer_ = std::make_unique<Trainer>(config_, executor_.get(), options.max_train_rows,
                                         options.max_wait_flops, &stats_);
    thread_ = std::thread([this] { Loop(); });
  }

  ~Impl() {
    Stop();
    thread_.join();
  }

  const EngineInfo& info() const { return info_; }
  const ModelConfig& config() const { return config_; }

  EngineStats stats() const {
    const PendingWork pending = desk_.pending();
    std::lock_guard<std::mutex> lock(mutex_);
    EngineStats stats = published_stats_;
    stats.policies = policies_.size();
    stats.busy_refusals = desk_.refusals();
    stats.pending_sampling_calls = pending.sampling_calls;
    stats.pending_sampling_tokens = pending.sampling_tokens;
    stats.pending_training_rows = pending.training_rows;
    stats.pending_data_bytes = pending.training_bytes;
    stats.oldest_sampling_ms = desk_.oldest_sampling_ms();
    stats.oldest_training_ms = desk_.oldest_training_ms();
    return stats;
  }

  TenantDesk& desk() { return desk_; }

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
  void Post(std::function<void()> run, std::function<void(const Fault&)> reject) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!stopping_) {
        commands_.push_back({std::move(run), std::move(reject)});
        wake_.notify_one();
        return;
      }
    }
    reject(Disposed());
  }

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

  void Stop() {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }

  void AddAdapter(std::unique_ptr<AdapterState> state, AccountId account,
                  const Done<AdapterHandle>& done) {
    const AdapterHandle handle = next_adapter_++;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      known_[handle] = {*state->spec, account};
    }
    trainer_->Add(handle, account, std::move(state));
    memory_changed_ = true;
    done(handle);
  }

  void DropAdapter(AdapterHandle handle) {
    TrainerOf(handle).Drop(handle);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      known_.erase(handle);
    }
    memory_changed_ = true;
  }

  void Train(bool backward, std::optional<AdapterHandle> adapter, const std::string& tenant,
             const Loss& loss, std::vector<Datum> datums, const Done<ForwardBackwardResult>& done) {
    Done<ForwardBackwardResult> admitted;
    AccountId account = 0;
    const auto check = [&] {
      ValidateTrainingCall(config_, loss, datums);
      // An unknown adapter is refused in its turn.
      const std::optional<Known> known = adapter ? FindKnown(*adapter) : std::nullopt;
      account = adapter ? (known ? known->account : 0) : desk_.AccountOf(tenant);
      admitted = Admitted(account, WorkOf(datums), done);
    };
    if (!Passes(done, check)) return;
    auto call = std::make_shared<TrainingCall>();
    call->backward = backward;
    call->loss = loss;
    call->datums = std::move(datums);
    Call(admitted, [this, adapter, account, call](const Done<ForwardBackwardResult>& reply) {
      call->done = reply;
      auto own = [&] { return std::make_unique<TrainingCall>(std::move(*call)); };
      if (adapter) {
        TrainerOf(*adapter).Run(*adapter, own());
      } else {
        trainer_->RunBase(account, own());
      }
    });
  }

  PolicyHandle AddPolicy(AdapterHandle adapter, const AdapterState& state) {
    std::lock_guard<std::mutex> lock(mutex_);
    const PolicyHandle handle = next_policy_++;
    policies_[handle] = {state.weights, adapter, known_.at(adapter).account};
    memory_changed_ = true;
    return handle;
  }

  void Release(PolicyHandle policy) {
    std::shared_ptr<const AdapterWeights> last;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto found = policies_.find(policy);
      if (found == policies_.end()) return;
      last = std::move(found->second.weights);
      policies_.erase(found);
    }
    last.reset();  // before the engine thread looks for what nobody holds any more
    std::lock_guard<std::mutex> lock(mutex_);
    memory_changed_ = true;
    wake_.notify_one();
  }

  // A pinned state: whose adapter's, who pays.
  struct Policy {
    std::shared_ptr<const AdapterWeights> weights;
    AdapterHandle adapter = 0;
    AccountId account = 0;
  };
  // Throws EngineFault invalid_argument for an unknown handle.
  Policy PolicyOf(PolicyHandle policy) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = policies_.find(policy);
    if (found == policies_.end()) throw UnknownHandle("policy", policy);
    return found->second;
  }

  // What the doors know of a live adapter.
  struct Known {
    AdapterSpec spec;
    AccountId account = 0;
  };
  std::optional<Known> FindKnown(AdapterHandle adapter) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(adapter);
    if (found == known_.end()) return std::nullopt;
    return found->second;
  }

  void SetWeight(AccountId account, double weight) {
    sampler_->shares().SetWeight(account, weight);
    trainer_->shares().SetWeight(account, weight);
  }

  std::vector<TenantStats> Tenants() const {
    const TenantShares& sampling = sampler_->shares();
    const TenantShares& training = trainer_->shares();
    std::vector<TenantStats> tenants;
    for (std::string& name : desk_.Names()) {
      const auto account = static_cast<AccountId>(tenants.size());
      TenantStats tenant;
      tenant.tenant = std::move(name);
      tenant.weight = sampling.weight(account);
      tenant.sampling_flops = sampling.served(account);
      tenant.training_flops = training.served(account);
      tenant.sampling_steps = sampling.plans(account);
      tenant.training_passes = training.plans(account);
      tenant.sampling_lag = sampling.lag(account);
      tenant.training_lag = training.lag(account);
      tenant.overdue_services = sampling.overdue(account) + training.overdue(account);
      tenant.busy_refusals = desk_.refusals(account);
      tenant.pending = desk_.pending(account);
      tenants.push_back(std::move(tenant));
    }
    trainer_->ForEach([&](AdapterHandle, AccountId account, const AdapterState&, size_t) {
      ++tenants[account].adapters;
    });
    return tenants;
  }

  // Of one adapter, or (nullopt) of all; a buffer that several hold is counted once.
  AdapterMemory MemoryOf(std::optional<AdapterHandle> only) const {
    AdapterMemory memory;
    std::unordered_set<const AdapterWeights*> counted;
    const auto packed = [&](const AdapterWeights& weights) {
      if (weights.executor_copy) memory.packed_bytes += weights.values.bytes();
    };
    trainer_->ForEach(
        [&](AdapterHandle handle, AccountId, const AdapterState& state, size_t copies) {
          if (only && handle != *only) return;
          counted.insert(state.weights.get());
          memory.state_bytes += state.weights->values.bytes() + state.m.bytes() + state.v.bytes() +
                                state.gradient.bytes();
          memory.in_flight_bytes += copies;
          packed(*state.weights);
        });
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& entry : policies_) {
      const Policy& policy = entry.second;
      if (only && policy.adapter != *only) continue;
      if (!counted.insert(policy.weights.get()).second) continue;
      memory.policy_bytes += policy.weights->values.bytes();
      packed(*policy.weights);
    }
    return memory;
  }

  RequestId NextRequest() { return next_request_++; }

  Executor& executor() { return *executor_; }
  Sampler& sampler() { return *sampler_; }
  // The trainer, for a call on this adapter. Throws EngineFault invalid_argument for an unknown
  // handle.
  Trainer& TrainerOf(AdapterHandle adapter) {
    if (!trainer_->Has(adapter)) throw UnknownHandle("adapter", adapter);
    return *trainer_;
  }

 private:
  struct Command {
    std::function<void()> run;
    std::function<void(const Fault&)> reject;
  };

  // Everything that has arrived is taken before a step is planned, so that calls made together run
  // together.
  void Loop() {
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

  void Answer() {
    if (!HasWork()) memory_changed_ = true;  // what was made for the work is gone
    Publish();
    RunCompletions();
  }

  void RunCompletions() {
    for (const std::function<void()>& completion : completions_) completion();
    completions_.clear();
  }

  bool HasWork() const { return sampler_->has_work() || trainer_->has_pass(); }

  void StepOnce() {
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

  void Publish() {
    stats_.active_sequences = sampler_->active_sequences();
    stats_.kv_bytes = sampler_->used_pages() * executor_->page_bytes();
    stats_.adapters = trainer_->adapters();
    stats_.overdue_services = shares_.overdue();
    stats_.kv_allocated_bytes = executor_->kv_allocated_bytes();
    stats_.scratch_bytes = executor_->scratch_bytes() + keptBytes();
    if (memory_changed_.exchange(false)) {
      sampler_->DropUnreachable();
      const AdapterMemory memory = MemoryOf(std::nullopt);
      stats_.state_bytes = memory.state_bytes;
      stats_.in_flight_bytes = memory.in_flight_bytes;
      stats_.policy_bytes = memory.policy_bytes;
      stats_.packed_bytes = memory.packed_bytes;
      stats_.adapter_bytes =
          memory.state_bytes + memory.in_flight_bytes + memory.policy_bytes + memory.packed_bytes;
    }
    // After what nobody can ask for again is gone.
    stats_.prefix_pages = sampler_->cache().blocks();
    stats_.prefix_evictions = sampler_->cache().evictions();
    std::lock_guard<std::mutex> lock(mutex_);
    published_stats_ = stats_;
  }

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

Engine::Engine(const EngineOptions& options, ModelConfig config, ModelWeights weights,
               std::string base_digest) {
  try {
    impl_ = std::make_unique<Impl>(options, std::move(config), std::move(weights),
                                   std::move(base_digest));
  } catch (...) {
    const Fault fault = FaultOf(std::current_exception());
    throw EngineFault(fault.code, fault.message);
  }
}

Engine::~Engine() = default;

const EngineInfo& Engine::info() const { return impl_->info(); }
EngineStats Engine::stats() const { return impl_->stats(); }
const ModelConfig& Engine::config() const { return impl_->config(); }

void Engine::CreateAdapter(AdapterSpec spec, Done<AdapterHandle> done, const std::string& tenant) {
  if (!Passes(done, [&] { ValidateSpec(spec); })) return;
  const AccountId account = impl_->desk().AccountOf(tenant);
  impl_->Call(done, [impl = impl_.get(), spec, account](const Done<AdapterHandle>& reply) {
    auto state = ZeroAdapterState(impl->config(), spec);
    impl->executor().InitializeAdapter(state.get());
    impl->AddAdapter(std::move(state), account, reply);
  });
}

void Engine::AdoptState(std::unique_ptr<AdapterState> state, Done<AdapterHandle> done,
                        const std::string& tenant) {
  const auto check = [&] {
    ValidateSpec(*state->spec);
    const AdapterLayout layout(impl_->config(), *state->spec);
    const size_t size = layout.buffer_size();
    if (state->weights->values.size() != size || state->m.size() != size ||
        state->v.size() != size || state->gradient.size() != size) {
      throw EngineFault(FaultCode::kBaseMismatch,
                        "state: its tensors do not have this base's shapes");
    }
  };
  if (!Passes(done, check)) return;
  if (state->weights.use_count() != 1) {  // another holder may belong to another engine
    state->weights = CloneOf(*state->weights);
  }
  const AccountId account = impl_->desk().AccountOf(tenant);
  auto shared = std::make_shared<std::unique_ptr<AdapterState>>(std::move(state));
  impl_->Call(done, [impl = impl_.get(), shared, account](const Done<AdapterHandle>& reply) {
    impl->AddAdapter(std::move(*shared), account, reply);
  });
}

AdapterSpec Engine::SpecOf(AdapterHandle adapter) const {
  const auto known = impl_->FindKnown(adapter);
  if (!known) throw UnknownHandle("adapter", adapter);
  return known->spec;
}

void Engine::DropAdapter(AdapterHandle adapter, Done<Unit> done) {
  impl_->Call(done, [impl = impl_.get(), adapter](const Done<Unit>& reply) {
    impl->DropAdapter(adapter);
    reply(Unit{});
  });
}

void Engine::Pin(AdapterHandle adapter, Done<PolicyHandle> done) {
  impl_->Call(done, [impl = impl_.get(), adapter](const Done<PolicyHandle>& reply) {
    impl->TrainerOf(adapter).Visit(
        adapter,
        [impl, adapter, reply](const AdapterState& state) {
          reply(impl->AddPolicy(adapter, state));
        },
        [reply](const Fault& fault) { reply(fault); });
  });
}

void Engine::Release(PolicyHandle policy) { impl_->Release(policy); }

std::shared_ptr<const AdapterWeights> Engine::WeightsOf(PolicyHandle policy) const {
  return impl_->PolicyOf(policy).weights;
}

void Engine::CopyState(AdapterHandle adapter, Done<std::shared_ptr<const AdapterState>> done) {
  using Copy = std::shared_ptr<const AdapterState>;
  impl_->Call(done, [impl = impl_.get(), adapter](const Done<Copy>& reply) {
    impl->TrainerOf(adapter).Visit(
        adapter, [reply](const AdapterState& state) { reply(Copy(CopyOf(state))); },
        [reply](const Fault& fault) { reply(fault); });
  });
}

RequestId Engine::Sample(SampleRequest request, Done<SampleResult> done, TokensListener on_tokens) {
  const RequestId id = impl_->NextRequest();
  auto call = std::make_shared<SampleCall>();
  Done<SampleResult> admitted;
  const auto check = [&] {
    ValidateSampleRequest(impl_->config(), request);
    if (request.policy) {
      auto policy = impl_->PolicyOf(*request.policy);
      call->weights = std::move(policy.weights);
      call->account = policy.account;
    }
    if (!request.tenant.empty()) call->account = impl_->desk().AccountOf(request.tenant);
    admitted = impl_->Admitted(call->account, WorkOf(impl_->config(), request), done);
  };
  if (!Passes(done, check)) return id;
  call->id = id;
  call->request = std::move(request);
  call->on_tokens = std::move(on_tokens);
  impl_->Call(admitted, [impl = impl_.get(), call](const Done<SampleResult>& reply) {
    call->done = reply;
    impl->sampler().Submit(std::make_unique<SampleCall>(std::move(*call)));
  });
  return id;
}

void Engine::StopSequence(RequestId request, size_t sequence, size_t length) {
  impl_->Post([impl = impl_.get(), request, sequence,
               length] { impl->sampler().StopSequence(request, sequence, length); },
              [](const Fault&) {});
}

void Engine::Cancel(RequestId request) {
  impl_->Post([impl = impl_.get(), request] { impl->sampler().Cancel(request); },
              [](const Fault&) {});
}

void Engine::Forward(std::optional<AdapterHandle> adapter, Loss loss, std::vector<Datum> datums,
                     Done<ForwardBackwardResult> done, const std::string& tenant) {
  impl_->Train(false, adapter, tenant, loss, std::move(datums), done);
}

void Engine::ForwardBackward(AdapterHandle adapter, Loss loss, std::vector<Datum> datums,
                             Done<ForwardBackwardResult> done) {
  impl_->Train(true, adapter, "", loss, std::move(datums), done);
}

void Engine::OptimStep(AdapterHandle adapter, AdamParams params, Done<OptimStepResult> done) {
  if (!Passes(done, [&] { ValidateAdamParams(params); })) return;
  impl_->Call(done, [impl = impl_.get(), adapter, params](const Done<OptimStepResult>& reply) {
    impl->TrainerOf(adapter).OptimStep(adapter, params, reply);
  });
}

void Engine::Logits(std::optional<PolicyHandle> policy, std::vector<int32_t> tokens,
                    Done<std::vector<float>> done) {
  auto call = std::make_shared<SampleCall>();
  Done<std::vector<float>> admitted;
  const auto check = [&] {
    ValidateTokens(impl_->config(), "tokens", tokens);
    if (policy) {
      auto pinned = impl_->PolicyOf(*policy);
      call->weights = std::move(pinned.weights);
      call->account = pinned.account;
    }
    PendingWork work;
    work.sampling_calls = 1;
    work.sampling_tokens = tokens.size();
    admitted = impl_->Admitted(call->account, work, done);
  };
  if (!Passes(done, check)) return;
  call->id = impl_->NextRequest();
  call->request.prompt = std::move(tokens);
  impl_->Call(admitted, [impl = impl_.get(), call](const Done<std::vector<float>>& reply) {
    call->logits_done = reply;
    impl->sampler().Submit(std::make_unique<SampleCall>(std::move(*call)));
  });
}

void Engine::SetTenantWeight(const std::string& tenant, double weight) {
  if (!(weight >= 1e-3 && weight <= 1e6)) {
    throw EngineFault(
        FaultCode::kInvalidArgument,
        "weight: expected a number from 0.001 to 1000000, got " + std::to_string(weight));
  }
  const AccountId account = impl_->desk().AccountOf(tenant);
  impl_->Post([impl = impl_.get(), account, weight] { impl->SetWeight(account, weight); },
              [](const Fault&) {});
}

void Engine::Tenants(Done<std::vector<TenantStats>> done) {
  impl_->Call(done, [impl = impl_.get()](const Done<std::vector<TenantStats>>& reply) {
    reply(impl->Tenants());
  });
}

void Engine::MemoryOf(AdapterHandle adapter, Done<AdapterMemory> done) {
  impl_->Call(done, [impl = impl_.get(), adapter](const Done<AdapterMemory>& reply) {
    impl->TrainerOf(adapter);  // refuses unknown ones
    reply(impl->MemoryOf(adapter));
  });
}

uint64_t Engine::PolicyBytes(PolicyHandle policy) const {
  return impl_->PolicyOf(policy).weights->values.bytes();
}

void Engine::Stop() { impl_->Stop(); }

}  // namespace hotbed
