// Sampling (N9) by the Gumbel maximum: token = argmax of l' - log(-log u), l' = l / T, ties to the
// lowest id; u from Philox 4x32-10 at (id >> 2, drawIndex, sampleIndex, 0). T = 0: argmax of l.
//
// Top-k then top-p mask by (logit descending, id ascending); the draw is the same. Ids >= idLimit
// are masked for the draw and stay in lse. policyLogprob = l - lse; samplingLogprob = l' - lse''
// over the final survivors (N11's function), equal to policyLogprob at T = 0.
// token is -1 where no id can be drawn (every candidate is NaN): the caller's fault to report.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotbed::kernels {

struct SampleArgs {
  const float* logits = nullptr;  // [vocab]
  size_t vocab = 0;
  size_t idLimit = 0;  // 1..vocab: ids that the tokenizer defines
  float lse = 0;       // of this row by the head
  float temperature = 1;
  size_t topK = 0;  // 0: off
  double topP = 1;  // >= 1: off
  uint64_t seed = 0;
  uint32_t drawIndex = 0;
  uint32_t sampleIndex = 0;
};

struct SampleResult {
  int32_t token = -1;
  float policyLogprob = 0;
  float samplingLogprob = 0;
};

}  // namespace hotbed::kernels
