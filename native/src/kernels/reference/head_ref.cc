#include <vector>

#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

namespace {

void rowLogits(ThreadPool& pool, const float* x, const PackedLinear& weight, float* logits) {
  LinearArgs args;
  args.x = x;
  args.ldx = weight.dIn;
  args.rows = 1;
  args.weight = weight;
  args.y = logits;
  args.ldy = weight.dOut;
  linear(pool, args);
}

}  // namespace

void head(ThreadPool& pool, const HeadArgs& args) {
  const size_t vocab = args.weight.dOut;
  std::vector<float> logits(vocab);
  for (size_t row = 0; row < args.rows; ++row) {
    rowLogits(pool, args.x + row * args.ldx, args.weight, logits.data());
    Partial carried{};
    for (size_t begin = 0; begin < vocab; begin += kVocabTile) {
      const size_t n = vocab - begin < kVocabTile ? vocab - begin : kVocabTile;
      const Partial tile = softmaxPartial(logits.data() + begin, n);
      if (begin == 0) {
        carried = tile;
      } else {
        mergePartial(carried, tile);
      }
    }
    args.lse[row] = carried.max + log1(carried.sum);
    if (args.logits) {
      for (size_t v = 0; v < vocab; ++v) args.logits[row * args.ldlogits + v] = logits[v];
    }
    if (!args.targetOffsets) continue;
    for (size_t t = args.targetOffsets[row]; t < args.targetOffsets[row + 1]; ++t) {
      args.logprobs[t] = logits[static_cast<size_t>(args.targets[t])] - args.lse[row];
    }
  }
}

void headBackward(ThreadPool& pool, const HeadBackwardArgs& args) {
  const size_t vocab = args.weight.dOut;
  std::vector<float> dlogits(vocab);
  for (size_t row = 0; row < args.rows; ++row) {
    rowLogits(pool, args.x + row * args.ldx, args.weight, dlogits.data());
    const size_t begin = args.targetOffsets[row];
    const size_t end = args.targetOffsets[row + 1];
    float total = 0.0f;
    for (size_t t = begin; t < end; ++t) total = total + args.c[t];
    for (size_t v = 0; v < vocab; ++v) {
      const float p = exp1(dlogits[v] - args.lse[row]);
      if (end - begin == 1) {
        const float hit = static_cast<size_t>(args.targets[begin]) == v ? 1.0f : 0.0f;
        dlogits[v] = args.c[begin] * (hit - p);
        continue;
      }
      dlogits[v] = -(total * p);
      for (size_t t = begin; t < end; ++t) {
        if (static_cast<size_t>(args.targets[t]) == v) dlogits[v] = dlogits[v] + args.c[t];
      }
    }
    if (begin == end) dlogits.assign(vocab, 0.0f);
    LinearArgs gradient;
    gradient.x = dlogits.data();
    gradient.ldx = vocab;
    gradient.rows = 1;
    gradient.weight = args.weightTransposed;
    gradient.weight.bias = nullptr;
    gradient.y = args.dx + row * args.lddx;
    gradient.ldy = args.lddx;
    linear(pool, gradient);
  }
}

}  // namespace hotbed::kernels::reference
