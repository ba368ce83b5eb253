// Linear layers (N1): Y[rows, dOut] = X[rows, dIn] W^T + bias; y = chain over k from +0, then +
// bias.
//
// Weights are packed once into panels of 32 output columns: panels[p][k][32], element
// (p, k, c) = W[p*32 + c][k], columns beyond dOut are +0. The layout is the same on every path.
// The input gradient dX = dY W (chain over d_out) is the same kernel on packLinearTransposed's
// panels, whose `dOut` is the layer's d_in and whose `dIn` is the layer's d_out.
// Weights that are bf16 by nature may be narrowed after packing: half the memory and half the
// reading, widened exactly inside the kernel, so the same bits. Narrow panels hold for each (p, k)
// 16 words, word l = bf16 of column l | bf16 of column 16 + l << 16: one shift or mask widens them.
//
// Pair panels are the product of the numerics id bf16-1 (P1), whose weights are bf16 numbers: panel
// p holds for each pair i of k's 32 words, word c = bf16 of W[p*32 + c][2i] | bf16 of
// W[p*32 + c][2i+1] << 16. x is rounded to bf16 (nearest, ties to even) and each pair continues the
// chain by two fused multiply-adds, the odd element first, with denormals read and given as zeros:
// what VDPBF16PS does. Where dIn is odd the last pair's second half is +0 * +0. The bias is added
// in the same float environment.
// rows = 0 is allowed. y must not overlap x. Leading dimensions count floats.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotbed::kernels {

constexpr size_t kPanelWidth = 32;

// Floats that a packed [dOut, dIn] matrix takes.
inline constexpr size_t packedLinearFloats(size_t dOut, size_t dIn) {
  return (dOut + kPanelWidth - 1) / kPanelWidth * kPanelWidth * dIn;
}

// A view; owns nothing. For packLinearTransposed give dOut = d_in, dIn = d_out of the layer.
struct PackedLinear {
  const float* panels = nullptr;  // 64-byte aligned
  size_t dOut = 0;
  size_t dIn = 0;
  const float* bias = nullptr;  // [dOut] or none
  // Narrow panels, 64-byte aligned; used in place of `panels` where set.
  const uint32_t* narrowPanels = nullptr;
  // Pair panels, 64-byte aligned: where set, the product is bf16-1's.
  const uint32_t* pairPanels = nullptr;
};

// 32-bit words that packedLinearFloats floats take when narrowed.
inline constexpr size_t narrowPanelWords(size_t floats) { return floats / 2; }

// 32-bit words of pair panels of a packed [dOut, dIn] matrix.
inline constexpr size_t pairPanelWords(size_t dOut, size_t dIn) {
  return (dOut + kPanelWidth - 1) / kPanelWidth * kPanelWidth * ((dIn + 1) / 2);
}

// Memory that will be read soon.
struct FetchSpan {
  const void* begin = nullptr;
  size_t bytes = 0;
};

struct LinearArgs {
  const float* x = nullptr;
  size_t ldx = 0;
  size_t rows = 0;
  PackedLinear weight;
  float* y = nullptr;
  size_t ldy = 0;
  // Brought into the caches while the layer computes, where its loops have room for it: many small
  // adapters are bound by memory, many rows are not. Never part of a result.
  const FetchSpan* fetch = nullptr;
  size_t fetchCount = 0;
};

struct PackLinearArgs {
  const float* w = nullptr;  // [dOut, dIn], row stride ldw
  size_t ldw = 0;
  size_t dOut = 0;
  size_t dIn = 0;
  float* panels =
      nullptr;  // packedLinearFloats(dOut, dIn); transposed: (dIn, dOut). 64-byte aligned
};

}  // namespace hotbed::kernels
