#include <vector>

#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

namespace {

size_t keyOffset(const AttentionShape& shape, size_t kvHead, size_t slot, size_t c) {
  return (kvHead * shape.headDim + c) * kKeyBlock + slot;
}

size_t valueOffset(const AttentionShape& shape, size_t kvHead, size_t slot, size_t c) {
  return shape.kvHeads * shape.headDim * kKeyBlock + (kvHead * kKeyBlock + slot) * shape.headDim +
         c;
}

float scaleOf(const AttentionShape& shape) {
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(shape.headDim)));
}

float score(const AttentionShape& shape, const float* q, const float* page, size_t kvHead,
            size_t slot) {
  float sum = 0.0f;
  for (size_t c = 0; c < shape.headDim; ++c) {
    sum = fmaf1(q[c], page[keyOffset(shape, kvHead, slot, c)], sum);
  }
  return sum * scaleOf(shape);
}

}  // namespace

void writeKv(ThreadPool&, const KvWriteArgs& args) {
  const AttentionShape& shape = args.shape;
  for (size_t s = 0; s < args.sequenceCount; ++s) {
    const KvWriteRows& rows = args.sequences[s];
    for (size_t i = 0; i < rows.rowCount; ++i) {
      const size_t position = rows.positionBegin + i;
      float* page = rows.pages[position / kKeyBlock];
      const size_t slot = position % kKeyBlock;
      for (size_t kvHead = 0; kvHead < shape.kvHeads; ++kvHead) {
        for (size_t c = 0; c < shape.headDim; ++c) {
          const size_t column = kvHead * shape.headDim + c;
          page[keyOffset(shape, kvHead, slot, c)] = args.k[(rows.rowBegin + i) * args.ldk + column];
          page[valueOffset(shape, kvHead, slot, c)] =
              args.v[(rows.rowBegin + i) * args.ldv + column];
        }
      }
    }
  }
}

void attention(ThreadPool&, const AttentionArgs& args) {
  const AttentionShape& shape = args.shape;
  const size_t hd = shape.headDim;
  std::vector<float> blockOut(hd);
  for (size_t s = 0; s < args.sequenceCount; ++s) {
    const AttentionRows& rows = args.sequences[s];
    for (size_t i = 0; i < rows.rowCount; ++i) {
      const size_t row = rows.rowBegin + i;
      const size_t keys = rows.positionBegin + i + 1;
      for (size_t h = 0; h < shape.queryHeads; ++h) {
        const size_t kvHead = h / (shape.queryHeads / shape.kvHeads);
        const float* q = args.q + row * args.ldq + h * hd;
        float* o = args.o + row * args.ldo + h * hd;
        Partial carried{};
        for (size_t begin = 0; begin < keys; begin += kKeyBlock) {
          const float* page = rows.pages[begin / kKeyBlock];
          const size_t n = keys - begin < kKeyBlock ? keys - begin : kKeyBlock;
          float scores[kKeyBlock];
          for (size_t j = 0; j < n; ++j) scores[j] = score(shape, q, page, kvHead, j);
          const Partial block = softmaxPartial(scores, n);
          for (size_t c = 0; c < hd; ++c) {
            blockOut[c] = 0.0f;
            for (size_t j = 0; j < n; ++j) {
              blockOut[c] = fmaf1(exp1(scores[j] - block.max),
                                  page[valueOffset(shape, kvHead, j, c)], blockOut[c]);
            }
          }
          if (begin == 0) {
            carried = block;
            for (size_t c = 0; c < hd; ++c) o[c] = blockOut[c];
          } else {
            const MergeFactors factors = mergePartial(carried, block);
            for (size_t c = 0; c < hd; ++c) o[c] = fmaf1(o[c], factors.a, blockOut[c] * factors.b);
          }
        }
        for (size_t c = 0; c < hd; ++c) o[c] = o[c] / carried.sum;
        if (args.lse) args.lse[row * shape.queryHeads + h] = carried.max + log1(carried.sum);
      }
    }
  }
}

void attentionBackward(ThreadPool&, const AttentionBackwardArgs& args) {
  const AttentionShape& shape = args.shape;
  const size_t hd = shape.headDim;
  const float scale = scaleOf(shape);
  for (size_t h = 0; h < shape.queryHeads; ++h) {
    const size_t kvHead = h / (shape.queryHeads / shape.kvHeads);
    for (size_t row = 0; row < args.rowCount; ++row) {
      const float* q = args.q + row * args.ldq + h * hd;
      const float* o = args.o + row * args.ldo + h * hd;
      const float* dout = args.dout + row * args.lddout + h * hd;
      float* dq = args.dq + row * args.lddq + h * hd;
      const float lse = args.lse[row * shape.queryHeads + h];
      const float d = treeDot(dout, o, hd);
      for (size_t c = 0; c < hd; ++c) dq[c] = 0.0f;
      for (size_t r = 0; r < args.rangeCount; ++r) {
        const KvGradientRange& range = args.ranges[r];
        for (size_t key = range.positionBegin;
             key < range.positionEnd && key <= args.positionBegin + row; ++key) {
          const float* page = args.pages[key / kKeyBlock];
          const size_t slot = key % kKeyBlock;
          const float p = exp1(score(shape, q, page, kvHead, slot) - lse);
          float dp = 0.0f;
          for (size_t c = 0; c < hd; ++c) {
            dp = fmaf1(dout[c], page[valueOffset(shape, kvHead, slot, c)], dp);
          }
          const float ds = (p * (dp - d)) * scale;
          float* dk = range.dk + (key - range.positionBegin) * range.lddk + kvHead * hd;
          float* dv = range.dv + (key - range.positionBegin) * range.lddv + kvHead * hd;
          for (size_t c = 0; c < hd; ++c) {
            dq[c] = fmaf1(ds, page[keyOffset(shape, kvHead, slot, c)], dq[c]);
            dk[c] = fmaf1(ds, q[c], dk[c]);
            dv[c] = fmaf1(p, dout[c], dv[c]);
          }
        }
      }
    }
  }
}

void attentionBackwardGroups(ThreadPool& pool, const AttentionBackwardGroup* groups, size_t count) {
  for (size_t g = 0; g < count; ++g) {
    for (size_t run = 0; run < groups[g].runCount; ++run) {
      attentionBackward(pool, groups[g].runs[run]);
    }
  }
}

}  // namespace hotbed::kernels::reference
