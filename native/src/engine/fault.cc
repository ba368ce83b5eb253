#include "engine/fault.h"

namespace hotbed {

const char* FaultCodeName(FaultCode code) {
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

}  // namespace hotbed
