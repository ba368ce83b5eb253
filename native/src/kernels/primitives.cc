#include "kernels/path.h"
//
#include "kernels/path_table.h"
#include "kernels/philox.h"

namespace hotbed::kernels::HOTBED_PATH {

void expArray(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    const size_t lanes = minSize(16, n - i);
    store(y + i, exp16(load(x + i, lanes)), lanes);
  }
}

void logArray(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    const size_t lanes = minSize(16, n - i);
    store(y + i, log16(load(x + i, lanes)), lanes);
  }
}

float uniform(uint64_t seed, const uint32_t counter[4], unsigned word) {
  uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
  philox1(seed, c);
  return uniformOf(c[word]);
}

}  // namespace hotbed::kernels::HOTBED_PATH
