// Which ids the sampler's masks leave (N9), and N11's normaliser over them.
#pragma once

#include "kernels/path.h"
//
#include "kernels/head.h"
#include "kernels/sampler.h"

namespace hotbed::kernels::HOTBED_PATH {

// Order of the masks: logit descending, then id ascending.
struct Candidate {
  float logit;
  uint32_t id;
};

HOTBED_INLINE bool before(Candidate a, Candidate b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

HOTBED_INLINE void siftDown(Candidate* heap, size_t size, size_t at) {
  const Candidate moved = heap[at];
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= size) break;
    if (child + 1 < size && before(heap[child + 1], heap[child])) ++child;
    if (!before(heap[child], moved)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moved;
}

// Which ids survive the masks: all below the limit, or those not after `last` in the order.
struct Survivors {
  bool all;
  Candidate last;

  bool has(float logit, size_t id) const {
    return all || (logit == logit && !before(last, {logit, static_cast<uint32_t>(id)}));
  }
};

// Lanes of ids [id, id + lanes) that survive.
HOTBED_INLINE unsigned survivingLanes(const SampleArgs& args, const Survivors& survivors, size_t id,
                                      size_t lanes) {
  const unsigned present = (1u << lanes) - 1;
  if (survivors.all) return present;
  const V16 logits = load(args.logits + id, lanes);
  const V16 threshold = set1(survivors.last.logit);
  unsigned bits = laneBits(less(threshold, logits)) & present;
  unsigned ties = laneBits(equal(threshold, logits)) & present;
  for (size_t l = 0; l < lanes; ++l) {
    if ((ties >> l & 1) && id + l <= survivors.last.id) bits |= 1u << l;
  }
  return bits;
}

struct Partial {
  float max;
  float sum;
};

// One tile of N11 over ids [begin, begin + n), all alive.
HOTBED_INLINE Partial wholeTile(const SampleArgs& args, size_t begin, size_t n) {
  const V16 temperature = set1(args.temperature);
  V16 m = set1(-kInfinity);
  for (size_t j = 0; j < n; j += 16) {
    const size_t lanes = minSize(16, n - j);
    const V16 scaled = div(load(args.logits + begin + j, lanes), temperature);
    m = select(firstLanes(lanes), maxKeep(m, scaled), m);
  }
  const float max = maxTree(m);
  V16 sum = zero();
  for (size_t j = 0; j < n; j += 16) {
    const size_t lanes = minSize(16, n - j);
    const V16 scaled = div(load(args.logits + begin + j, lanes), temperature);
    sum = select(firstLanes(lanes), add(sum, exp16(sub(scaled, set1(max)))), sum);
  }
  return {max, sumTree(sum)};
}

// The same over the survivors only: absent lanes are not touched. False when none is there.
HOTBED_INLINE bool maskedTile(const SampleArgs& args, const Survivors& survivors, size_t begin,
                              size_t n, Partial& tile) {
  const V16 temperature = set1(args.temperature);
  float maxLanes[16], sumLanes[16] = {};
  for (float& lane : maxLanes) lane = -kInfinity;
  unsigned kept[kVocabTile / 16];
  unsigned any = 0;
  for (size_t j = 0; j < n; j += 16) {
    const size_t lanes = minSize(16, n - j);
    const unsigned bits = survivingLanes(args, survivors, begin + j, lanes);
    kept[j / 16] = bits;
    any |= bits;
    if (!bits) continue;
    float scaled[16];
    store(scaled, div(load(args.logits + begin + j, lanes), temperature));
    for (size_t l = 0; l < 16; ++l) {
      if ((bits >> l & 1) && scaled[l] > maxLanes[l]) maxLanes[l] = scaled[l];
    }
  }
  if (!any) return false;
  tile.max = maxTree(load(maxLanes));
  for (size_t j = 0; j < n; j += 16) {
    const unsigned bits = kept[j / 16];
    if (!bits) continue;
    float p[16];
    const V16 scaled = div(load(args.logits + begin + j, minSize(16, n - j)), temperature);
    store(p, exp16(sub(scaled, set1(tile.max))));
    for (size_t l = 0; l < 16; ++l) {
      if (bits >> l & 1) sumLanes[l] = sumLanes[l] + p[l];
    }
  }
  tile.sum = sumTree(load(sumLanes));
  return true;
}

// N11's function of l' over the survivors; tiles without one are not merged.
inline float survivorLse(const SampleArgs& args, const Survivors& survivors) {
  bool first = true;
  Partial carried{0, 0};
  for (size_t begin = 0; begin < args.idLimit; begin += kVocabTile) {
    const size_t n = minSize(kVocabTile, args.idLimit - begin);
    Partial tile;
    if (survivors.all) {
      tile = wholeTile(args, begin, n);
    } else if (!maskedTile(args, survivors, begin, n, tile)) {
      continue;
    }
    if (first) {
      carried = tile;
      first = false;
      continue;
    }
    const float merged = tile.max > carried.max ? tile.max : carried.max;
    const V16 a = exp16(set1(carried.max - merged));
    const V16 b = exp16(set1(tile.max - merged));
    carried.sum = firstLane(fma(set1(carried.sum), a, mul(set1(tile.sum), b)));
    carried.max = merged;
  }
  return carried.max + log1(carried.sum);
}

// Applies top-k, then top-p, by taking candidates off a heap in order.
inline Survivors applyMasks(const SampleArgs& args, Candidate* heap) {
  const bool cutsCount = args.topK != 0 && args.topK < args.idLimit;
  const bool cutsMass = args.topP < 1.0;
  if (!cutsCount && !cutsMass) return {true, {}};
  size_t size = 0;
  for (size_t id = 0; id < args.idLimit; ++id) {
    const float logit = args.logits[id];
    if (logit == logit) heap[size++] = {logit, static_cast<uint32_t>(id)};
  }
  if (size == 0) return {false, {kInfinity, 0}};
  for (size_t at = size / 2; at-- > 0;) siftDown(heap, size, at);
  // The sorted prefix grows from the end of the array, where the heap gives up its places.
  const size_t total = size;
  const size_t keep = cutsCount ? minSize(args.topK, total) : total;
  const auto pop = [&] {
    const Candidate top = heap[0];
    heap[0] = heap[--size];
    if (size > 0) siftDown(heap, size, 0);
    heap[size] = top;
    return top;
  };
  Survivors survivors{false, {}};
  if (!cutsMass) {
    for (size_t i = 0; i < keep; ++i) survivors.last = pop();
    return survivors;
  }
  float lse;
  if (cutsCount) {
    for (size_t i = 0; i < keep; ++i) survivors.last = pop();
    lse = survivorLse(args, survivors);
  } else {
    survivors.last = {-kInfinity, static_cast<uint32_t>(args.idLimit)};
    lse = survivorLse(args, survivors);
  }
  double mass = 0;
  for (size_t i = 0; i < keep; ++i) {
    const Candidate next = cutsCount ? heap[total - 1 - i] : pop();
    survivors.last = next;
    const float scaled = firstLane(div(set1(next.logit), set1(args.temperature)));
    mass += static_cast<double>(exp1(scaled - lse));
    if (mass >= args.topP) break;
  }
  return survivors;
}

}  // namespace hotbed::kernels::HOTBED_PATH
