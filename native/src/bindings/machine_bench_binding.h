// The machine's ceilings and the linear kernels beside them as a JavaScript object, for the
// benchmarks: new MachineBench({kernels, threads, readMiB}), machine(), linear(case).
//
// 1. Both methods return a promise and measure on a thread of their own; calls run one after
// another.
// 2. Names and order mirror libs/engine/bench/machine-bench.ts; absent = null.
#pragma once

#include <napi.h>

#include <memory>

namespace hotbed {

class MachineBenchBinding : public Napi::ObjectWrap<MachineBenchBinding> {
 public:
  static Napi::Function Define(Napi::Env env);

  // Throws an Error with code invalid_argument that names the option.
  explicit MachineBenchBinding(const Napi::CallbackInfo& info);

 private:
  struct State;

  Napi::Value Machine(const Napi::CallbackInfo& info);
  Napi::Value Linear(const Napi::CallbackInfo& info);

  std::shared_ptr<State> state_;
};

}  // namespace hotbed
