// SwiGLU (N12) and addition.
//
// Forward: sg = 1/(1 + exp(-g)), a = g*sg, h = a*up. Backward: dup = dh*a,
// dg = (dh*up)*(sg*fma(g, 1-sg, 1)). All [rows, n]. Outputs may be any of the inputs themselves.
#pragma once

#include <cstddef>

namespace hotbed::kernels {

struct SwigluArgs {
  const float* gate = nullptr;
  const float* up = nullptr;
  size_t ldin = 0;  // of gate and up
  size_t rows = 0;
  size_t n = 0;
  float* h = nullptr;
  size_t ldh = 0;
};

struct SwigluBackwardArgs {
  const float* gate = nullptr;
  const float* up = nullptr;
  size_t ldin = 0;
  size_t rows = 0;
  size_t n = 0;
  const float* dh = nullptr;
  size_t lddh = 0;
  float* dgate = nullptr;
  float* dup = nullptr;
  size_t ldout = 0;  // of dgate and dup
};

// y = a + b; y may be a or b.
struct AddArgs {
  const float* a = nullptr;
  size_t lda = 0;
  const float* b = nullptr;
  size_t ldb = 0;
  float* y = nullptr;
  size_t ldy = 0;
  size_t rows = 0;
  size_t n = 0;
};

}  // namespace hotbed::kernels
