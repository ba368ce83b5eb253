#include "kernels/path.h"
//
#include "kernels/path_table.h"
#include "kernels/philox.h"
#include "kernels/survivors.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

// The largest Gumbel draw is -log(-log(1 - 2^-24)) = 16.64: a candidate further below cannot win.
constexpr float kLargestGumbel = 17.0f;

// The best finite-or-infinite logit, ties to the lowest id; -1 when all are NaN.
int32_t argmax(const SampleArgs& args) {
  V16 m = set1(-kInfinity);
  for (size_t j = 0; j < args.idLimit; j += 16) {
    const size_t lanes = minSize(16, args.idLimit - j);
    m = maxKeep(m, load(args.logits + j, lanes, m));
  }
  const V16 best = set1(maxTree(m));
  for (size_t j = 0; j < args.idLimit; j += 16) {
    const size_t lanes = minSize(16, args.idLimit - j);
    const unsigned bits = laneBits(equal(best, load(args.logits + j, lanes))) & ((1u << lanes) - 1);
    if (bits) return static_cast<int32_t>(j) + __builtin_ctz(bits);
  }
  return -1;
}

// l' - log(-log u) of one id.
float drawValue(const SampleArgs& args, size_t id) {
  uint32_t words[4] = {static_cast<uint32_t>(id >> 2), args.drawIndex, args.sampleIndex,
                       kDomainSample};
  philox1(args.seed, words);
  const V16 gumbel = log16(neg(log16(set1(uniformOf(words[id & 3])))));
  return firstLane(sub(div(set1(args.logits[id]), set1(args.temperature)), gumbel));
}

// argmax of l' - log(-log u) over the survivors, 64 ids (16 Philox counters) at a time. The largest
// logit survives every mask and is tried first, so that most of the others are seen to be hopeless
// without a draw.
int32_t drawToken(const SampleArgs& args, const Survivors& survivors) {
  const V16 temperature = set1(args.temperature);
  int32_t token = argmax(args);
  if (token < 0) return token;
  float best = drawValue(args, static_cast<size_t>(token));
  if (best != best) {  // Inf / Inf: others may still have a value
    token = -1;
    best = -kInfinity;
  }
  for (size_t begin = 0; begin < args.idLimit; begin += 64) {
    const size_t n = minSize(64, args.idLimit - begin);
    unsigned wanted[4] = {};
    unsigned any = 0;
    for (size_t j = 0; j < n; j += 16) {
      const size_t lanes = minSize(16, n - j);
      const V16 scaled = div(load(args.logits + begin + j, lanes), temperature);
      const unsigned hopeless = laneBits(less(add(scaled, set1(kLargestGumbel)), set1(best)));
      if (((1u << lanes) - 1) & ~hopeless) {
        wanted[j / 16] = survivingLanes(args, survivors, begin + j, lanes) & ~hopeless;
      }
      any |= wanted[j / 16];
    }
    if (!any) continue;
    uint32_t words[64];
    philox16(args.seed, static_cast<uint32_t>(begin >> 2), args.drawIndex, args.sampleIndex,
             kDomainSample, words);
    for (size_t j = 0; j < n; j += 16) {
      if (!wanted[j / 16]) continue;
      float u[16], values[16];
      for (size_t l = 0; l < 16; ++l) u[l] = uniformOf(words[j + l]);
      const V16 scaled = div(load(args.logits + begin + j, minSize(16, n - j)), temperature);
      const V16 value = sub(scaled, log16(neg(log16(load(u)))));
      // Not below the best so far; NaN drops out.
      unsigned bits =
          wanted[j / 16] & (laneBits(less(set1(best), value)) | laneBits(equal(set1(best), value)));
      if (!bits) continue;
      store(values, value);
      for (; bits != 0; bits &= bits - 1) {
        const unsigned l = static_cast<unsigned>(__builtin_ctz(bits));
        const int32_t id = static_cast<int32_t>(begin + j + l);
        if (token >= 0 && !(values[l] > best) && !(values[l] == best && id < token)) continue;
        best = values[l];
        token = id;
      }
    }
  }
  return token;
}

SampleResult sampleOne(const SampleArgs& args, Candidate* heap) {
  SampleResult result;
  if (args.temperature == 0.0f) {
    result.token = argmax(args);
    if (result.token < 0) return result;
    result.policyLogprob = args.logits[result.token] - args.lse;
    result.samplingLogprob = result.policyLogprob;
    return result;
  }
  const Survivors survivors = applyMasks(args, heap);
  result.token = drawToken(args, survivors);
  if (result.token < 0) return result;
  const float logit = args.logits[result.token];
  result.policyLogprob = logit - args.lse;
  result.samplingLogprob =
      firstLane(div(set1(logit), set1(args.temperature))) - survivorLse(args, survivors);
  return result;
}

}  // namespace

void sample(ThreadPool& pool, const SampleArgs* requests, size_t count, SampleResult* results) {
  size_t largest = 0;
  for (size_t i = 0; i < count; ++i) largest = maxSize(largest, requests[i].idLimit);
  const size_t bytes = largest * sizeof(Candidate);
  pool.reserveScratch(bytes);
  pool.forEach(count, [=, &pool](size_t i, size_t worker) {
    results[i] = sampleOne(requests[i], static_cast<Candidate*>(pool.scratch(worker, bytes)));
  });
}

}  // namespace hotbed::kernels::HOTBED_PATH
