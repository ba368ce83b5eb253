// Tests of scheduling: calls that arrive together, and the order in which they end.
#pragma once

#include <future>
#include <mutex>
#include <string>
#include <vector>

#include "engine_support.h"

namespace hotbed::test {

// Holds the engine thread until released, so that everything submitted meanwhile arrives together.
class Gate {
 public:
  explicit Gate(TestEngine& engine) {
    AdapterSpec spec;
    spec.rank = 1;
    spec.alpha = 1;
    spec.targets = {Module::kQ};
    engine.raw().CreateAdapter(spec, [this](Result<AdapterHandle>) {
      closed_.set_value();
      open_.get_future().wait();
      passed_.set_value();
    });
    closed_.get_future().wait();
  }
  void Open() {
    open_.set_value();
    passed_.get_future().wait();
  }

 private:
  std::promise<void> closed_, open_, passed_;
};

// The names of calls in the order in which they ended.
class Ends {
 public:
  template <typename T>
  Done<T> Of(const std::string& name) {
    ++pending_;
    return [this, name](Result<T> result) {
      std::lock_guard<std::mutex> lock(mutex_);
      order_.push_back(result.ok() ? name : name + ": " + result.fault().message);
      if (order_.size() == pending_) all_.set_value();
    };
  }
  // Call it once, after everything was submitted and before the gate opens.
  std::vector<std::string> Wait(Gate& gate) {
    gate.Open();
    all_.get_future().wait();
    return order_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> order_;
  size_t pending_ = 0;
  std::promise<void> all_;
};

}  // namespace hotbed::test
