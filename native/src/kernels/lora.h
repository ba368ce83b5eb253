// LoRA (N5, N6): u = chain(A x); y = fma(s, chain(B u), y); du = s * chain(B^T dy);
// dx = dx + chain over r of A du; gradB += chain over rows of (s*u)*dy; gradA += chain of du*x.
//
// A [rank, dIn], B [dOut, rank] row-major, exactly sized. The forward pass reads the transposes
// At [dIn, rank], Bt [rank, dOut] (KernelTable::transpose), the backward pass A and B, so each has
// contiguous lanes. Gradients are A's and B's shape and are carried on: row order inside a segment,
// segments in the order given, also where segments share one adapter's tensors.
// loraForwardMany: modules that read one input (equal x and dIn), each with its own y and u, in one
// loop.
// Segments of a call do not overlap in rows. Nothing may alias but dx, y, which are updated in
// place.
#pragma once

#include <cstddef>

namespace hotbed::kernels {

struct LoraForwardSegment {
  size_t rowBegin = 0;
  size_t rowEnd = 0;
  const float* at = nullptr;  // [dIn, rank]
  const float* bt = nullptr;  // [rank, dOut]
  size_t rank = 0;
  float scale = 0;
};

struct LoraForwardArgs {
  const float* x = nullptr;  // [rows, dIn]
  size_t ldx = 0;
  size_t dIn = 0;
  float* y = nullptr;  // [rows, dOut]: base output with bias in, sum out
  size_t ldy = 0;
  size_t dOut = 0;
  float* u = nullptr;  // [rows, >= largest rank] out; the backward pass wants it
  size_t ldu = 0;
  const LoraForwardSegment* segments = nullptr;
  size_t segmentCount = 0;
};

struct LoraBackwardSegment {
  size_t rowBegin = 0;
  size_t rowEnd = 0;
  const float* a = nullptr;  // [rank, dIn]
  const float* b = nullptr;  // [dOut, rank]
  size_t rank = 0;
  float scale = 0;
  float* gradA = nullptr;  // [rank, dIn], carried; null: no gradients of A and B wanted
  float* gradB = nullptr;  // [dOut, rank], carried; null together with gradA
};

struct LoraBackwardArgs {
  const float* x = nullptr;  // [rows, dIn] of the forward pass
  size_t ldx = 0;
  size_t dIn = 0;
  const float* u = nullptr;  // [rows, rank] of the forward pass
  size_t ldu = 0;
  const float* dy = nullptr;  // [rows, dOut]
  size_t lddy = 0;
  size_t dOut = 0;
  float* du = nullptr;  // [rows, >= largest rank] scratch out
  size_t lddu = 0;
  float* dx = nullptr;  // [rows, dIn]: base input gradient in, sum out; null: not wanted
  size_t lddx = 0;
  const LoraBackwardSegment* segments = nullptr;
  size_t segmentCount = 0;
};

struct TransposeArgs {
  const float* src = nullptr;  // [rows, cols]
  size_t rows = 0;
  size_t cols = 0;
  float* dst = nullptr;  // [cols, rows], does not overlap src
};

// A[j][i] = (2u - 1) / sqrt(float dIn) of N13; a is [rank, dIn]. B starts as zeros.
struct LoraInitArgs {
  float* a = nullptr;
  size_t rank = 0;
  size_t dIn = 0;
  unsigned layer = 0;
  unsigned moduleId = 0;  // 0..7 = q, k, v, o, gate, up, down, lm_head
  unsigned long long seed = 0;
};

}  // namespace hotbed::kernels
