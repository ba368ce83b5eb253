#include "kernel_support.h"

using namespace hotbed;
using namespace hotbed::test;
using kernels::LossArgs;
using kernels::LossKind;

namespace {

constexpr LossKind kAllLosses[] = {LossKind::crossEntropy, LossKind::importanceSampling,
                                   LossKind::ppo,          LossKind::cispo,
                                   LossKind::dro,          LossKind::gspo,
                                   LossKind::givenGradient};

}  // namespace

TEST(losses_equal_the_reference) {
  for (LossKind kind : kAllLosses) {
    for (size_t count : {0, 1, 15, 16, 100}) {
      checkAgainstReference("loss", [&](const KernelTable& table, ThreadPool&) {
        Random random(count);
        Floats lp(count), q(count), w(count), mask(count), c(count, 9.0f);
        for (size_t i = 0; i < count; ++i) {
          lp[i] = -std::fabs(random.normal()) * 3;
          q[i] = i % 7 == 0 ? 1000.0f : lp[i] + random.normal() * 0.3f;
          w[i] = i % 4 == 0 ? 0.0f : random.normal();
          if (i % 8 == 0) q[i] = -1e9f;  // padding: rho overflows, weight 0
          mask[i] = w[i] != 0.0f && i % 7 != 0 && i % 5 != 2 ? 1.0f : 0.0f;
        }
        LossArgs args;
        args.kind = kind;
        args.count = count;
        args.logprobs = lp.data();
        args.recorded = q.data();
        args.weights = w.data();
        args.mask = mask.data();
        args.beta = 0.3f;
        args.c = c.data();
        args.sum = 0.125;
        const double sum = table.loss(args);
        args.c = nullptr;
        CHECK_EQ(table.loss(args), sum);
        uint64_t bits;
        std::memcpy(&bits, &sum, sizeof bits);
        Floats out(2);
        out[0] = fromBits(static_cast<uint32_t>(bits) & 0x7FFFFFFFu);
        out[1] = fromBits(static_cast<uint32_t>(bits >> 32));
        return joined(c, out);
      });
    }
  }
}

TEST(losses_follow_their_definitions) {
  for (Path path : {Path::reference, Path::scalar, Path::avx2, Path::avx512, Path::avx512bf16}) {
    if (!kernels::supports(path)) continue;
    const KernelTable& table = kernels::kernels(path);
    float mask = 1;
    const auto run = [&](LossKind kind, float lp, float q, float w, float& c) {
      LossArgs args;
      args.mask = &mask;
      args.beta = 0.5f;
      args.kind = kind;
      args.count = 1;
      args.logprobs = &lp;
      args.recorded = &q;
      args.weights = &w;
      args.c = &c;
      return table.loss(args);
    };
    float c;
    CHECK_EQ(run(LossKind::crossEntropy, -2.0f, 0, 0.5f, c), 1.0);
    CHECK_EQ(c, -0.5f);
    CHECK_EQ(run(LossKind::importanceSampling, -2.0f, -2.0f, 3.0f, c), -3.0);
    CHECK_EQ(c, -3.0f);
    // ppo: good advantage, ratio e^1 above 1.2: clipped, no gradient.
    CHECK_EQ(run(LossKind::ppo, -1.0f, -2.0f, 2.0f, c), -static_cast<double>(1.2f * 2.0f));
    CHECK_EQ(bitsOf(c), 0u);
    // Bad advantage, ratio above: not clipped.
    const double worse = run(LossKind::ppo, -1.0f, -2.0f, -2.0f, c);
    CHECK(std::fabs(worse - 2 * std::exp(1.0)) < 1e-6);
    CHECK(c > 5.4f);
    // Bad advantage, ratio below 0.8: clipped.
    CHECK_EQ(run(LossKind::ppo, -3.0f, -2.0f, -2.0f, c), static_cast<double>(0.8f * 2.0f));
    CHECK_EQ(bitsOf(c), 0u);
    // cispo: the gradient is that of the clipped ratio, and goes on beyond the threshold.
    CHECK_EQ(run(LossKind::cispo, -1.0f, -2.0f, 2.0f, c), static_cast<double>(2.4f));
    CHECK_EQ(c, -2.4f);
    CHECK_EQ(run(LossKind::cispo, -3.0f, -2.0f, 2.0f, c), static_cast<double>(-1.6f * -3.0f));
    CHECK_EQ(c, -1.6f);
    // dro with beta 0.5: -(lp*A - 0.25 (lp - q)^2).
    CHECK_EQ(run(LossKind::dro, -1.0f, -3.0f, 2.0f, c), 3.0);
    CHECK_EQ(c, -1.0f);
    // gspo over one target is ppo, without any in the mask nothing.
    CHECK_EQ(run(LossKind::gspo, -1.0f, -2.0f, 2.0f, c), -static_cast<double>(1.2f * 2.0f));
    mask = 0;
    CHECK_EQ(run(LossKind::gspo, -2.0f, -2.0f, 2.0f, c), 0.0);
    CHECK_EQ(bitsOf(c), 0u);
    CHECK_EQ(run(LossKind::givenGradient, -2.0f, 0, 0.5f, c), -1.0);
    CHECK_EQ(c, 0.5f);
    for (LossKind kind : kAllLosses) {
      CHECK_EQ(run(kind, -1.0f, -3.0f, 0.0f, c), 0.0);
      CHECK_EQ(bitsOf(c), 0u);
    }
    // Weight 0: exactly +0 even where the ratio overflows.
    CHECK_EQ(run(LossKind::importanceSampling, 0.0f, -1e9f, 0.0f, c), 0.0);
    CHECK_EQ(bitsOf(c), 0u);
  }
}

