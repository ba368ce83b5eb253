// Brings results of the engine's threads to the JavaScript thread of one environment.
//
// 1. One ThreadSafeFunction per engine. Results that are ready together arrive in one call.
// 2. The process stays alive, and the owner object is not collected, while a call is pending; an
// idle engine holds
//    nothing open.
// 3. What an engine's thread gives away first arrives first; news of a call before its end.
// 4. After Close nothing reaches JavaScript; what arrives late is dropped.
#pragma once

#include <napi.h>

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace hotbed {

class Delivery {
 public:
  using Settle = std::function<void(Napi::Env)>;

  // JavaScript thread. `owner` lives at least while a call is pending.
  Delivery(Napi::Env env, Napi::Object owner);
  // After Close, on the JavaScript thread.
  ~Delivery() = default;
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // JavaScript thread: one more call is pending. Exactly one Post follows.
  void Begin(Napi::Env env);
  // Any thread: `settle` runs on the JavaScript thread and ends one call.
  void Post(Settle settle) { Add({std::move(settle), true}); }
  // Any thread, before the call's Post: `news` runs on the JavaScript thread.
  void Notify(Settle news) { Add({std::move(news), false}); }
  // JavaScript thread. Idempotent.
  void Close(Napi::Env env);

 private:
  struct Item {
    Settle run;
    bool ends_call;
  };

  void Add(Item item);
  static void CallJs(Napi::Env env, Napi::Function callback, Delivery* self, void* data);
  void Drain(Napi::Env env);

  using Channel = Napi::TypedThreadSafeFunction<Delivery, void, &Delivery::CallJs>;
  Channel channel_;
  Napi::ObjectReference owner_;
  size_t pending_ = 0;  // JavaScript thread

  std::mutex mutex_;
  std::vector<Item> ready_;
  bool scheduled_ = false;
  bool closed_ = false;
};

}  // namespace hotbed
