// The engine as a JavaScript object: every method of the contract in libs/engine, one to one.
//
// 1. Methods that compute return a promise; a refused argument rejects it (nothing is thrown past
// the promise).
// 2. Nothing here waits for the engine on the JavaScript thread, except the end of an environment
// (exit, a worker
//    thread's termination), which waits for the running step.
// 3. After dispose every method fails with `disposed`; dispose itself is idempotent.
#pragma once

#include <napi.h>

#include <memory>

namespace hotbed {

class EngineSession;

class EngineBinding : public Napi::ObjectWrap<EngineBinding> {
 public:
  static Napi::Function Define(Napi::Env env);

  // Never called by users: the addon's open() makes the object and starts loading.
  explicit EngineBinding(const Napi::CallbackInfo& info);
  ~EngineBinding() override;

  // Starts loading; the promise resolves to this object.
  Napi::Value Open(const Napi::CallbackInfo& info);

 private:
  Napi::Value Info(const Napi::CallbackInfo& info);
  Napi::Value Stats(const Napi::CallbackInfo& info);
  Napi::Value CreateAdapter(const Napi::CallbackInfo& info);
  Napi::Value SpecOf(const Napi::CallbackInfo& info);
  Napi::Value DropAdapter(const Napi::CallbackInfo& info);
  Napi::Value Pin(const Napi::CallbackInfo& info);
  Napi::Value Release(const Napi::CallbackInfo& info);
  // (request, listener or null) -> {id, result}: the id is for cancel() and stopSequence().
  Napi::Value Sample(const Napi::CallbackInfo& info);
  Napi::Value StopSequence(const Napi::CallbackInfo& info);
  Napi::Value Cancel(const Napi::CallbackInfo& info);
  Napi::Value Forward(const Napi::CallbackInfo& info);
  Napi::Value ForwardBackward(const Napi::CallbackInfo& info);
  Napi::Value OptimStep(const Napi::CallbackInfo& info);
  Napi::Value StateDigest(const Napi::CallbackInfo& info);
  Napi::Value WeightsDigest(const Napi::CallbackInfo& info);
  Napi::Value Snapshot(const Napi::CallbackInfo& info);
  Napi::Value Restore(const Napi::CallbackInfo& info);
  Napi::Value ExportWeights(const Napi::CallbackInfo& info);
  Napi::Value PeftConfig(const Napi::CallbackInfo& info);
  Napi::Value ImportPeft(const Napi::CallbackInfo& info);
  Napi::Value Tensors(const Napi::CallbackInfo& info);
  Napi::Value Logits(const Napi::CallbackInfo& info);
  Napi::Value SetTenantWeight(const Napi::CallbackInfo& info);
  Napi::Value Tenants(const Napi::CallbackInfo& info);
  Napi::Value AdapterMemory(const Napi::CallbackInfo& info);
  Napi::Value PolicyBytes(const Napi::CallbackInfo& info);
  Napi::Value Dispose(const Napi::CallbackInfo& info);

  std::unique_ptr<EngineSession> session_;
};

}  // namespace hotbed
