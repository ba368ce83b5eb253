#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/constants.h"
#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

namespace {

// N11's function over the ids that survive: tiles of 512 ids aligned to 0, absent lanes untouched,
// tiles without a survivor skipped.
float survivorLse(const std::vector<float>& scaled, const std::vector<bool>& alive) {
  bool first = true;
  Partial carried{};
  for (size_t begin = 0; begin < scaled.size(); begin += kVocabTile) {
    const size_t end = std::min(scaled.size(), begin + kVocabTile);
    float maxLane[16];
    float sumLane[16] = {};
    for (float& l : maxLane) l = -std::numeric_limits<float>::infinity();
    bool any = false;
    for (size_t v = begin; v < end; ++v) {
      if (!alive[v]) continue;
      any = true;
      if (scaled[v] > maxLane[v % 16]) maxLane[v % 16] = scaled[v];
    }
    if (!any) continue;
    const float max = treeMax(maxLane, 16);
    for (size_t v = begin; v < end; ++v) {
      if (alive[v]) sumLane[v % 16] = sumLane[v % 16] + exp1(scaled[v] - max);
    }
    const Partial tile{max, treeSum(sumLane, 16)};
    if (first) {
      carried = tile;
    } else {
      mergePartial(carried, tile);
    }
    first = false;
  }
  return carried.max + log1(carried.sum);
}

SampleResult sampleOne(const SampleArgs& args) {
  SampleResult result;
  const size_t limit = args.idLimit;
  const float temperature = args.temperature;
  if (temperature == 0.0f) {
    for (size_t v = 0; v < limit; ++v) {
      if (args.logits[v] != args.logits[v]) continue;
      if (result.token < 0 || args.logits[v] > args.logits[result.token]) {
        result.token = static_cast<int32_t>(v);
      }
    }
    if (result.token < 0) return result;
    result.policyLogprob = args.logits[result.token] - args.lse;
    result.samplingLogprob = result.policyLogprob;
    return result;
  }
  std::vector<float> scaled(limit);
  for (size_t v = 0; v < limit; ++v) scaled[v] = args.logits[v] / temperature;
  std::vector<bool> alive(limit, true);
  if ((args.topK != 0 && args.topK < limit) || args.topP < 1.0) {
    std::vector<size_t> order;
    for (size_t v = 0; v < limit; ++v) {
      if (args.logits[v] == args.logits[v]) order.push_back(v);  // NaN cannot be ordered: dropped
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return args.logits[a] > args.logits[b]; });
    if (args.topK != 0 && args.topK < order.size()) order.resize(args.topK);
    alive.assign(limit, false);
    for (size_t v : order) alive[v] = true;
    if (args.topP < 1.0) {
      const float lse = survivorLse(scaled, alive);
      double sum = 0;
      size_t kept = 0;
      while (kept < order.size()) {
        sum += static_cast<double>(exp1(scaled[order[kept]] - lse));
        ++kept;
        if (sum >= args.topP) break;
      }
      for (size_t i = kept; i < order.size(); ++i) alive[order[i]] = false;
    }
  }
  float best = 0;
  for (size_t v = 0; v < limit; ++v) {
    if (!alive[v]) continue;
    const uint32_t counter[4] = {static_cast<uint32_t>(v >> 2), args.drawIndex, args.sampleIndex,
                                 kDomainSample};
    const float u = uniform(args.seed, counter, v & 3);
    const float value = scaled[v] - log1(-log1(u));
    if (value != value) continue;
    if (result.token < 0 || value > best) {
      best = value;
      result.token = static_cast<int32_t>(v);
    }
  }
  if (result.token < 0) return result;
  result.policyLogprob = args.logits[result.token] - args.lse;
  result.samplingLogprob = scaled[static_cast<size_t>(result.token)] - survivorLse(scaled, alive);
  return result;
}

}  // namespace

void sample(ThreadPool&, const SampleArgs* requests, size_t count, SampleResult* results) {
  for (size_t i = 0; i < count; ++i) results[i] = sampleOne(requests[i]);
}

}  // namespace hotbed::kernels::reference