TEST(gspo_has_one_ratio_for_its_branch) {
  const size_t count = 37;
  Random random(5);
  Floats lp(count), q(count), advantages(count, 1.0f), mask(count), c(count);
  double mean = 0, counted = 0;
  for (size_t i = 0; i < count; ++i) {
    lp[i] = -2 + random.normal();
    q[i] = lp[i] + 0.1f * random.normal();
    mask[i] = i % 3 == 0 ? 0.0f : 2.0f;  // any number but 0 counts once
    if (mask[i] == 0) continue;
    mean += static_cast<double>(lp[i]) - static_cast<double>(q[i]);
    counted += 1;
  }
  for (Path path : {Path::reference, Path::scalar, Path::avx2, Path::avx512, Path::avx512bf16}) {
    if (!kernels::supports(path)) continue;
    LossArgs args;
    args.kind = LossKind::gspo;
    args.count = count;
    args.logprobs = lp.data();
    args.recorded = q.data();
    args.weights = advantages.data();
    args.mask = mask.data();
    args.c = c.data();
    const double ratio = std::exp(mean / counted);
    CHECK(std::fabs(kernels::kernels(path).loss(args) + ratio * count) < 1e-4);
    for (size_t i = 0; i < count; ++i) {
      CHECK_EQ(bitsOf(c[i]), bitsOf(c[0]));
      CHECK(std::fabs(c[i] + ratio) < 1e-6);
    }
  }
}

// What sums over datums rest on: a loss of tokens may be cut anywhere, one of sequences between
// them.
TEST(losses_of_tokens_may_be_cut_anywhere) {
  const size_t count = 50;
  Random random(6);
  const Floats lp = randomMatrix(random, 1, count, count),
               q = randomMatrix(random, 1, count, count);
  const Floats w = randomMatrix(random, 1, count, count);
  const KernelTable& table = kernels::kernels(kernels::bestPath());
  for (LossKind kind : kAllLosses) {
    if (!kernels::isTokenWise(kind)) continue;
    const auto run = [&](const std::vector<size_t>& cuts) {
      Floats c(count);
      double sum = 0;
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        LossArgs args;
        args.kind = kind;
        args.count = cuts[i + 1] - cuts[i];
        args.logprobs = lp.data() + cuts[i];
        args.recorded = q.data() + cuts[i];
        args.weights = w.data() + cuts[i];
        args.beta = 0.2f;
        args.c = c.data() + cuts[i];
        args.sum = sum;
        sum = table.loss(args);
      }
      return std::make_pair(sum, c);
    };
    const auto whole = run({0, count});
    for (size_t cut = 1; cut < count; cut += 3) {
      const auto parts = run({0, cut, count});
      CHECK_EQ(parts.first, whole.first);
      checkSame("c", parts.second, whole.second);
    }
  }
}
