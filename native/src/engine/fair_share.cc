#include "engine/fair_share.h"

#include <algorithm>

namespace hotbed {

void FairShare(const std::vector<size_t>& demands, size_t budget, size_t first,
               std::vector<size_t>* shares) {
  const size_t count = demands.size();
  shares->assign(count, 0);
  for (;;) {
    size_t hungry = 0;
    for (size_t i = 0; i < count; ++i) hungry += (*shares)[i] < demands[i];
    if (hungry == 0 || budget == 0) return;
    const size_t part = std::max<size_t>(1, budget / hungry);
    for (size_t i = 0; i < count && budget > 0; ++i) {
      const size_t lane = (first + i) % count;
      const size_t given = std::min({part, demands[lane] - (*shares)[lane], budget});
      (*shares)[lane] += given;
      budget -= given;
    }
  }
}

}  // namespace hotbed
