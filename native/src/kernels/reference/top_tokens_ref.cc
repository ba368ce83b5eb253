#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

void topTokens(ThreadPool&, const TopTokensArgs* requests, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const TopTokensArgs& args = requests[i];
    std::vector<size_t> order;
    for (size_t v = 0; v < args.idLimit; ++v) {
      if (args.logits[v] == args.logits[v]) order.push_back(v);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return args.logits[a] > args.logits[b]; });
    for (size_t k = 0; k < args.k; ++k) {
      args.tokens[k] = k < order.size() ? static_cast<int32_t>(order[k]) : -1;
      args.logprobs[k] = k < order.size() ? args.logits[order[k]] - args.lse
                                          : std::numeric_limits<float>::quiet_NaN();
    }
  }
}

}  // namespace hotbed::kernels::reference
