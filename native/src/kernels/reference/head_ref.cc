#include <vector>

#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

namespace {

const HeadLora* loraOf(const HeadLora* lora, size_t count, size_t row) {
  for (size_t s = 0; s < count; ++s) {
    if (row >= lora[s].rowBegin && row < lora[s].rowEnd) return &lora[s];
  }
  return nullptr;
}

// Base logits of one row, and its adapter's part (u out).
void rowLogits(ThreadPool& pool, const float* x, const PackedLinear& weight, const HeadLora* lora,
               float* u, float* logits) {
  LinearArgs args;
  args.x = x;
  args.ldx = weight.dIn;
  args.rows = 1;
  args.weight = weight;
  args.y = logits;
  args.ldy = weight.dOut;
  linear(pool, args);
  if (!lora) return;
  const LoraForwardSegment segment{0, 1, lora->at, lora->bt, lora->rank, lora->scale};
  LoraForwardArgs delta;
  delta.x = x;
  delta.ldx = weight.dIn;
  delta.dIn = weight.dIn;
  delta.y = logits;
  delta.ldy = weight.dOut;
  delta.dOut = weight.dOut;
  delta.u = u;
  delta.ldu = lora->rank;
  delta.segments = &segment;
  delta.segmentCount = 1;
  loraForward(pool, delta);
}

// One row's part of du, dx and the gradients of A and B.
void rowLoraBackward(ThreadPool& pool, const HeadBackwardArgs& args, const HeadLora& lora,
                     size_t row, const float* dlogits) {
  const LoraBackwardSegment segment{0,         1,          lora.a,     lora.b,
                                    lora.rank, lora.scale, lora.gradA, lora.gradB};
  LoraBackwardArgs back;
  back.x = args.x + row * args.ldx;
  back.ldx = args.ldx;
  back.dIn = args.weight.dIn;
  back.u = args.u + row * args.ldu;
  back.ldu = args.ldu;
  back.dy = dlogits;
  back.lddy = args.weight.dOut;
  back.dOut = args.weight.dOut;
  back.du = args.du + row * args.lddu;
  back.lddu = args.lddu;
  back.dx = args.dx + row * args.lddx;
  back.lddx = args.lddx;
  back.segments = &segment;
  back.segmentCount = 1;
  loraBackward(pool, back);
}

}  // namespace

void head(ThreadPool& pool, const HeadArgs& args) {
  const size_t vocab = args.weight.dOut;
  std::vector<float> logits(vocab);
  for (size_t row = 0; row < args.rows; ++row) {
    rowLogits(pool, args.x + row * args.ldx, args.weight, loraOf(args.lora, args.loraCount, row),
              args.u + row * args.ldu, logits.data());
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
    const HeadLora* lora = loraOf(args.lora, args.loraCount, row);
    std::vector<float> u(lora ? lora->rank : 0);
    rowLogits(pool, args.x + row * args.ldx, args.weight, lora, u.data(), dlogits.data());
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
    for (size_t v = 0; args.logits && v < vocab; ++v) {
      args.logits[row * args.ldlogits + v] = dlogits[v];
    }
    LinearArgs gradient;
    gradient.x = dlogits.data();
    gradient.ldx = vocab;
    gradient.rows = 1;
    gradient.weight = args.weightTransposed;
    gradient.weight.bias = nullptr;
    gradient.y = args.dx + row * args.lddx;
    gradient.ldy = args.lddx;
    linear(pool, gradient);
    if (lora) rowLoraBackward(pool, args, *lora, row, dlogits.data());
  }
}

}  // namespace hotbed::kernels::reference
