#include "kernels/path.h"
//
#include "kernels/path_table.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

// Ids come ascending, so only a logit above the worst one kept, or a place left, lets an id in.
void topOf(const TopTokensArgs& args) {
  float logits[kMostTopIds];
  int32_t ids[kMostTopIds];
  size_t size = 0;
  for (size_t j = 0; j < args.idLimit; j += 16) {
    const size_t lanes = minSize(16, args.idLimit - j);
    if (size == args.k) {
      const V16 worst = set1(logits[size - 1]);
      const unsigned above = laneBits(less(worst, load(args.logits + j, lanes)));
      if (!(above & ((1u << lanes) - 1))) continue;
    }
    for (size_t id = j; id < j + lanes; ++id) {
      const float logit = args.logits[id];
      if (logit != logit || (size == args.k && !(logit > logits[size - 1]))) continue;
      size_t at = size < args.k ? size++ : size - 1;
      for (; at > 0 && logit > logits[at - 1]; --at) {
        logits[at] = logits[at - 1];
        ids[at] = ids[at - 1];
      }
      logits[at] = logit;
      ids[at] = static_cast<int32_t>(id);
    }
  }
  for (size_t i = 0; i < args.k; ++i) {
    args.tokens[i] = i < size ? ids[i] : -1;
    args.logprobs[i] = i < size ? logits[i] - args.lse : __builtin_nanf("");
  }
}

}  // namespace

void topTokens(ThreadPool& pool, const TopTokensArgs* requests, size_t count) {
  pool.forEach(count, [=](size_t i, size_t) { topOf(requests[i]); });
}

}  // namespace hotbed::kernels::HOTBED_PATH
