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
#include "engine/trainer.h"
#include "engine/validate.h"
#include "util/thread_pool.h"

namespace hotbed {

namespace {

constexpr char kNumericsId[] = "f32-1";
constexpr size_t kMiB = size_t{1} << 20;
// A sampling step reads every weight however few rows it has; below so many rows its cost does not
// fall.
constexpr size_t kLeastStepCost = 16;

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
      : config_(std::move(config)) {
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

    executor_ = std::move(executor);
    sampler_ = std::make_unique<Sampler>(config_, executor_.get(), page_count,
                                         options.max_step_rows, &stats_);
    trainer_ = std::make_unique<Trainer>(executor_.get(), options.max_train_rows, &stats_);
    thread_ = std::thread([this] { Loop(); });
  }

  ~Impl() {
    Stop();
    thread_.join();
  }

  const EngineInfo& info() const { return info_; }
  const ModelConfig& config() const { return config_; }

  EngineStats stats() const {
    std::lock_guard<std::mutex> lock(mutex_);
    EngineStats stats = published_stats_;
    stats.policies = policies_.size();
    return stats;
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

  void AddAdapter(std::unique_ptr<AdapterState> state, const Done<AdapterHandle>& done) {
    const AdapterHandle handle = next_adapter_++;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      specs_[handle] = *state->spec;
    }
    trainer_->Add(handle, std::move(state));
    memory_changed_ = true;
    done(handle);
  }

  void DropAdapter(AdapterHandle handle) {
    TrainerOf(handle).Drop(handle);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      specs_.erase(handle);
    }
    memory_changed_ = true;
  }

  void Train(bool backward, std::optional<AdapterHandle> adapter, const Loss& loss,
             std::vector<Datum> datums, const Done<ForwardBackwardResult>& done) {
    if (!Passes(done, [&] { ValidateTrainingCall(config_, loss, datums); })) return;
    auto call = std::make_shared<TrainingCall>();
    call->backward = backward;
    call->loss = loss;
    call->datums = std::move(datums);
    Call(done, [this, adapter, call](const Done<ForwardBackwardResult>& reply) {
      Trainer& trainer = adapter ? TrainerOf(*adapter) : *trainer_;
      call->done = reply;
      trainer.Run(adapter.value_or(0), std::make_unique<TrainingCall>(std::move(*call)));
    });
  }

  PolicyHandle AddPolicy(std::shared_ptr<const AdapterWeights> weights) {
    std::lock_guard<std::mutex> lock(mutex_);
    const PolicyHandle handle = next_policy_++;
    policies_[handle] = std::move(weights);
    memory_changed_ = true;
    return handle;
  }

  void Release(PolicyHandle policy) {
    std::shared_ptr<const AdapterWeights> last;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto found = policies_.find(policy);
      if (found == policies_.end()) return;
      last = std::move(found->second);
      policies_.erase(found);
    }
    last.reset();  // before the engine thread looks for what nobody holds any more
    std::lock_guard<std::mutex> lock(mutex_);
    memory_changed_ = true;
    wake_.notify_one();
  }

  std::shared_ptr<const AdapterWeights> FindPolicy(PolicyHandle policy) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = policies_.find(policy);
    return found == policies_.end() ? nullptr : found->second;
  }

  std::optional<AdapterSpec> FindSpec(AdapterHandle adapter) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = specs_.find(adapter);
    if (found == specs_.end()) return std::nullopt;
    return found->second;
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

  // Sampling and training take turns by what they have cost so far; the one that was idle starts at
  // the other's mark.
  void StepOnce() {
    const bool sampling = sampler_->has_work();
    const bool training = trainer_->has_pass();
    if (sampling && (!training || sampling_cost_ <= training_cost_)) {
      sampling_cost_ += static_cast<double>(std::max(sampler_->Step(), kLeastStepCost));
    } else if (training) {
      training_cost_ += trainer_->Work();
      trainer_->RunImmediate();
    }
    if (!sampling) sampling_cost_ = std::max(sampling_cost_, training_cost_);
    if (!training) training_cost_ = std::max(training_cost_, sampling_cost_);
  }

  void Publish() {
    stats_.active_sequences = sampler_->active_sequences();
    stats_.kv_bytes = sampler_->used_pages() * executor_->page_bytes();
    stats_.adapters = trainer_->adapters();
    if (memory_changed_.exchange(false)) {
      sampler_->DropUnreachable();
      stats_.adapter_bytes = AdapterBytes();
    }
    stats_.prefix_pages = sampler_->cache().blocks();
    stats_.prefix_evictions = sampler_->cache().evictions();
    std::lock_guard<std::mutex> lock(mutex_);
    published_stats_ = stats_;
  }

  // Moments, gradients, and each distinct weight buffer once.
  uint64_t AdapterBytes() const {
    uint64_t bytes = 0;
    std::unordered_set<const AdapterWeights*> counted;
    const auto add = [&](const AdapterWeights* weights) {
      if (!counted.insert(weights).second) return;
      bytes += weights->values.bytes();
      if (weights->executor_copy) bytes += weights->values.bytes();
    };
    trainer_->ForEach([&](const AdapterState& state) {
      bytes += state.m.bytes() + state.v.bytes() + state.gradient.bytes();
      add(state.weights.get());
    });
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& policy : policies_) add(policy.second.get());
    return bytes;
  }

  const ModelConfig config_;
  EngineInfo info_;

  // Engine thread.
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Trainer> trainer_;
  EngineStats stats_;
  std::vector<std::function<void()>> completions_;
  AdapterHandle next_adapter_ = 1;
  double sampling_cost_ = 0;
  double training_cost_ = 0;

  // Doors.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Command> commands_;
  bool stopping_ = false;
  std::unordered_map<AdapterHandle, AdapterSpec> specs_;
  std::unordered_map<PolicyHandle, std::shared_ptr<const AdapterWeights>> policies_;
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

