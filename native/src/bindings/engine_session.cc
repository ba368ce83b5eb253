#include "bindings/engine_session.h"

#include <exception>
#include <utility>

#include "engine/fault.h"
#include "engine/fault_of.h"
#include "engine/model_weights.h"
#include "engine/numerics.h"

namespace hotbed {
namespace {

void Cleanup(void* session) { static_cast<EngineSession*>(session)->Close(); }

}  // namespace

Fault CurrentFault() {
  try {
    throw;
  } catch (const Napi::Error& error) {
    // What an argument's own getter threw.
    return {FaultCode::kInvalidArgument, error.Message()};
  } catch (...) {
    return FaultOf(std::current_exception());
  }
}

EngineSession::EngineSession(Napi::Env env, Napi::Object owner) : env_(env), delivery_(env, owner) {
  napi_add_env_cleanup_hook(env_, Cleanup, this);
}

EngineSession::~EngineSession() { Close(); }

Engine& EngineSession::engine() {
  if (!open_) throw EngineFault(FaultCode::kDisposed, "the engine has been disposed of");
  return *engine_;
}

void EngineSession::Load(const OpenOptions& options) {
  if (closing_) throw EngineFault(FaultCode::kDisposed, "the environment is ending");
  // Before gigabytes are read: a refusal of this machine does not depend on the base.
  ChooseNumerics(options.engine.numerics, options.engine.kernels);
  LoadedModel model = LoadModel(options.model_folder);
  engine_ = std::make_unique<Engine>(options.engine, std::move(model.config),
                                     std::move(model.weights), std::move(model.base_digest));
}

uint64_t EngineSession::AddListener(const Napi::Function& listener) {
  listeners_[next_listener_] = Napi::Persistent(listener);
  return next_listener_++;
}

void EngineSession::Tell(uint64_t listener, const Napi::Value& news) {
  const auto found = listeners_.find(listener);
  if (found == listeners_.end()) return;
  try {
    found->second.Value().Call({news});
  } catch (const Napi::Error&) {
    // libs/engine hands over functions that do not throw; others would have no one to catch.
  }
}

void EngineSession::Dispose(std::function<void()> done) {
  engine().Stop();
  open_ = false;
  jobs_.Post([this, done = std::move(done)] {
    engine_.reset();
    digests_.clear();
    done();
  });
}

void EngineSession::Close() {
  if (closed_) return;
  closed_ = true;
  closing_ = true;
  napi_remove_env_cleanup_hook(env_, Cleanup, this);
  delivery_.Close(env_);
  listeners_.clear();
  if (open_) engine_->Stop();
  open_ = false;
  // On the file thread: it may still be loading, and the engine's last callbacks may bring jobs.
  jobs_.Post([this] { engine_.reset(); });
  jobs_.Finish();
}

}  // namespace hotbed
