// One engine's native side: the engine, the thread for its files, the way back to JavaScript, and
// who frees what when.
//
// 1. The engine is made and destroyed on the file thread, so that neither loading nor the last
// running step blocks
//    JavaScript. JavaScript touches it only between those two moments.
// 2. Close (collection, end of the environment) may come at any moment; it waits for the running
// job and step.
#pragma once

#include <napi.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "bindings/convert.h"
#include "bindings/delivery.h"
#include "engine/engine.h"
#include "engine/job_thread.h"
#include "engine/state_digest.h"

namespace hotbed {

// The exception in flight as plain data; call it in a catch block.
Fault CurrentFault();

class EngineSession {
 public:
  EngineSession(Napi::Env env, Napi::Object owner);
  ~EngineSession();
  EngineSession(const EngineSession&) = delete;
  EngineSession& operator=(const EngineSession&) = delete;

  Delivery& delivery() { return delivery_; }
  JobThread& jobs() { return jobs_; }

  // JavaScript thread. Throws EngineFault `disposed` before the engine is open and after it is
  // disposed of.
  Engine& engine();
  // JavaScript thread: the loaded engine may be used from now on.
  void SetOpen() { open_ = true; }

  // File thread.
  void Load(const OpenOptions& options);
  Engine& loaded() { return *engine_; }
  TensorDigests& DigestsOf(AdapterHandle adapter) { return digests_[adapter]; }
  void ForgetDigests(AdapterHandle adapter) { digests_.erase(adapter); }

  // JavaScript thread: functions that are told of tokens, each until its call ends. Other threads
  // know them by number only, since a function may be let go on this thread alone.
  uint64_t AddListener(const Napi::Function& listener);
  void RemoveListener(uint64_t listener) { listeners_.erase(listener); }
  void Tell(uint64_t listener, const Napi::Value& news);

  // JavaScript thread: refuses new calls and rejects pending ones; `done` runs on the file thread
  // when all is freed.
  void Dispose(std::function<void()> done);
  // JavaScript thread. Idempotent.
  void Close();

 private:
  Napi::Env env_;
  Delivery delivery_;
  std::unique_ptr<Engine> engine_;
  std::unordered_map<AdapterHandle, TensorDigests> digests_;
  std::unordered_map<uint64_t, Napi::FunctionReference> listeners_;
  uint64_t next_listener_ = 1;
  bool open_ = false;
  bool closed_ = false;
  std::atomic<bool> closing_{false};
  JobThread jobs_;  // last: its jobs use the members above
};

}  // namespace hotbed