void Engine::CreateAdapter(AdapterSpec spec, Done<AdapterHandle> done) {
  if (!Passes(done, [&] { ValidateSpec(spec); })) return;
  impl_->Call(done, [impl = impl_.get(), spec](const Done<AdapterHandle>& reply) {
    auto state = ZeroAdapterState(impl->config(), spec);
    impl->executor().InitializeAdapter(state.get());
    impl->AddAdapter(std::move(state), reply);
  });
}

void Engine::AdoptState(std::unique_ptr<AdapterState> state, Done<AdapterHandle> done) {
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
  auto shared = std::make_shared<std::unique_ptr<AdapterState>>(std::move(state));
  impl_->Call(done, [impl = impl_.get(), shared](const Done<AdapterHandle>& reply) {
    impl->AddAdapter(std::move(*shared), reply);
  });
}

AdapterSpec Engine::SpecOf(AdapterHandle adapter) const {
  const std::optional<AdapterSpec> spec = impl_->FindSpec(adapter);
  if (!spec) throw UnknownHandle("adapter", adapter);
  return *spec;
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
        [impl, reply](const AdapterState& state) { reply(impl->AddPolicy(state.weights)); },
        [reply](const Fault& fault) { reply(fault); });
  });
}

void Engine::Release(PolicyHandle policy) { impl_->Release(policy); }

std::shared_ptr<const AdapterWeights> Engine::WeightsOf(PolicyHandle policy) const {
  auto weights = impl_->FindPolicy(policy);
  if (!weights) throw UnknownHandle("policy", policy);
  return weights;
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
  std::shared_ptr<const AdapterWeights> weights;
  const auto check = [&] {
    ValidateSampleRequest(impl_->config(), request);
    if (request.policy) weights = WeightsOf(*request.policy);
  };
  if (!Passes(done, check)) return id;
  auto call = std::make_shared<SampleCall>();
  call->id = id;
  call->weights = std::move(weights);
  call->request = std::move(request);
  call->on_tokens = std::move(on_tokens);
  impl_->Call(done, [impl = impl_.get(), call](const Done<SampleResult>& reply) {
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
                     Done<ForwardBackwardResult> done) {
  impl_->Train(false, adapter, loss, std::move(datums), done);
}

void Engine::ForwardBackward(AdapterHandle adapter, Loss loss, std::vector<Datum> datums,
                             Done<ForwardBackwardResult> done) {
  impl_->Train(true, adapter, loss, std::move(datums), done);
}

void Engine::OptimStep(AdapterHandle adapter, AdamParams params, Done<OptimStepResult> done) {
  if (!Passes(done, [&] { ValidateAdamParams(params); })) return;
  impl_->Call(done, [impl = impl_.get(), adapter, params](const Done<OptimStepResult>& reply) {
    impl->TrainerOf(adapter).OptimStep(adapter, params, reply);
  });
}

void Engine::Logits(std::optional<PolicyHandle> policy, std::vector<int32_t> tokens,
                    Done<std::vector<float>> done) {
  std::shared_ptr<const AdapterWeights> weights;
  const auto check = [&] {
    ValidateTokens(impl_->config(), "tokens", tokens);
    if (policy) weights = WeightsOf(*policy);
  };
  if (!Passes(done, check)) return;
  auto call = std::make_shared<SampleCall>();
  call->id = impl_->NextRequest();
  call->weights = std::move(weights);
  call->request.prompt = std::move(tokens);
  impl_->Call(done, [impl = impl_.get(), call](const Done<std::vector<float>>& reply) {
    call->logits_done = reply;
    impl->sampler().Submit(std::make_unique<SampleCall>(std::move(*call)));
  });
}

void Engine::Stop() { impl_->Stop(); }

}  // namespace hotbed
