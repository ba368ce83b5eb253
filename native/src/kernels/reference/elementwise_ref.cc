#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

void swiglu(ThreadPool&, const SwigluArgs& args) {
  for (size_t row = 0; row < args.rows; ++row) {
    for (size_t j = 0; j < args.n; ++j) {
      const float g = args.gate[row * args.ldin + j];
      const float up = args.up[row * args.ldin + j];
      const float sg = 1.0f / (1.0f + exp1(-g));
      const float a = g * sg;
      args.h[row * args.ldh + j] = a * up;
    }
  }
}

void swigluBackward(ThreadPool&, const SwigluBackwardArgs& args) {
  for (size_t row = 0; row < args.rows; ++row) {
    for (size_t j = 0; j < args.n; ++j) {
      const float g = args.gate[row * args.ldin + j];
      const float up = args.up[row * args.ldin + j];
      const float dh = args.dh[row * args.lddh + j];
      const float sg = 1.0f / (1.0f + exp1(-g));
      const float a = g * sg;
      args.dup[row * args.ldout + j] = dh * a;
      args.dgate[row * args.ldout + j] = (dh * up) * (sg * fmaf1(g, 1.0f - sg, 1.0f));
    }
  }
}

void add(ThreadPool&, const AddArgs& args) {
  for (size_t row = 0; row < args.rows; ++row) {
    for (size_t j = 0; j < args.n; ++j) {
      args.y[row * args.ldy + j] = args.a[row * args.lda + j] + args.b[row * args.ldb + j];
    }
  }
}

}  // namespace hotbed::kernels::reference
