// Errors of the engine: a stable code and a message that names the offending field, path or shape.
#ifndef HOTBED_ENGINE_FAULT_H_
#define HOTBED_ENGINE_FAULT_H_

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace hotbed {

// The codes are those of `EngineFaultCode` in the JS contract, in the same order.
enum class FaultCode {
  kInvalidArgument,
  kInvalidFile,
  kUnsupportedModel,
  kBaseMismatch,
  kNotFinite,
  kOutOfMemory,
  kBusy,
  kCancelled,
  kDisposed,
  kUnsupportedCpu,
  kIo,
};

// The wire name of a code, for example "invalid_argument".
const char* FaultCodeName(FaultCode code);

struct Fault {
  FaultCode code;
  std::string message;
};

// What code below the command queue throws; the queue turns it into a `Fault`.
class EngineFault : public std::runtime_error {
 public:
  EngineFault(FaultCode code, const std::string& message)
      : std::runtime_error(message), code_(code) {}
  FaultCode code() const { return code_; }
  Fault ToFault() const { return Fault{code_, what()}; }

 private:
  FaultCode code_;
};

// Either a value or a fault.
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

#endif  // HOTBED_ENGINE_FAULT_H_
