#include "kernels/path.h"
//
#include "kernels/path_table.h"

namespace hotbed::kernels::HOTBED_PATH {

double fmaBurst(size_t repeats) {
  V16 chain[kBurstChains];
  for (size_t i = 0; i < kBurstChains; ++i) chain[i] = set1(static_cast<float>(i));
  const V16 a = set1(0.999f);
  const V16 b = set1(0.001f);
  for (size_t r = 0; r < repeats; ++r) {
    for (size_t i = 0; i < kBurstChains; ++i) chain[i] = fma(chain[i], a, b);
  }
  V16 sum = zero();
  for (size_t i = 0; i < kBurstChains; ++i) sum = add(sum, chain[i]);
  // The result is always above 0, which the compiler cannot know: the chains stay.
  return sumTree(sum) > 0 ? 2.0 * 16.0 * static_cast<double>(kBurstChains * repeats) : 0.0;
}

}  // namespace hotbed::kernels::HOTBED_PATH
