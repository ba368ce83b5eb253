#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

namespace {
float inverseRms(const float* x, size_t n, float eps) {
  const float mean = treeDot(x, x, n) / static_cast<float>(n);
  return 1.0f / __builtin_sqrtf(mean + eps);
}
}  // namespace

void rmsNorm(ThreadPool&, const RmsNormArgs& args) {
  for (size_t row = 0; row < args.rows; ++row) {
    for (size_t group = 0; group < args.groups; ++group) {
      const float* x = args.x + row * args.ldx + group * args.n;
      float* y = args.y + row * args.ldy + group * args.n;
      const float r = inverseRms(x, args.n, args.eps);
      for (size_t j = 0; j < args.n; ++j) y[j] = (x[j] * r) * args.w[j];
    }
  }
}

void rmsNormBackward(ThreadPool&, const RmsNormBackwardArgs& args) {
  for (size_t row = 0; row < args.rows; ++row) {
    for (size_t group = 0; group < args.groups; ++group) {
      const float* x = args.x + row * args.ldx + group * args.n;
      const float* dy = args.dy + row * args.lddy + group * args.n;
      float* dx = args.dx + row * args.lddx + group * args.n;
      const float r = inverseRms(x, args.n, args.eps);
      float lane[16] = {};
      for (size_t j = 0; j < args.n; ++j) {
        const float gw = dy[j] * args.w[j];
        lane[j % 16] = fmaf1(gw, x[j], lane[j % 16]);
      }
      const float t = treeSum(lane, 16);  // 16 elements, one per lane: 0 + lane, then the tree
      const float factor = (((r * r) * r) * t) / static_cast<float>(args.n);
      for (size_t j = 0; j < args.n; ++j) {
        const float gw = dy[j] * args.w[j];
        dx[j] = fmaf1(-x[j], factor, r * gw);
      }
    }
  }
}

}  // namespace hotbed::kernels::reference
