#include "engine/engine_impl.h"

#include "engine/cpu_count.h"
#include "engine/cpu_executor.h"
#include "engine/numerics.h"
#include "engine/pending_work.h"
#include "engine/validate.h"

namespace hotbed {

namespace {

constexpr size_t kMiB = size_t{1} << 20;

CpuExecutorOptions ExecutorOptions(const EngineOptions& options) {
  ValidateOptions(options);
  CpuExecutorOptions executor;
  const NumericsChoice choice = ChooseNumerics(options.numerics, options.kernels);
  executor.numerics = choice.numerics;
  executor.path = choice.path;
  executor.threads = options.threads ? *options.threads : PhysicalCores();
  executor.activation_budget_bytes = static_cast<size_t>(options.activation_budget_mib) * kMiB;
  executor.slice_flops = options.train_slice_flops;
  executor.mutation = options.mutation;
  return executor;
}

}  // namespace

const Fault& Disposed() {
  static const Fault fault{FaultCode::kDisposed, "the engine was disposed"};
  return fault;
}

EngineFault UnknownHandle(const char* field, uint64_t handle) {
  return EngineFault(FaultCode::kInvalidArgument, std::string(field) + ": handle " +
                                                      std::to_string(handle) +
                                                      " is unknown, dropped or released");
}

Engine::Impl::Impl(const EngineOptions& options, ModelConfig config, ModelWeights weights,
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
  info_.numerics_id = NumericsId(executor_options.numerics);
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
  sampler_ = std::make_unique<Sampler>(config_, executor_.get(), page_count, options.max_step_rows,
                                       options.max_wait_flops, &stats_);
  trainer_ = std::make_unique<Trainer>(config_, executor_.get(), options.max_train_rows,
                                       options.max_wait_flops, &stats_);
  thread_ = std::thread([this] { Loop(); });
}

Engine::Impl::~Impl() {
  Stop();
  thread_.join();
}

void Engine::Impl::Post(std::function<void()> run, std::function<void(const Fault&)> reject) {
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

void Engine::Impl::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  stopping_ = true;
  wake_.notify_one();
}

void Engine::Impl::AddAdapter(std::unique_ptr<AdapterState> state, AccountId account,
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

void Engine::Impl::DropAdapter(AdapterHandle handle) {
  TrainerOf(handle).Drop(handle);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    known_.erase(handle);
  }
  memory_changed_ = true;
}

Trainer& Engine::Impl::TrainerOf(AdapterHandle adapter) {
  if (!trainer_->Has(adapter)) throw UnknownHandle("adapter", adapter);
  return *trainer_;
}

std::optional<Engine::Impl::Known> Engine::Impl::FindKnown(AdapterHandle adapter) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = known_.find(adapter);
  if (found == known_.end()) return std::nullopt;
  return found->second;
}

PolicyHandle Engine::Impl::AddPolicy(AdapterHandle adapter, const AdapterState& state) {
  std::lock_guard<std::mutex> lock(mutex_);
  const PolicyHandle handle = next_policy_++;
  policies_[handle] = {state.weights, adapter, known_.at(adapter).account};
  memory_changed_ = true;
  return handle;
}

Engine::Impl::Policy Engine::Impl::PolicyOf(PolicyHandle policy) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = policies_.find(policy);
  if (found == policies_.end()) throw UnknownHandle("policy", policy);
  return found->second;
}

void Engine::Impl::Release(PolicyHandle policy) {
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

void Engine::Impl::Train(bool backward, std::optional<AdapterHandle> adapter,
                         const std::string& tenant, const Loss& loss, std::vector<Datum> datums,
                         const Done<ForwardBackwardResult>& done) {
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

void Engine::Impl::SetWeight(AccountId account, double weight) {
  sampler_->shares().SetWeight(account, weight);
  trainer_->shares().SetWeight(account, weight);
}

}  // namespace hotbed
