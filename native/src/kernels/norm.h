// RMSNorm (N2), for hidden rows (groups = 1) and per head (groups = heads, n = head_dim).
//
// mean = tree16(x*x) / float(n); r = 1 / sqrt(mean + eps); y = (x*r)*w.
// Backward: gw = g*w; t = tree16(gw*x); dx = fma(-x, (((r*r)*r)*t)/float(n), r*gw); w is frozen.
// Group g of a row lies at row*ld + g*n. y may be x itself; dx may be dy itself.
#pragma once

#include <cstddef>

namespace hotbed::kernels {

struct RmsNormArgs {
  const float* x = nullptr;
  size_t ldx = 0;
  size_t rows = 0;
  size_t groups = 1;
  size_t n = 0;
  const float* w = nullptr;  // [n]
  float eps = 0;
  float* y = nullptr;
  size_t ldy = 0;
};

struct RmsNormBackwardArgs {
  const float* x = nullptr;  // the forward pass's input; r is computed again
  size_t ldx = 0;
  size_t rows = 0;
  size_t groups = 1;
  size_t n = 0;
  const float* w = nullptr;
  float eps = 0;
  const float* dy = nullptr;
  size_t lddy = 0;
  float* dx = nullptr;  // written, not added to
  size_t lddx = 0;
};

}  // namespace hotbed::kernels
