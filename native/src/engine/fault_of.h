// Turns whatever a call threw into the fault that its caller gets.
#ifndef HOTBED_ENGINE_FAULT_OF_H_
#define HOTBED_ENGINE_FAULT_OF_H_

#include <exception>

#include "engine/result.h"

namespace hotbed {

// Call it with std::current_exception().
Fault FaultOf(std::exception_ptr error);

}  // namespace hotbed

#endif  // HOTBED_ENGINE_FAULT_OF_H_
