#include "kernel_support.h"

using namespace hotbed;
using namespace hotbed::test;

namespace {

std::vector<double> frequencies(const KernelTable& table, size_t headDim, double theta,
                                bool llama3) {
  std::vector<double> result(headDim / 2);
  kernels::RopeFrequencyArgs args;
  args.theta = theta;
  args.headDim = headDim;
  args.llama3 = llama3;
  args.factor = 8;
  args.lowFreqFactor = 1;
  args.highFreqFactor = 4;
  args.originalMaxPositions = 8192;
  args.invFreq = result.data();
  table.ropeFrequencies(args);
  return result;
}

}  // namespace

TEST(rope_frequencies_agree_with_libm) {
  for (Path path : {Path::reference, Path::scalar, Path::avx2, Path::avx512, Path::avx512bf16}) {
    if (!kernels::supports(path)) continue;
    for (double theta : {10000.0, 500000.0, 100.0, 1e6}) {
      for (size_t headDim : {8, 24, 64, 128}) {
        const std::vector<double> own = frequencies(kernels::kernels(path), headDim, theta, false);
        for (size_t i = 0; i < own.size(); ++i) {
          const double exact = std::pow(theta, -2.0 * i / headDim);
          CHECK(std::fabs(own[i] - exact) <= 4e-15 * exact);  // a few roundings of 1.1e-16 each
        }
      }
    }
  }
}

TEST(rope_frequencies_follow_llama3_scaling) {
  for (Path path : {Path::reference, Path::scalar, Path::avx2, Path::avx512, Path::avx512bf16}) {
    if (!kernels::supports(path)) continue;
    const std::vector<double> own = frequencies(kernels::kernels(path), 64, 500000.0, true);
    for (size_t i = 0; i < own.size(); ++i) {
      double exact = std::pow(500000.0, -2.0 * i / 64);
      const double wavelength = 2 * M_PI / exact;
      if (wavelength > 8192.0) {
        exact /= 8;
      } else if (wavelength > 2048.0) {
        const double smooth = (8192.0 / wavelength - 1) / 3;
        exact = (1 - smooth) * exact / 8 + smooth * exact;
      }
      CHECK(std::fabs(own[i] - exact) <= 1e-13 * exact);
    }
  }
}

TEST(rope_tables_are_one_on_every_path_and_near_libm) {
  std::vector<double> inverse = frequencies(kernels::kernels(Path::reference), 64, 10000.0, false);
  for (Path path : fastPaths()) {
    const std::vector<double> other = frequencies(kernels::kernels(path), 64, 10000.0, false);
    CHECK(std::memcmp(inverse.data(), other.data(), inverse.size() * sizeof(double)) == 0);
  }
  const size_t begins[] = {0, 130000};
  for (size_t begin : begins) {
    const size_t count = 700;
    const auto run = [&](const KernelTable& table, ThreadPool& pool) {
      Floats cosines(count * 32), sines(count * 32);
      kernels::RopeTableArgs args;
      args.invFreq = inverse.data();
      args.half = 32;
      args.positionBegin = begin;
      args.positionEnd = begin + count;
      args.cos = cosines.data();
      args.sin = sines.data();
      table.ropeTable(pool, args);
      return joined(cosines, sines);
    };
    checkAgainstReference("rope table", run);
    const Floats own = run(kernels::kernels(Path::reference), poolOf(1));
    for (size_t p = 0; p < count; ++p) {
      for (size_t i = 0; i < 32; ++i) {
        // Own sin and cos are good to about 1e-15, then round to float: half an ulp of 1 is 6e-8.
        const double angle = static_cast<double>(begin + p) * inverse[i];
        CHECK(std::fabs(own[p * 32 + i] - std::cos(angle)) < 6.1e-8);
        CHECK(std::fabs(own[(count + p) * 32 + i] - std::sin(angle)) < 6.1e-8);
      }
    }
  }
}

TEST(rope_equals_the_reference_and_its_backward_undoes_it) {
  for (size_t headDim : {8, 24, 32, 64, 80, 128}) {
    const size_t half = headDim / 2, heads = 3, rows = 50, positions = 400;
    std::vector<double> inverse =
        frequencies(kernels::kernels(Path::reference), headDim, 10000.0, false);
    Floats cosines(positions * half), sines(positions * half);
    kernels::RopeTableArgs table;
    table.invFreq = inverse.data();
    table.half = half;
    table.positionEnd = positions;
    table.cos = cosines.data();
    table.sin = sines.data();
    kernels::kernels(Path::reference).ropeTable(poolOf(1), table);
    Random random(headDim);
    std::vector<int32_t> at(rows);
    for (int32_t& position : at) position = static_cast<int32_t>(random.between(0, positions - 1));
    const size_t ld = heads * headDim + 5;
    const Floats x = randomMatrix(random, rows, heads * headDim, ld);
    const auto run = [&](const KernelTable& kernel, ThreadPool& pool, bool back) {
      Floats y = x;
      kernels::RopeArgs args;
      args.x = y.data();
      args.ldx = ld;
      args.rows = rows;
      args.heads = heads;
      args.headDim = headDim;
      args.positions = at.data();
      args.cos = cosines.data();
      args.sin = sines.data();
      kernel.rope(pool, args);
      const Floats forward = y;
      args.backward = true;
      kernel.rope(pool, args);
      return back ? y : joined(forward, y);
    };
    checkAgainstReference(
        "rope " + std::to_string(headDim),
        [&](const KernelTable& kernel, ThreadPool& pool) { return run(kernel, pool, false); });
    const Floats undone = run(kernels::kernels(Path::reference), poolOf(1), true);
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < heads * headDim; ++c) {
        CHECK(std::fabs(undone[r * ld + c] - x[r * ld + c]) < 2e-6);
      }
    }
  }
}
