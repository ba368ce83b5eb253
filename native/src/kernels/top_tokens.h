// The k likeliest ids of a row: logit descending, then id ascending; NaN is not ordered and left
// out. logprob = logit - lse, so the same bits as a policy log-prob (N11). Where fewer than k ids
// have a number, the rest is token -1 with logprob NaN.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotbed::kernels {

struct TopTokensArgs {
  const float* logits = nullptr;  // [vocabulary]
  size_t idLimit = 0;             // ids that the tokenizer defines
  float lse = 0;                  // of this row by the head
  size_t k = 0;                   // 1..kMostTopIds
  int32_t* tokens = nullptr;      // [k] out
  float* logprobs = nullptr;      // [k] out
};

constexpr size_t kMostTopIds = 64;

}  // namespace hotbed::kernels
