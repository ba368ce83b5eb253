#include "engine/fault_of.h"

#include <new>
#include <string>

#include "util/check.h"

namespace hotbed {

namespace {

FaultCode CodeOf(const std::string& word) {
  for (FaultCode code : {FaultCode::kInvalidArgument, FaultCode::kOutOfMemory,
                         FaultCode::kUnsupportedCpu, FaultCode::kNotFinite}) {
    if (word == FaultCodeName(code)) return code;
  }
  return FaultCode::kIo;
}

}  // namespace

Fault FaultOf(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const EngineFault& fault) {
    return {fault.code(), fault.what()};
  } catch (const Error& fault) {
    const std::string subject = fault.subject().empty() ? "" : fault.subject() + ": ";
    return {CodeOf(fault.code()), subject + fault.what()};
  } catch (const std::bad_alloc&) {
    return {FaultCode::kOutOfMemory, "memory: the engine cannot allocate what the call needs"};
  } catch (const std::exception& other) {
    return {FaultCode::kIo, std::string("internal error: ") + other.what()};
  }
}

}  // namespace hotbed
