// The one exception that leaves the engine. `code` is one of EngineFaultCode in libs/engine; the
// message names the offending field, path, tensor or shape and what was expected.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace hotbed {

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

// The stable name of a code, as in libs/engine: "invalid_argument", ...
inline const char* FaultCodeName(FaultCode code) {
  switch (code) {
    case FaultCode::kInvalidArgument:
      return "invalid_argument";
    case FaultCode::kInvalidFile:
      return "invalid_file";
    case FaultCode::kUnsupportedModel:
      return "unsupported_model";
    case FaultCode::kBaseMismatch:
      return "base_mismatch";
    case FaultCode::kNotFinite:
      return "not_finite";
    case FaultCode::kOutOfMemory:
      return "out_of_memory";
    case FaultCode::kBusy:
      return "busy";
    case FaultCode::kCancelled:
      return "cancelled";
    case FaultCode::kDisposed:
      return "disposed";
    case FaultCode::kUnsupportedCpu:
      return "unsupported_cpu";
    case FaultCode::kIo:
      return "io";
  }
  return "io";
}

class EngineFault : public std::runtime_error {
 public:
  EngineFault(FaultCode code, const std::string& message)
      : std::runtime_error(Shortened(message)), code_(code) {}
  FaultCode code() const { return code_; }

 private:
  // Messages quote what files say, and a damaged file may say a megabyte: both ends are kept, the
  // path and the reason.
  static std::string Shortened(const std::string& message) {
    constexpr size_t kHalf = 1000;
    if (message.size() <= 2 * kHalf) return message;
    return message.substr(0, kHalf) + " ... " + message.substr(message.size() - kHalf);
  }

  FaultCode code_;
};

}  // namespace hotbed
