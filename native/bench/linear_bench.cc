// Linear layers against the FMA ceiling and the read bandwidth of this machine, in the same run.
//   linear_bench [threads] [path] [narrow]
// Each figure is the best of many rounds of about a millisecond, interleaved with the ceiling's,
// because shared machines drift by 20 % between runs; only ratios inside one run mean anything.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "kernels/kernel_table.h"
#include "util/aligned_buffer.h"

using namespace hotbed;
using Clock = std::chrono::steady_clock;

namespace {

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double peakGflops(const kernels::KernelTable& table, ThreadPool& pool) {
  const size_t repeats = 100000;
  double* flops = static_cast<double*>(pool.shared(64 * pool.threads() * sizeof(double)));
  const auto start = Clock::now();
  pool.forEach(pool.threads(), [&](size_t i, size_t) { flops[8 * i] = table.fmaBurst(repeats); });
  const double seconds = secondsSince(start);
  double total = 0;
  for (size_t i = 0; i < pool.threads(); ++i) total += flops[8 * i];
  return total / seconds * 1e-9;
}

double readGBytes(ThreadPool& pool, const AlignedBuffer<float>& memory) {
  const size_t parts = 8 * pool.threads();
  const size_t n = memory.size() / parts;
  const auto start = Clock::now();
  volatile float sink = 0;
  pool.forEach(parts, [&](size_t part, size_t) {
    const float* x = memory.data() + part * n;
    float sum[16] = {};
    for (size_t i = 0; i + 16 <= n; i += 16) {
      for (size_t l = 0; l < 16; ++l) sum[l] += x[i + l];
    }
    sink = sum[3];
  });
  return static_cast<double>(parts * n * sizeof(float)) / secondsSince(start) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t threads = argc > 1 ? static_cast<size_t>(std::atoi(argv[1]))
                                  : std::max(1u, std::thread::hardware_concurrency());
  const kernels::KernelTable& table =
      kernels::kernels(kernels::parsePath(argc > 2 ? argv[2] : nullptr));
  ThreadPool pool(threads);
  AlignedBuffer<float> memory(size_t{256} << 20);  // 1 GiB: far beyond any cache
  std::fill(memory.begin(), memory.end(), 1.0f);   // untouched pages would all be one page of zeros
  double bandwidth = 0;
  for (int i = 0; i < 3; ++i) bandwidth = std::max(bandwidth, readGBytes(pool, memory));
  std::printf("path %s, %zu threads, read %.1f GB/s\n", table.name, threads, bandwidth);
  std::printf("%6s %6s %6s %10s %10s %8s %10s\n", "rows", "dIn", "dOut", "GFLOP/s", "peak",
              "% peak", "weights GB/s");
  const struct {
    size_t dIn, dOut;
  } shapes[] = {{128, 384},  {384, 128},  {576, 576},  {576, 960},
                {576, 3072}, {1536, 576}, {2048, 2048}};
  for (const auto& shape : shapes) {
    // Enough copies of the weights that they come from memory, as in a pass over a real model.
    const size_t floats = kernels::packedLinearFloats(shape.dOut, shape.dIn);
    const size_t copies = std::max<size_t>(1, (size_t{64} << 20) / floats);
    AlignedBuffer<float> panels(floats * copies);
    for (size_t i = 0; i < panels.size(); ++i) panels[i] = static_cast<float>(i % 17) * 0.25f;
    const bool narrow = argc > 3;
    AlignedBuffer<uint32_t> words(narrow ? kernels::narrowPanelWords(panels.size()) : 0);
    if (narrow) table.narrowPanels(pool, panels.data(), panels.size(), words.data());
    for (size_t rows : {1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 1024}) {
      AlignedBuffer<float> x(rows * shape.dIn), y(rows * shape.dOut);
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) * 0.1f;
      const double work = 2.0 * static_cast<double>(rows * shape.dIn * shape.dOut);
      const size_t calls = std::max<size_t>(1, static_cast<size_t>(3e8 / work));
      double best = 0, peak = 0;
      size_t copy = 0;
      for (int round = 0; round < 25; ++round) {
        peak = std::max(peak, peakGflops(table, pool));
        const auto start = Clock::now();
        for (size_t call = 0; call < calls; ++call) {
          kernels::LinearArgs args;
          args.x = x.data();
          args.ldx = shape.dIn;
          args.rows = rows;
          args.weight.panels = panels.data() + copy * floats;
          if (narrow) args.weight.narrowPanels = words.data() + copy * words.size() / copies;
          args.weight.dOut = shape.dOut;
          args.weight.dIn = shape.dIn;
          args.y = y.data();
          args.ldy = shape.dOut;
          table.linear(pool, args);
          copy = (copy + 1) % copies;
        }
        best = std::max(best, work * static_cast<double>(calls) / secondsSince(start) * 1e-9);
      }
      std::printf("%6zu %6zu %6zu %10.1f %10.1f %7.0f%% %10.1f\n", rows, shape.dIn, shape.dOut,
                  best, peak, 100 * best / peak,
                  best / static_cast<double>(2 * rows) * (narrow ? 2 : 4));
    }
  }
  return 0;
}
