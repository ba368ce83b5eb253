// Linear layers (N1): Y[rows, dOut] = X[rows, dIn] W^T + bias; y = chain over k from +0, then +
// bias.
//
// Weights are packed once into panels of 32 output columns: panels[p][k][32], element
// (p, k, c) = W[p*32 + c][k], columns beyond dOut are +0. The layout is the same on every path.
// The input gradient dX = dY W (chain over d_out) is the same kernel on packLinearTransposed's
// panels, whose `dOut` is the layer's d_in and whose `dIn` is the layer's d_out.
// rows = 0 is allowed. y must not overlap x. Leading dimensions count floats.
#pragma once

#include <cstddef>

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
};

struct LinearArgs {
  const float* x = nullptr;
  size_t ldx = 0;
  size_t rows = 0;
  PackedLinear weight;
  float* y = nullptr;
  size_t ldy = 0;
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
