#include "bindings/delivery.h"

#include <utility>

namespace hotbed {

Delivery::Delivery(Napi::Env env, Napi::Object owner)
    : channel_(Channel::New(env, "hotbed engine", 0, 1, this)), owner_(Napi::Weak(owner)) {
  channel_.Unref(env);
}

void Delivery::Begin(Napi::Env env) {
  if (++pending_ == 1) {
    channel_.Ref(env);
    owner_.Ref();
  }
}

void Delivery::Add(Item item) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return;
  ready_.push_back(std::move(item));
  if (scheduled_) return;
  scheduled_ = channel_.NonBlockingCall() == napi_ok;
}

void Delivery::CallJs(Napi::Env env, Napi::Function, Delivery* self, void*) {
  if (env != nullptr) self->Drain(env);
}

void Delivery::Drain(Napi::Env env) {
  std::vector<Item> ready;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
    ready.swap(ready_);
    scheduled_ = false;
  }
  size_t ended = 0;
  for (const Item& item : ready) {
    const Napi::HandleScope scope(env);
    item.run(env);
    ended += item.ends_call;
  }
  pending_ -= ended;
  if (ended != 0 && pending_ == 0) {
    channel_.Unref(env);
    owner_.Unref();
  }
}

void Delivery::Close(Napi::Env env) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
    closed_ = true;
    ready_.clear();
  }
  if (pending_ > 0) {
    pending_ = 0;
    channel_.Unref(env);
  }
  owner_.Reset();
  channel_.Abort();
}

}  // namespace hotbed
