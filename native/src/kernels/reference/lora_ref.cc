#include "kernels/constants.h"
#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

void loraForward(ThreadPool&, const LoraForwardArgs& args) {
  for (size_t s = 0; s < args.segmentCount; ++s) {
    const LoraForwardSegment& segment = args.segments[s];
    for (size_t row = segment.rowBegin; row < segment.rowEnd; ++row) {
      const float* x = args.x + row * args.ldx;
      float* u = args.u + row * args.ldu;
      for (size_t j = 0; j < segment.rank; ++j) {
        u[j] = 0.0f;
        for (size_t i = 0; i < args.dIn; ++i) {
          u[j] = fmaf1(segment.at[i * segment.rank + j], x[i], u[j]);
        }
      }
      for (size_t o = 0; o < args.dOut; ++o) {
        float delta = 0.0f;
        for (size_t j = 0; j < segment.rank; ++j) {
          delta = fmaf1(segment.bt[j * args.dOut + o], u[j], delta);
        }
        float& y = args.y[row * args.ldy + o];
        y = fmaf1(segment.scale, delta, y);
      }
    }
  }
}

void loraForwardMany(ThreadPool& pool, const LoraForwardArgs* calls, size_t count) {
  for (size_t i = 0; i < count; ++i) loraForward(pool, calls[i]);
}

void loraBackward(ThreadPool&, const LoraBackwardArgs& args) {
  for (size_t s = 0; s < args.segmentCount; ++s) {
    const LoraBackwardSegment& segment = args.segments[s];
    const size_t rank = segment.rank;
    for (size_t row = segment.rowBegin; row < segment.rowEnd; ++row) {
      const float* x = args.x + row * args.ldx;
      const float* u = args.u + row * args.ldu;
      const float* dy = args.dy + row * args.lddy;
      float* du = args.du + row * args.lddu;
      for (size_t j = 0; j < rank; ++j) {
        float sum = 0.0f;
        for (size_t o = 0; o < args.dOut; ++o) sum = fmaf1(segment.b[o * rank + j], dy[o], sum);
        du[j] = segment.scale * sum;
      }
      for (size_t i = 0; args.dx && i < args.dIn; ++i) {
        float sum = 0.0f;
        for (size_t j = 0; j < rank; ++j) sum = fmaf1(segment.a[j * args.dIn + i], du[j], sum);
        args.dx[row * args.lddx + i] = args.dx[row * args.lddx + i] + sum;
      }
      if (!segment.gradA) continue;
      for (size_t o = 0; o < args.dOut; ++o) {
        for (size_t j = 0; j < rank; ++j) {
          float& g = segment.gradB[o * rank + j];
          g = fmaf1(segment.scale * u[j], dy[o], g);
        }
      }
      for (size_t j = 0; j < rank; ++j) {
        for (size_t i = 0; i < args.dIn; ++i) {
          float& g = segment.gradA[j * args.dIn + i];
          g = fmaf1(du[j], x[i], g);
        }
      }
    }
  }
}

void loraInit(ThreadPool&, const LoraInitArgs& args) {
  const float root = __builtin_sqrtf(static_cast<float>(args.dIn));
  for (size_t element = 0; element < args.rank * args.dIn; ++element) {
    const uint32_t counter[4] = {static_cast<uint32_t>(element >> 2), args.layer, args.moduleId,
                                 kDomainInit};
    const float u = uniform(args.seed, counter, element & 3);
    args.a[element] = (2.0f * u - 1.0f) / root;
  }
}

void transpose(ThreadPool&, const TransposeArgs& args) {
  for (size_t row = 0; row < args.rows; ++row) {
    for (size_t col = 0; col < args.cols; ++col) {
      args.dst[col * args.rows + row] = args.src[row * args.cols + col];
    }
  }
}

void transposeMany(ThreadPool& pool, const TransposeArgs* matrices, size_t count) {
  for (size_t i = 0; i < count; ++i) transpose(pool, matrices[i]);
}

}  // namespace hotbed::kernels::reference
