#include "kernel_support.h"

using namespace hotbed;
using namespace hotbed::test;
using kernels::LossArgs;
using kernels::LossKind;

TEST(losses_equal_the_reference) {
  for (LossKind kind : {LossKind::crossEntropy, LossKind::importanceSampling, LossKind::ppo}) {
    for (size_t count : {0, 1, 15, 16, 100}) {
      checkAgainstReference("loss", [&](const KernelTable& table, ThreadPool&) {
        Random random(count);
        Floats lp(count), q(count), w(count), c(count, 9.0f);
        for (size_t i = 0; i < count; ++i) {
          lp[i] = -std::fabs(random.normal()) * 3;
          q[i] = i % 7 == 0 ? 1000.0f : lp[i] + random.normal() * 0.3f;
          w[i] = i % 4 == 0 ? 0.0f : random.normal();
          if (i % 8 == 0) q[i] = -1e9f;  // padding: rho overflows, weight 0
        }
        LossArgs args;
        args.kind = kind;
        args.count = count;
        args.logprobs = lp.data();
        args.recorded = q.data();
        args.weights = w.data();
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
  for (Path path : {Path::reference, Path::scalar, Path::avx2, Path::avx512}) {
    if (!kernels::supports(path)) continue;
    const KernelTable& table = kernels::kernels(path);
    const auto run = [&](LossKind kind, float lp, float q, float w, float& c) {
      LossArgs args;
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
    // Weight 0: exactly +0 even where the ratio overflows.
    CHECK_EQ(run(LossKind::importanceSampling, 0.0f, -1e9f, 0.0f, c), 0.0);
    CHECK_EQ(bitsOf(c), 0u);
  }
}
