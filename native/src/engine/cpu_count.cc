#include "engine/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

namespace hotbed {

int PhysicalCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  // Two CPUs of one core name the same siblings.
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string name = std::to_string(cpu);
    std::ifstream file("/sys/devices/system/cpu/cpu" + name + "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = name;
    cores.insert(siblings);
  }
  return std::max<int>(1, static_cast<int>(cores.size()));
}

}  // namespace hotbed
