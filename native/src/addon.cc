// Registers the bindings, nothing else.
#include <napi.h>

#include "bindings/engine_binding.h"
#include "bindings/machine_bench_binding.h"
#include "bindings/numerics_binding.h"

namespace hotbed {

class HotbedAddon : public Napi::Addon<HotbedAddon> {
 public:
  HotbedAddon(Napi::Env env, Napi::Object exports)
      : engine_(Napi::Persistent(EngineBinding::Define(env))) {
    DefineAddon(exports, {InstanceMethod("open", &HotbedAddon::Open),
                          InstanceMethod("numericsOffers", &HotbedAddon::Offers),
                          InstanceValue("MachineBench", MachineBenchBinding::Define(env))});
  }

 private:
  // open(options): Promise of an engine.
  Napi::Value Open(const Napi::CallbackInfo& info) {
    const Napi::Object engine = engine_.New({});
    return EngineBinding::Unwrap(engine)->Open(info);
  }

  Napi::Value Offers(const Napi::CallbackInfo& info) { return NumericsOffersToJs(info); }

  Napi::FunctionReference engine_;
};

}  // namespace hotbed

using hotbed::HotbedAddon;
NODE_API_ADDON(HotbedAddon)
