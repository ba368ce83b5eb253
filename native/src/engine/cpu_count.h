// How many threads the pool gets when nobody says.
#ifndef HOTBED_ENGINE_CPU_COUNT_H_
#define HOTBED_ENGINE_CPU_COUNT_H_

namespace hotbed {

// Physical cores among the CPUs that this process may run on; at least 1.
int PhysicalCores();

}  // namespace hotbed

#endif  // HOTBED_ENGINE_CPU_COUNT_H_
