#include "kernel_support.h"

using namespace hotbed;
using namespace hotbed::test;

TEST(adamw_equals_the_reference) {
  for (double decay : {0.0, 0.1}) {
    for (float clip : {1.0f, 0.37f}) {
      checkAgainstReference("adamW", [&](const KernelTable& table, ThreadPool& pool) {
        Random random(3);
        const size_t sizes[] = {1, 15, 16, 17, 1000, 40000};
        std::vector<Floats> theta, m, v, g;
        for (size_t n : sizes) {
          theta.push_back(randomMatrix(random, 1, n, n));
          m.push_back(randomMatrix(random, 1, n, n, 0.1f));
          v.push_back(randomMatrix(random, 1, n, n, 0.1f));
          for (size_t i = 0; i < n; ++i) v.back()[i] *= v.back()[i];
          g.push_back(randomMatrix(random, 1, n, n));
        }
        sprinkle(random, g[5], 1000);
        Floats norms(12);
        std::vector<kernels::AdamWTensor> tensors;
        std::vector<kernels::GradientTensor> gradients;
        for (size_t t = 0; t < 6; ++t) {
          tensors.push_back({theta[t].data(), m[t].data(), v[t].data(), g[t].data(), sizes[t]});
          gradients.push_back({g[t].data(), sizes[t]});
        }
        double sums[6];
        table.sumSquares(pool, gradients.data(), 5, sums);
        for (size_t t = 0; t < 5; ++t) {
          norms[2 * t] = static_cast<float>(sums[t]);
          norms[2 * t + 1] = static_cast<float>(sums[t] - static_cast<double>(norms[2 * t]));
        }
        kernels::AdamWHyper hyper;
        hyper.learningRate = 1e-3;
        hyper.eps = 1e-8;
        hyper.weightDecay = decay;
        Floats all = norms;
        for (uint64_t step : {1, 2, 1000}) {
          const kernels::AdamWScalars s = table.adamWScalars(hyper, step);
          table.adamW(pool, tensors.data(), tensors.size(), s, clip);
          for (size_t t = 0; t < 6; ++t) {
            all = joined(joined(all, theta[t]), joined(joined(m[t], v[t]), g[t]));
            for (size_t i = 0; i < g[t].size(); ++i) g[t][i] = 0.5f - 0.001f * (i % 1000);
          }
        }
        return all;
      });
    }
  }
}

TEST(adamw_follows_the_textbook_in_double) {
  kernels::AdamWHyper hyper;
  hyper.learningRate = 0.01;
  hyper.beta1 = 0.9;
  hyper.beta2 = 0.95;
  hyper.eps = 1e-8;
  hyper.weightDecay = 0.1;
  for (Path path : fastPaths()) {
    const KernelTable& table = kernels::kernels(path);
    float theta = 1.5f, m = 0, v = 0, g = 0;
    double thetaD = 1.5, mD = 0, vD = 0;
    const kernels::AdamWTensor tensor{&theta, &m, &v, &g, 1};
    for (uint64_t step = 1; step <= 50; ++step) {
      const double gradient = std::sin(0.3 * static_cast<double>(step));
      g = static_cast<float>(gradient);
      table.adamW(poolOf(1), &tensor, 1, table.adamWScalars(hyper, step), 1.0f);
      thetaD *= 1 - hyper.learningRate * hyper.weightDecay;
      mD = 0.9 * mD + 0.1 * gradient;
      vD = 0.95 * vD + 0.05 * gradient * gradient;
      const double mHat = mD / (1 - std::pow(0.9, step));
      const double vHat = vD / (1 - std::pow(0.95, step));
      thetaD -= hyper.learningRate * mHat / (std::sqrt(vHat) + hyper.eps);
      // About six roundings of 6e-8 a step on values near 1.
      CHECK(std::fabs(theta - thetaD) < 50 * 6 * 6e-8);
      CHECK_EQ(bitsOf(g), 0u);
    }
  }
}

TEST(clip_factor_only_shrinks) {
  for (Path path : {Path::reference, Path::scalar, Path::avx2, Path::avx512, Path::avx512bf16}) {
    if (!kernels::supports(path)) continue;
    const KernelTable& table = kernels::kernels(path);
    CHECK_EQ(table.clipFactor(2.0, 0.0), 1.0f);
    CHECK_EQ(table.clipFactor(0.5, 1.0), 1.0f);
    CHECK_EQ(table.clipFactor(2.0, 1.0), static_cast<float>(1.0 / 2.000001));
  }
}
