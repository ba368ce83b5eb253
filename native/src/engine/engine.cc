// The doors: arguments are checked here, on the caller's thread; the rest runs on the engine
// thread.
#include "engine/engine.h"

#include <exception>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/pending_work.h"
#include "engine/validate.h"

namespace hotbed {

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
