// Output head (N11): logits in vocabulary tiles of 512 ids aligned to 0, never [rows, V] unless
// asked for. Per tile max and tree16 of exp(l - max), merged ascending by N3's formula;
// lse = m + log S; logprob = l - lse.
//
// Targets of row i are entries targetOffsets[i] .. targetOffsets[i+1] of the flat arrays (K each).
// Backward: one target: dlogit = c*((v == y ? 1 : 0) - p); K: C = sum of c_k ascending,
// dlogit = -(C*p), then + c_k for each y_k = v ascending; none: 0. p = exp(l - lse).
// dx = one chain over v across all tiles, which is a linear layer on the transposed panels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/linear.h"

namespace hotbed::kernels {

constexpr size_t kVocabTile = 512;

struct HeadArgs {
  const float* x = nullptr;  // [rows, d], after the final norm
  size_t ldx = 0;
  size_t rows = 0;
  PackedLinear weight;      // dOut = V, dIn = d
  float* lse = nullptr;     // [rows] out
  float* logits = nullptr;  // [rows, V] out, or null
  size_t ldlogits = 0;
  const size_t* targetOffsets = nullptr;  // [rows + 1], or null: no targets
  const int32_t* targets = nullptr;       // [targetOffsets[rows]], each in [0, V)
  float* logprobs = nullptr;              // as targets, out
};

struct HeadBackwardArgs {
  const float* x = nullptr;
  size_t ldx = 0;
  size_t rows = 0;
  PackedLinear weight;            // as in the forward pass
  PackedLinear weightTransposed;  // packLinearTransposed of it: dOut = d, dIn = V
  const float* lse = nullptr;     // [rows] of the forward pass
  const size_t* targetOffsets = nullptr;
  const int32_t* targets = nullptr;
  const float* c = nullptr;  // dL/dlogprob per target
  float* dx = nullptr;       // [rows, d], written
  size_t lddx = 0;
};

}  // namespace hotbed::kernels
