#include "bindings/numerics_binding.h"

#include "bindings/convert.h"
#include "engine/numerics.h"

namespace hotbed {

namespace {

// The first call measures for a moment, so it runs on a thread of Node's pool.
class OffersWorker : public Napi::AsyncWorker {
 public:
  explicit OffersWorker(Napi::Env env)
      : Napi::AsyncWorker(env), deferred_(Napi::Promise::Deferred::New(env)) {}

  Napi::Promise Start() {
    const Napi::Promise promise = deferred_.Promise();
    Queue();  // frees itself when it has settled
    return promise;
  }

 private:
  void Execute() override { NumericsOffers(); }

  void OnOK() override {
    const std::vector<NumericsOffer>& offers = NumericsOffers();
    const auto list = Napi::Array::New(Env(), offers.size());
    for (uint32_t i = 0; i < offers.size(); ++i) {
      auto object = Napi::Object::New(Env());
      object.Set("id", NumericsId(offers[i].numerics));
      object.Set("refusal", offers[i].refusal ? ToJs(Env(), *offers[i].refusal) : Env().Null());
      list.Set(i, object);
    }
    deferred_.Resolve(list);
  }

  void OnError(const Napi::Error& error) override { deferred_.Reject(error.Value()); }

  Napi::Promise::Deferred deferred_;
};

}  // namespace

Napi::Value NumericsOffersToJs(const Napi::CallbackInfo& info) {
  return (new OffersWorker(info.Env()))->Start();
}

}  // namespace hotbed
