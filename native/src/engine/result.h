// What a call of the engine ends with: a value, or a fault as plain data.
#ifndef HOTBED_ENGINE_RESULT_H_
#define HOTBED_ENGINE_RESULT_H_

#include <string>
#include <utility>
#include <variant>

#include "engine/fault.h"

namespace hotbed {

struct Fault {
  FaultCode code;
  std::string message;
};

template <typename T>
class Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT: implicit on purpose
  Result(Fault fault) : value_(std::move(fault)) {}  // NOLINT: implicit on purpose
  bool ok() const { return value_.index() == 0; }
  T& value() { return std::get<0>(value_); }
  const T& value() const { return std::get<0>(value_); }
  const Fault& fault() const { return std::get<1>(value_); }

 private:
  std::variant<T, Fault> value_;
};

// The value of a call that returns nothing.
struct Unit {};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_RESULT_H_
