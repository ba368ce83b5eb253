#include "bindings/engine_binding.h"

#include <utility>

#include "bindings/convert.h"
#include "bindings/engine_session.h"
#include "engine/adapter_files.h"
#include "engine/peft.h"
#include "engine/state_digest.h"

namespace hotbed {
namespace {

Argument At(const Napi::CallbackInfo& info, size_t index, const char* name) {
  return {info[index], name};
}

// Runs `start(done)` and gives the promise that `done` settles, from whichever thread.
// `convert(env, T&)` runs on the JavaScript thread. What `start` throws rejects the promise.
template <typename T, typename Start, typename Convert>
Napi::Value Promise(Napi::Env env, EngineSession& session, Start start, Convert convert) {
  const auto deferred = Napi::Promise::Deferred::New(env);
  Delivery& delivery = session.delivery();
  delivery.Begin(env);
  const Done<T> done = [&delivery, deferred, convert](Result<T> result) {
    const auto shared = std::make_shared<Result<T>>(std::move(result));
    delivery.Post([deferred, convert, shared](Napi::Env env) {
      if (shared->ok()) {
        deferred.Resolve(convert(env, shared->value()));
      } else {
        deferred.Reject(ToJsError(env, shared->fault()));
      }
    });
  };
  try {
    start(done);
  } catch (...) {
    done(CurrentFault());
  }
  return deferred.Promise();
}

template <typename T, typename Start>
Napi::Value Promise(Napi::Env env, EngineSession& session, Start start) {
  return Promise<T>(env, session, start,
                    [](Napi::Env env, const T& value) { return ToJs(env, value); });
}

// A call that answers at once.
template <typename Body>
Napi::Value Answer(Napi::Env env, Body body) {
  try {
    return body();
  } catch (...) {
    throw Napi::Error(env, ToJsError(env, CurrentFault()));
  }
}

// Computes a value on the file thread.
template <typename T, typename Body>
void OnFileThread(EngineSession& session, const Done<T>& done, Body body) {
  session.jobs().Post([done, body] {
    try {
      done(body());
    } catch (...) {
      done(CurrentFault());
    }
  });
}

using StateCopy = std::shared_ptr<const AdapterState>;

// Computes a value on the file thread from the adapter's state as of the calls made so far.
template <typename T, typename Body>
void FromState(EngineSession& session, AdapterHandle adapter, const Done<T>& done, Body body) {
  session.engine().CopyState(adapter, [&session, done, body](Result<StateCopy> copy) {
    if (!copy.ok()) {
      done(copy.fault());
      return;
    }
    const StateCopy state = copy.value();
    OnFileThread(session, done, [body, state] { return body(*state); });
  });
}

StateIdentity IdentityOf(const Engine& engine, uint64_t op_index) {
  return {engine.info().base_digest, engine.info().numerics_id, op_index};
}

// An adapter made from a file.
struct Adopted {
  AdapterHandle adapter;
  AdapterSpec spec;
  uint64_t op_index;
};

// Reads a state on the file thread and hands it to the engine.
template <typename Read>
void Adopt(EngineSession& session, const std::string& tenant, const Done<Adopted>& done,
           Read read) {
  session.jobs().Post([&session, tenant, done, read] {
    try {
      hotbed::Snapshot snapshot = read(session.loaded());
      const AdapterSpec spec = *snapshot.state->spec;
      const uint64_t op_index = snapshot.op_index;
      const auto adopted = [done, spec, op_index](Result<AdapterHandle> adapter) {
        if (adapter.ok()) {
          done(Adopted{adapter.value(), spec, op_index});
        } else {
          done(adapter.fault());
        }
      };
      session.loaded().AdoptState(std::move(snapshot.state), adopted, tenant);
    } catch (...) {
      done(CurrentFault());
    }
  });
}

Napi::Value AdoptedToJs(Napi::Env env, const Adopted& adopted) {
  auto object = Napi::Object::New(env);
  object.Set("adapter", ToJs(env, adopted.adapter));
  object.Set("opIndex", std::to_string(adopted.op_index));
  object.Set("spec", ToJs(env, adopted.spec));
  return object;
}

// Which buffer of a state `what` names.
using Pick = const AlignedBuffer<float>& (*)(const AdapterState&);
Pick ReadPick(const Argument& what) {
  const std::string name = ReadText(what);
  if (name == "weight") {
    return [](const AdapterState& state) -> const AlignedBuffer<float>& {
      return state.weights->values;
    };
  }
  if (name == "m") return [](const AdapterState& state) -> const auto& {
      return state.m;
    };
  if (name == "v") return [](const AdapterState& state) -> const auto& {
      return state.v;
    };
  if (name == "gradient") {
    return [](const AdapterState& state) -> const auto& { return state.gradient; };
  }
  throw EngineFault(FaultCode::kInvalidArgument,
                    what.path + ": expected weight, m, v or gradient; got \"" + name + "\"");
}

// [[PEFT name, values], ...]
Napi::Value TensorsToJs(Napi::Env env, const AdapterLayout& layout,
                        const AlignedBuffer<float>& buffer) {
  const auto order = PeftOrder(layout);
  const auto list = Napi::Array::New(env, order.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    const float* values = buffer.data() + order[i]->offset;
    const auto pair = Napi::Array::New(env, 2);
    pair.Set(0u, PeftTensorName(*order[i]));
    pair.Set(1u, ToJs(env, std::vector<float>(values, values + order[i]->size())));
    list.Set(i, pair);
  }
  return list;
}

}  // namespace

Napi::Function EngineBinding::Define(Napi::Env env) {
  return DefineClass(env, "NativeEngine",
                     {InstanceMethod("info", &EngineBinding::Info),
                      InstanceMethod("stats", &EngineBinding::Stats),
                      InstanceMethod("createAdapter", &EngineBinding::CreateAdapter),
                      InstanceMethod("specOf", &EngineBinding::SpecOf),
                      InstanceMethod("dropAdapter", &EngineBinding::DropAdapter),
                      InstanceMethod("pin", &EngineBinding::Pin),
                      InstanceMethod("release", &EngineBinding::Release),
                      InstanceMethod("sample", &EngineBinding::Sample),
                      InstanceMethod("stopSequence", &EngineBinding::StopSequence),
                      InstanceMethod("cancel", &EngineBinding::Cancel),
                      InstanceMethod("forward", &EngineBinding::Forward),
                      InstanceMethod("forwardBackward", &EngineBinding::ForwardBackward),
                      InstanceMethod("optimStep", &EngineBinding::OptimStep),
                      InstanceMethod("stateDigest", &EngineBinding::StateDigest),
                      InstanceMethod("weightsDigest", &EngineBinding::WeightsDigest),
                      InstanceMethod("snapshot", &EngineBinding::Snapshot),
                      InstanceMethod("restore", &EngineBinding::Restore),
                      InstanceMethod("exportWeights", &EngineBinding::ExportWeights),
                      InstanceMethod("peftConfig", &EngineBinding::PeftConfig),
                      InstanceMethod("importPeft", &EngineBinding::ImportPeft),
                      InstanceMethod("tensors", &EngineBinding::Tensors),
                      InstanceMethod("logits", &EngineBinding::Logits),
                      InstanceMethod("setTenantWeight", &EngineBinding::SetTenantWeight),
                      InstanceMethod("tenants", &EngineBinding::Tenants),
                      InstanceMethod("adapterMemory", &EngineBinding::AdapterMemory),
                      InstanceMethod("policyBytes", &EngineBinding::PolicyBytes),
                      InstanceMethod("dispose", &EngineBinding::Dispose)});
}

EngineBinding::EngineBinding(const Napi::CallbackInfo& info)
    : Napi::ObjectWrap<EngineBinding>(info),
      session_(std::make_unique<EngineSession>(info.Env(), info.This().As<Napi::Object>())) {}

EngineBinding::~EngineBinding() = default;

Napi::Value EngineBinding::Open(const Napi::CallbackInfo& info) {
  EngineSession& session = *session_;
  return Promise<Unit>(
      info.Env(), session,
      [&](const Done<Unit>& done) {
        const OpenOptions options = ReadOpenOptions(At(info, 0, "options"));
        OnFileThread(session, done, [&session, options] {
          session.Load(options);
          return Unit{};
        });
      },
      // The binding outlives its pending calls (Delivery's second rule).
      [this](Napi::Env, const Unit&) -> Napi::Value {
        session_->SetOpen();
        return Value();
      });
}

Napi::Value EngineBinding::Info(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return Answer(env, [&] { return ToJs(env, session_->engine().info()); });
}

Napi::Value EngineBinding::Stats(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return Answer(env, [&] { return ToJs(env, session_->engine().stats()); });
}

Napi::Value EngineBinding::CreateAdapter(const Napi::CallbackInfo& info) {
  return Promise<AdapterHandle>(info.Env(), *session_, [&](const Done<AdapterHandle>& done) {
    session_->engine().CreateAdapter(ReadAdapterSpec(At(info, 0, "spec")), done,
                                     ReadTenant(At(info, 1, "tenant")));
  });
}

Napi::Value EngineBinding::SpecOf(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return Answer(env, [&] {
    return ToJs(env, session_->engine().SpecOf(ReadHandle(At(info, 0, "adapter"))));
  });
}

Napi::Value EngineBinding::DropAdapter(const Napi::CallbackInfo& info) {
  EngineSession& session = *session_;
  return Promise<Unit>(info.Env(), session, [&](const Done<Unit>& done) {
    const AdapterHandle adapter = ReadHandle(At(info, 0, "adapter"));
    session.engine().DropAdapter(adapter, [&session, adapter, done](Result<Unit> result) {
      session.jobs().Post([&session, adapter] { session.ForgetDigests(adapter); });
      done(std::move(result));
    });
  });
}

Napi::Value EngineBinding::Pin(const Napi::CallbackInfo& info) {
  return Promise<PolicyHandle>(info.Env(), *session_, [&](const Done<PolicyHandle>& done) {
    session_->engine().Pin(ReadHandle(At(info, 0, "adapter")), done);
  });
}

Napi::Value EngineBinding::Release(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return Answer(env, [&] {
    session_->engine().Release(ReadHandle(At(info, 0, "policy")));
    return env.Undefined();
  });
}

Napi::Value EngineBinding::Sample(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  EngineSession& session = *session_;
  RequestId id = 0;
  const Napi::Value result =
      Promise<SampleResult>(env, session, [&](const Done<SampleResult>& done) {
        SampleRequest request = ReadSampleRequest(At(info, 0, "request"));
        if (!info[1].IsFunction()) {
          id = session.engine().Sample(std::move(request), done);
          return;
        }
        Engine& engine = session.engine();
        const uint64_t listener = session.AddListener(info[1].As<Napi::Function>());
        const Done<SampleResult> end = [&session, listener, done](Result<SampleResult> result) {
          session.delivery().Notify(
              [&session, listener](Napi::Env) { session.RemoveListener(listener); });
          done(std::move(result));
        };
        id = engine.Sample(std::move(request), end,
                           [&session, listener](const std::vector<SampledToken>& tokens) {
                             session.delivery().Notify([&session, listener, tokens](Napi::Env env) {
                               session.Tell(listener, ToJs(env, tokens));
                             });
                           });
      });
  auto call = Napi::Object::New(env);
  call.Set("id", ToJs(env, id));
  call.Set("result", result);
  return call;
}

Napi::Value EngineBinding::StopSequence(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return Answer(env, [&] {
    const Argument sequence = At(info, 1, "sequence");
    const int index = ReadInteger(sequence);
    if (index < 0) {
      throw EngineFault(FaultCode::kInvalidArgument, sequence.path + ": expected 0 or more");
    }
    session_->engine().StopSequence(ReadHandle(At(info, 0, "id")), static_cast<size_t>(index),
                                    ReadHandle(At(info, 2, "length")));
    return env.Undefined();
  });
}

Napi::Value EngineBinding::Cancel(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return Answer(env, [&] {
    session_->engine().Cancel(ReadHandle(At(info, 0, "id")));
    return env.Undefined();
  });
}

Napi::Value EngineBinding::Forward(const Napi::CallbackInfo& info) {
  return Promise<ForwardBackwardResult>(
      info.Env(), *session_, [&](const Done<ForwardBackwardResult>& done) {
        const Argument adapter = At(info, 0, "adapter");
        session_->engine().Forward(
            adapter.absent() ? std::nullopt : std::optional<AdapterHandle>(ReadHandle(adapter)),
            ReadLoss(At(info, 1, "loss")), ReadDatums(At(info, 2, "datums")), done,
            ReadTenant(At(info, 3, "tenant")));
      });
}

Napi::Value EngineBinding::ForwardBackward(const Napi::CallbackInfo& info) {
  return Promise<ForwardBackwardResult>(
      info.Env(), *session_, [&](const Done<ForwardBackwardResult>& done) {
        session_->engine().ForwardBackward(ReadHandle(At(info, 0, "adapter")),
                                           ReadLoss(At(info, 1, "loss")),
                                           ReadDatums(At(info, 2, "datums")), done);
      });
}

Napi::Value EngineBinding::OptimStep(const Napi::CallbackInfo& info) {
  return Promise<OptimStepResult>(info.Env(), *session_, [&](const Done<OptimStepResult>& done) {
    session_->engine().OptimStep(ReadHandle(At(info, 0, "adapter")),
                                 ReadAdamParams(At(info, 1, "params")), done);
  });
}

Napi::Value EngineBinding::StateDigest(const Napi::CallbackInfo& info) {
  EngineSession& session = *session_;
  return Promise<std::string>(info.Env(), session, [&](const Done<std::string>& done) {
    const AdapterHandle adapter = ReadHandle(At(info, 0, "adapter"));
    const uint64_t op_index = ReadDecimal(At(info, 1, "opIndex"));
    const StateIdentity identity = IdentityOf(session.engine(), op_index);
    FromState(session, adapter, done, [&session, adapter, identity](const AdapterState& state) {
      return hotbed::StateDigest(state, identity, session.DigestsOf(adapter));
    });
  });
}

Napi::Value EngineBinding::WeightsDigest(const Napi::CallbackInfo& info) {
  EngineSession& session = *session_;
  return Promise<std::string>(info.Env(), session, [&](const Done<std::string>& done) {
    const auto weights = session.engine().WeightsOf(ReadHandle(At(info, 0, "policy")));
    OnFileThread(session, done, [weights] { return hotbed::WeightsDigest(*weights); });
  });
}

Napi::Value EngineBinding::Snapshot(const Napi::CallbackInfo& info) {
  EngineSession& session = *session_;
  return Promise<AdapterFile>(info.Env(), session, [&](const Done<AdapterFile>& done) {
    const AdapterHandle adapter = ReadHandle(At(info, 0, "adapter"));
    const uint64_t op_index = ReadDecimal(At(info, 1, "opIndex"));
    const std::string path = ReadText(At(info, 2, "path"));
    const StateIdentity identity = IdentityOf(session.engine(), op_index);
    FromState(session, adapter, done,
              [&session, adapter, identity, path](const AdapterState& state) {
                return WriteSnapshot(path, state, identity, session.DigestsOf(adapter));
              });
  });
}

Napi::Value EngineBinding::Restore(const Napi::CallbackInfo& info) {
  EngineSession& session = *session_;
  return Promise<Adopted>(
      info.Env(), session,
      [&](const Done<Adopted>& done) {
        session.engine();  // refuses after dispose
        const std::string path = ReadText(At(info, 0, "path"));
        const std::string tenant = ReadTenant(At(info, 1, "tenant"));
        Adopt(session, tenant, done, [path](const Engine& engine) {
          return ReadSnapshot(path, engine.config(), engine.info().base_digest,
                              engine.info().numerics_id);
        });
      },
      AdoptedToJs);
}

Napi::Value EngineBinding::ExportWeights(const Napi::CallbackInfo& info) {
  EngineSession& session = *session_;
  return Promise<AdapterFile>(info.Env(), session, [&](const Done<AdapterFile>& done) {
    const auto weights = session.engine().WeightsOf(ReadHandle(At(info, 0, "policy")));
    const std::string path = ReadText(At(info, 1, "path"));
    OnFileThread(session, done, [weights, path] { return hotbed::ExportWeights(path, *weights); });
  });
}

Napi::Value EngineBinding::PeftConfig(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return Answer(env, [&] {
    const auto weights = session_->engine().WeightsOf(ReadHandle(At(info, 0, "policy")));
    return ToJs(env, PeftConfigText(*weights->spec));
  });
}

Napi::Value EngineBinding::ImportPeft(const Napi::CallbackInfo& info) {
  EngineSession& session = *session_;
  return Promise<Adopted>(
      info.Env(), session,
      [&](const Done<Adopted>& done) {
        session.engine();  // refuses after dispose
        const std::string folder = ReadText(At(info, 0, "folder"));
        const uint64_t seed = ReadDecimal(At(info, 1, "seed"));
        const std::string tenant = ReadTenant(At(info, 2, "tenant"));
        Adopt(session, tenant, done, [folder, seed](const Engine& engine) {
          hotbed::Snapshot imported;
          imported.state = hotbed::ImportPeft(folder, engine.config(), seed);
          return imported;
        });
      },
      AdoptedToJs);
}

Napi::Value EngineBinding::Tensors(const Napi::CallbackInfo& info) {
  using Picked = std::pair<StateCopy, Pick>;
  return Promise<Picked>(
      info.Env(), *session_,
      [&](const Done<Picked>& done) {
        const AdapterHandle adapter = ReadHandle(At(info, 0, "adapter"));
        const Pick pick = ReadPick(At(info, 1, "what"));
        session_->engine().CopyState(adapter, [done, pick](Result<StateCopy> copy) {
          if (copy.ok()) {
            done(Picked(copy.value(), pick));
          } else {
            done(copy.fault());
          }
        });
      },
      [](Napi::Env env, const Picked& picked) {
        return TensorsToJs(env, *picked.first->layout, picked.second(*picked.first));
      });
}

Napi::Value EngineBinding::Logits(const Napi::CallbackInfo& info) {
  return Promise<std::vector<float>>(
      info.Env(), *session_, [&](const Done<std::vector<float>>& done) {
        const Argument policy = At(info, 0, "policy");
        session_->engine().Logits(
            policy.absent() ? std::nullopt : std::optional<PolicyHandle>(ReadHandle(policy)),
            ReadTokens(At(info, 1, "tokens")), done);
      });
}

Napi::Value EngineBinding::SetTenantWeight(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return Answer(env, [&] {
    session_->engine().SetTenantWeight(ReadTenant(At(info, 0, "tenant")),
                                       ReadNumber(At(info, 1, "weight")));
    return env.Undefined();
  });
}

Napi::Value EngineBinding::Tenants(const Napi::CallbackInfo& info) {
  using List = std::vector<TenantStats>;
  return Promise<List>(info.Env(), *session_,
                       [&](const Done<List>& done) { session_->engine().Tenants(done); });
}

Napi::Value EngineBinding::AdapterMemory(const Napi::CallbackInfo& info) {
  using Memory = hotbed::AdapterMemory;
  return Promise<Memory>(info.Env(), *session_, [&](const Done<Memory>& done) {
    session_->engine().MemoryOf(ReadHandle(At(info, 0, "adapter")), done);
  });
}

Napi::Value EngineBinding::PolicyBytes(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return Answer(env, [&] {
    return ToJs(env, session_->engine().PolicyBytes(ReadHandle(At(info, 0, "policy"))));
  });
}

Napi::Value EngineBinding::Dispose(const Napi::CallbackInfo& info) {
  EngineSession& session = *session_;
  return Promise<Unit>(info.Env(), session,
                       [&](const Done<Unit>& done) { session.Dispose([done] { done(Unit{}); }); });
}

}  // namespace hotbed
