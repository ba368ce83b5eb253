// Output head (N11): logits in vocabulary tiles of 512 ids aligned to 0, never [rows, V] unless
// asked for. Per tile max and tree16 of exp(l - max), merged ascending by N3's formula;
// lse = m + log S; logprob = l - lse.
//
// Targets of row i are entries targetOffsets[i] .. targetOffsets[i+1] of the flat arrays (K each).
// Backward: one target: dlogit = c*((v == y ? 1 : 0) - p); K: C = sum of c_k ascending,
// dlogit = -(C*p), then + c_k for each y_k = v ascending; none: 0. p = exp(l - lse).
// dx = one chain over v across all tiles, which is a linear layer on the transposed panels.
//
// LoRA on the head (N5, N6), per segment of rows: u = chain(A x), logit = fma(s, chain over r of
// B u, logit); du = s * chain over v of B^T dlogit; dx = dx + chain over r of A du; gradB += chain
// over rows of (s*u)*dlogit, gradA of du*x, carried on in row order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/linear.h"

namespace hotbed::kernels {

constexpr size_t kVocabTile = 512;

// Rows [rowBegin, rowEnd) whose adapter has a pair on the head. Segments ascend and do not overlap;
// rows between them have none.
struct HeadLora {
  size_t rowBegin = 0;
  size_t rowEnd = 0;
  size_t rank = 0;
  float scale = 0;
  const float* at = nullptr;  // [d, rank]; forward pass
  const float* bt = nullptr;  // [rank, V]; both passes
  const float* a = nullptr;   // [rank, d]; backward pass
  const float* b = nullptr;   // [V, rank]; backward pass
  float* gradA = nullptr;     // [rank, d], carried
  float* gradB = nullptr;     // [V, rank], carried
};

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
  const HeadLora* lora = nullptr;         // [loraCount]
  size_t loraCount = 0;
  float* u = nullptr;  // [rows, >= largest rank] out; null only where loraCount is 0
  size_t ldu = 0;
};

struct HeadBackwardArgs {
  const float* x = nullptr;
  size_t ldx = 0;
  size_t rows = 0;
  PackedLinear weight;            // as in the forward pass
  PackedLinear weightTransposed;  // packLinearTransposed of it: dOut = d, dIn = V
  const float* lse = nullptr;     // [rows] of the forward pass
  // [rows, V] of the forward pass, overwritten by dlogit; null: they are computed again, a part of
  // the vocabulary at a time.
  float* logits = nullptr;
  size_t ldlogits = 0;
  const size_t* targetOffsets = nullptr;
  const int32_t* targets = nullptr;
  const float* c = nullptr;  // dL/dlogprob per target
  float* dx = nullptr;       // [rows, d], written
  size_t lddx = 0;
  const HeadLora* lora = nullptr;  // [loraCount], as in the forward pass
  size_t loraCount = 0;
  const float* u = nullptr;  // [rows, >= largest rank] of the forward pass
  size_t ldu = 0;
  float* du = nullptr;  // [rows, >= largest rank] scratch out
  size_t lddu = 0;
};

}  // namespace hotbed::kernels
