// The reference's backward formulas against central differences of the same functions written in
// double with libm, and its forward values against those functions.
//
// Tolerances: fp32 results of sums of n terms of size about 1 carry a few n * 6e-8; differences
// with step 1e-4 in double add about 1e-8. 1e-5 of the largest gradient leaves room for n up to
// 100.
#include <functional>

#include "kernel_support.h"

using namespace hotbed;
using namespace hotbed::test;

namespace {

using Doubles = std::vector<double>;

const KernelTable& reference() { return kernels::kernels(Path::reference); }

Doubles widened(const Floats& x) { return Doubles(x.data(), x.data() + x.size()); }

double dot(const Doubles& a, const Floats& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * static_cast<double>(b[i]);
  return sum;
}

// d loss / d x by central differences.
Doubles differences(const std::function<double(const Doubles&)>& loss, Doubles x) {
  constexpr double kStep = 1e-4;
  Doubles gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + kStep;
    const double above = loss(x);
    x[i] = at - kStep;
    const double below = loss(x);
    x[i] = at;
    gradient[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

void checkNear(const char* what, const Floats& actual, const Doubles& expected) {
  CHECK_EQ(actual.size(), expected.size());
  double largest = 0.1;
  for (double e : expected) largest = std::max(largest, std::fabs(e));
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK_MESSAGE(std::fabs(static_cast<double>(actual[i]) - expected[i]) < 1e-5 * largest,
                  what << "[" << i << "]: expected " << expected[i] << ", actual " << actual[i]);
  }
}

}  // namespace

TEST(gradient_of_rms_norm) {
  const size_t n = 37;
  Random random(1);
  const Floats x = randomMatrix(random, 1, n, n), w = randomMatrix(random, 1, n, n);
  const Floats g = randomMatrix(random, 1, n, n);
  const auto forward = [&](const Doubles& at) {
    double mean = 0;
    for (double v : at) mean += v * v / n;
    Doubles y(n);
    for (size_t i = 0; i < n; ++i) y[i] = at[i] / std::sqrt(mean + 1e-5) * w[i];
    return y;
  };
  Floats y(n), dx(n);
  kernels::RmsNormArgs args;
  args.x = x.data();
  args.rows = 1;
  args.n = n;
  args.w = w.data();
  args.eps = 1e-5f;
  args.y = y.data();
  reference().rmsNorm(poolOf(1), args);
  checkNear("y", y, forward(widened(x)));
  kernels::RmsNormBackwardArgs back;
  back.x = x.data();
  back.rows = 1;
  back.n = n;
  back.w = w.data();
  back.eps = 1e-5f;
  back.dy = g.data();
  back.dx = dx.data();
  reference().rmsNormBackward(poolOf(1), back);
  checkNear("dx", dx,
            differences([&](const Doubles& at) { return dot(forward(at), g); }, widened(x)));
}

TEST(gradient_of_swiglu) {
  const size_t n = 20;
  Random random(2);
  const Floats both = randomMatrix(random, 1, 2 * n, 2 * n, 2.0f);
  const Floats g = randomMatrix(random, 1, n, n);
  const auto forward = [&](const Doubles& at) {
    Doubles h(n);
    for (size_t i = 0; i < n; ++i) h[i] = at[i] / (1 + std::exp(-at[i])) * at[n + i];
    return h;
  };
  Floats h(n), d(2 * n);
  reference().swiglu(poolOf(1), {both.data(), both.data() + n, 2 * n, 1, n, h.data(), n});
  checkNear("h", h, forward(widened(both)));
  reference().swigluBackward(poolOf(1), {both.data(), both.data() + n, 2 * n, 1, n, g.data(), n,
                                         d.data(), d.data() + n, 2 * n});
  checkNear("dgate, dup", d,
            differences([&](const Doubles& at) { return dot(forward(at), g); }, widened(both)));
}

TEST(gradient_of_rope) {
  const size_t half = 8;
  Random random(3);
  const Floats x = randomMatrix(random, 1, 2 * half, 2 * half);
  const Floats g = randomMatrix(random, 1, 2 * half, 2 * half);
  Floats cosine(half), sine(half);
  for (size_t i = 0; i < half; ++i) {
    cosine[i] = static_cast<float>(std::cos(0.7 * i));
    sine[i] = static_cast<float>(std::sin(0.7 * i));
  }
  const int32_t position = 0;
  const auto run = [&](const Floats& from, bool backward) {
    Floats y = from;
    reference().rope(poolOf(1), {y.data(), 2 * half, 1, 1, 2 * half, &position, cosine.data(),
                                 sine.data(), backward});
    return y;
  };
  const auto forward = [&](const Doubles& at) {  // Hugging Face: x*cos + rotate_half(x)*sin
    Doubles y(2 * half);
    for (size_t i = 0; i < half; ++i) {
      y[i] = at[i] * cosine[i] - at[half + i] * sine[i];
      y[half + i] = at[half + i] * cosine[i] + at[i] * sine[i];
    }
    return y;
  };
  checkNear("y", run(x, false), forward(widened(x)));
  checkNear("dx", run(g, true),
            differences([&](const Doubles& at) { return dot(forward(at), g); }, widened(x)));
}

TEST(gradient_of_lora) {
  const size_t rows = 5, dIn = 9, dOut = 7, rank = 3;
  const float scale = 1.5f;
  Random random(4);
  const Floats x = randomMatrix(random, rows, dIn, dIn), a = randomMatrix(random, rank, dIn, dIn);
  const Floats b = randomMatrix(random, dOut, rank, rank);
  const Floats g = randomMatrix(random, rows, dOut, dOut);
  // The parameters in one vector: x, A, B.
  const auto forward = [&](const Doubles& at) {
    const double* px = at.data();
    const double* pa = px + rows * dIn;
    const double* pb = pa + rank * dIn;
    Doubles y(rows * dOut);
    for (size_t r = 0; r < rows; ++r) {
      for (size_t o = 0; o < dOut; ++o) {
        for (size_t j = 0; j < rank; ++j) {
          double u = 0;
          for (size_t i = 0; i < dIn; ++i) u += pa[j * dIn + i] * px[r * dIn + i];
          y[r * dOut + o] += scale * pb[o * rank + j] * u;
        }
      }
    }
    return y;
  };
  Floats at(a.size()), bt(b.size()), u(rows * rank), y(rows * dOut), du(rows * rank);
  Floats dx(rows * dIn), gradA(a.size()), gradB(b.size());
  reference().transpose(poolOf(1), {a.data(), rank, dIn, at.data()});
  reference().transpose(poolOf(1), {b.data(), dOut, rank, bt.data()});
  const kernels::LoraForwardSegment f{0, rows, at.data(), bt.data(), rank, scale};
  reference().loraForward(poolOf(1),
                          {x.data(), dIn, dIn, y.data(), dOut, dOut, u.data(), rank, &f, 1});
  const Doubles all = widened(joined(joined(x, a), b));
  checkNear("y", y, forward(all));
  const kernels::LoraBackwardSegment s{0,    rows,  a.data(),     b.data(),
                                       rank, scale, gradA.data(), gradB.data()};
  reference().loraBackward(poolOf(1), {x.data(), dIn, dIn, u.data(), rank, g.data(), dOut, dOut,
                                       du.data(), rank, dx.data(), dIn, &s, 1});
  checkNear("dx, dA, dB", joined(joined(dx, gradA), gradB),
            differences([&](const Doubles& p) { return dot(forward(p), g); }, all));
}

TEST(gradient_of_attention) {
  const kernels::AttentionShape shape{4, 2, 8};
  const size_t rows = 9, qWidth = 32, kWidth = 16;
  Random random(5);
  const Floats q = randomMatrix(random, rows, qWidth, qWidth);
  const Floats k = randomMatrix(random, rows, kWidth, kWidth);
  const Floats v = randomMatrix(random, rows, kWidth, kWidth);
  const Floats g = randomMatrix(random, rows, qWidth, qWidth);
  const auto forward = [&](const Doubles& at) {
    const double* pq = at.data();
    const double* pk = pq + rows * qWidth;
    const double* pv = pk + rows * kWidth;
    Doubles o(rows * qWidth);
    for (size_t t = 0; t < rows; ++t) {
      for (size_t h = 0; h < shape.queryHeads; ++h) {
        const size_t kv = h / 2 * 8;
        double total = 0;
        for (size_t s = 0; s <= t; ++s) {
          double score = 0;
          for (size_t c = 0; c < 8; ++c)
            score += pq[t * qWidth + h * 8 + c] * pk[s * kWidth + kv + c];
          const double p = std::exp(score / std::sqrt(8.0));
          total += p;
          for (size_t c = 0; c < 8; ++c) o[t * qWidth + h * 8 + c] += p * pv[s * kWidth + kv + c];
        }
        for (size_t c = 0; c < 8; ++c) o[t * qWidth + h * 8 + c] /= total;
      }
    }
    return o;
  };
  Floats page(kernels::kvPageFloats(2, 8), kPoison), o(q.size()), lse(rows * 4);
  float* pages[] = {page.data()};
  const kernels::KvWriteRows write{0, rows, 0, pages};
  reference().writeKv(poolOf(1), {shape, k.data(), kWidth, v.data(), kWidth, &write, 1});
  const kernels::AttentionRows sequence{0, rows, 0, pages};
  reference().attention(poolOf(1),
                        {shape, q.data(), qWidth, o.data(), qWidth, lse.data(), &sequence, 1});
  const Doubles all = widened(joined(joined(q, k), v));
  checkNear("o", o, forward(all));
  Floats dq(q.size()), dk(k.size()), dv(v.size());
  const kernels::KvGradientRange range{0, rows, dk.data(), kWidth, dv.data(), kWidth};
  reference().attentionBackward(
      poolOf(1), {shape, rows, 0, pages, q.data(), qWidth, o.data(), qWidth, lse.data(), g.data(),
                  qWidth, dq.data(), qWidth, &range, 1});
  checkNear("dq, dk, dv", joined(joined(dq, dk), dv),
            differences([&](const Doubles& p) { return dot(forward(p), g); }, all));
}

TEST(gradient_of_head_with_several_targets) {
  const size_t rows = 3, d = 6, vocab = 11;
  Random random(6);
  const Floats x = randomMatrix(random, rows, d, d), w = randomMatrix(random, vocab, d, d);
  const std::vector<size_t> offsets{0, 1, 1, 4};
  const std::vector<int32_t> targets{7, 2, 2, 10};
  const Floats c = randomMatrix(random, 1, targets.size(), targets.size());
  const auto logprobs = [&](const Doubles& at) {
    Doubles result;
    for (size_t r = 0; r < rows; ++r) {
      Doubles logits(vocab);
      double total = 0;
      for (size_t v = 0; v < vocab; ++v) {
        for (size_t i = 0; i < d; ++i) logits[v] += at[r * d + i] * w[v * d + i];
        total += std::exp(logits[v]);
      }
      for (size_t t = offsets[r]; t < offsets[r + 1]; ++t) {
        result.push_back(logits[static_cast<size_t>(targets[t])] - std::log(total));
      }
    }
    return result;
  };
  const Floats panels = packed(reference(), poolOf(1), w, d, vocab, d);
  const Floats panelsT = packedTransposed(reference(), poolOf(1), w, d, vocab, d);
  Floats lse(rows), lp(targets.size()), dx(x.size());
  kernels::HeadArgs args;
  args.x = x.data();
  args.ldx = d;
  args.rows = rows;
  args.weight = {panels.data(), vocab, d, nullptr};
  args.lse = lse.data();
  args.targetOffsets = offsets.data();
  args.targets = targets.data();
  args.logprobs = lp.data();
  reference().head(poolOf(1), args);
  checkNear("logprobs", lp, logprobs(widened(x)));
  kernels::HeadBackwardArgs back;
  back.x = x.data();
  back.ldx = d;
  back.rows = rows;
  back.weight = args.weight;
  back.weightTransposed = {panelsT.data(), d, vocab, nullptr};
  back.lse = lse.data();
  back.targetOffsets = offsets.data();
  back.targets = targets.data();
  back.c = c.data();
  back.dx = dx.data();
  back.lddx = d;
  reference().headBackward(poolOf(1), back);
  checkNear("dx", dx,
            differences([&](const Doubles& at) { return dot(logprobs(at), c); }, widened(x)));
}

TEST(gradient_of_head_with_an_adapter) {
  const size_t rows = 3, d = 6, vocab = 11, rank = 2;
  const float scale = 1.25f;
  Random random(7);
  const Floats x = randomMatrix(random, rows, d, d), w = randomMatrix(random, vocab, d, d);
  const Floats a = randomMatrix(random, rank, d, d), b = randomMatrix(random, vocab, rank, rank);
  const std::vector<size_t> offsets{0, 1, 3, 4};
  const std::vector<int32_t> targets{7, 2, 9, 10};
  const Floats c = randomMatrix(random, 1, targets.size(), targets.size());
  // The parameters in one vector: x, A, B.
  const auto logprobs = [&](const Doubles& at) {
    const double* pa = at.data() + rows * d;
    const double* pb = pa + rank * d;
    Doubles result;
    for (size_t r = 0; r < rows; ++r) {
      Doubles logits(vocab), u(rank);
      double total = 0;
      for (size_t j = 0; j < rank; ++j) {
        for (size_t i = 0; i < d; ++i) u[j] += pa[j * d + i] * at[r * d + i];
      }
      for (size_t v = 0; v < vocab; ++v) {
        for (size_t i = 0; i < d; ++i) logits[v] += at[r * d + i] * w[v * d + i];
        for (size_t j = 0; j < rank; ++j) logits[v] += scale * pb[v * rank + j] * u[j];
        total += std::exp(logits[v]);
      }
      for (size_t t = offsets[r]; t < offsets[r + 1]; ++t) {
        result.push_back(logits[static_cast<size_t>(targets[t])] - std::log(total));
      }
    }
    return result;
  };
  const Floats panels = packed(reference(), poolOf(1), w, d, vocab, d);
  const Floats panelsT = packedTransposed(reference(), poolOf(1), w, d, vocab, d);
  Floats at(a.size()), bt(b.size()), gradA(a.size()), gradB(b.size());
  reference().transpose(poolOf(1), {a.data(), rank, d, at.data()});
  reference().transpose(poolOf(1), {b.data(), vocab, rank, bt.data()});
  const kernels::HeadLora lora{0,         rows,     rank,     scale,        at.data(),
                               bt.data(), a.data(), b.data(), gradA.data(), gradB.data()};
  Floats lse(rows), lp(targets.size()), dx(x.size()), u(rows * rank), du(rows * rank);
  kernels::HeadArgs args;
  args.x = x.data();
  args.ldx = d;
  args.rows = rows;
  args.weight = {panels.data(), vocab, d, nullptr};
  args.lse = lse.data();
  args.targetOffsets = offsets.data();
  args.targets = targets.data();
  args.logprobs = lp.data();
  args.lora = &lora;
  args.loraCount = 1;
  args.u = u.data();
  args.ldu = rank;
  reference().head(poolOf(1), args);
  const Doubles all = widened(joined(joined(x, a), b));
  checkNear("logprobs", lp, logprobs(all));
  kernels::HeadBackwardArgs back;
  back.x = x.data();
  back.ldx = d;
  back.rows = rows;
  back.weight = args.weight;
  back.weightTransposed = {panelsT.data(), d, vocab, nullptr};
  back.lse = lse.data();
  back.targetOffsets = offsets.data();
  back.targets = targets.data();
  back.c = c.data();
  back.dx = dx.data();
  back.lddx = d;
  back.lora = &lora;
  back.loraCount = 1;
  back.u = u.data();
  back.ldu = rank;
  back.du = du.data();
  back.lddu = rank;
  reference().headBackward(poolOf(1), back);
  checkNear("dx, dA, dB", joined(joined(dx, gradA), gradB),
            differences([&](const Doubles& p) { return dot(logprobs(p), c); }, all));
}

// Each loss as its definition says, in double. What a definition holds constant in the gradient
// (the clipped ratio of cispo, gspo's ratio but for its own token) is held at the point itself.
TEST(gradient_of_losses) {
  using kernels::LossKind;
  constexpr size_t kCount = 6;
  const double low = 0.8, high = 1.2, beta = 0.3;
  Floats lp(kCount), q(kCount, -1.45f), w(kCount), mask(kCount), c(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    lp[i] = -1.0f - 0.2f * static_cast<float>(i);
    w[i] = i % 2 ? 0.7f : -1.3f;
    mask[i] = i == 1 ? 0.0f : 1.0f;
  }
  const Doubles point = widened(lp);
  const auto clip = [&](double ratio) { return std::min(std::max(ratio, low), high); };
  const auto sequence_ratio = [&] {
    double sum = 0;
    for (size_t i = 0; i < kCount; ++i) {
      if (mask[i] != 0) sum += point[i] - static_cast<double>(q[i]);
    }
    return std::exp(sum / (kCount - 1));
  }();
  for (LossKind kind : {LossKind::crossEntropy, LossKind::importanceSampling, LossKind::ppo,
                        LossKind::cispo, LossKind::dro, LossKind::gspo, LossKind::givenGradient}) {
    const auto total = [&](const Doubles& at) {
      double sum = 0;
      for (size_t i = 0; i < kCount; ++i) {
        const double distance = at[i] - static_cast<double>(q[i]), ratio = std::exp(distance);
        switch (kind) {
          case LossKind::crossEntropy:
            sum -= at[i] * w[i];
            break;
          case LossKind::importanceSampling:
            sum -= ratio * w[i];
            break;
          case LossKind::ppo:
            sum -= std::min(ratio * w[i], clip(ratio) * w[i]);
            break;
          case LossKind::cispo:
            sum -= clip(std::exp(point[i] - static_cast<double>(q[i]))) * at[i] * w[i];
            break;
          case LossKind::dro:
            sum -= at[i] * w[i] - 0.5 * beta * distance * distance;
            break;
          case LossKind::gspo: {
            const double moved = sequence_ratio * std::exp(at[i] - point[i]);
            sum -= std::min(moved * w[i], clip(moved) * w[i]);
            break;
          }
          case LossKind::givenGradient:
            sum += at[i] * w[i];
            break;
        }
      }
      return sum;
    };
    kernels::LossArgs args;
    args.kind = kind;
    args.count = kCount;
    args.logprobs = lp.data();
    args.recorded = q.data();
    args.weights = w.data();
    args.mask = mask.data();
    args.beta = static_cast<float>(beta);
    args.c = c.data();
    CHECK(std::fabs(reference().loss(args) - total(point)) < 1e-5);
    checkNear("c", c, differences(total, point));
  }
}
