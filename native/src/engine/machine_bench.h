// What this machine can do at most, and how near the linear kernels come to it, measured in turn so
// that both see the same moment of a shared machine. For the benchmarks only.
#ifndef HOTBED_ENGINE_MACHINE_BENCH_H_
#define HOTBED_ENGINE_MACHINE_BENCH_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "util/aligned_buffer.h"
#include "util/thread_pool.h"

namespace hotbed {

struct MachineBenchOptions {
  std::optional<std::string> kernels;  // as EngineOptions
  std::optional<int> threads;          // as EngineOptions
  // Memory that the read figure streams through and that a linear layer's copies fill: far more
  // than any cache.
  int read_mib = 512;
};

// One sample, all threads at work.
struct MachineSample {
  double fma_gflops = 0;              // fp32 multiply-adds on registers
  std::optional<double> bf16_gflops;  // VDPBF16PS on registers; absent where the CPU lacks it
  double read_gbs = 0;                // 10^9 bytes/s streamed from memory
};

// How the weights are stored: fp32, bf16 numbers for f32-1, or the pairs of bf16-1.
enum class BenchPanels { kWide, kNarrow, kPairs };

struct LinearBenchCase {
  size_t d_in = 0;
  size_t d_out = 0;
  std::vector<size_t> rows;
  BenchPanels panels = BenchPanels::kWide;
  size_t rounds = 0;
};

// One round of one row count: the layer, then the machine's ceilings beside it.
struct LinearSample {
  size_t rows = 0;
  double gflops = 0;
  double weight_gbs = 0;  // panels read per second
  MachineSample machine;
};

class MachineBench {
 public:
  // Throws EngineFault invalid_argument (an option, by name), unsupported_cpu, out_of_memory.
  explicit MachineBench(const MachineBenchOptions& options);

  MachineSample Machine();
  // Rounds over all row counts. The weights rotate through as many copies as fill read_mib, so they
  // come from memory, as those of a model's layers do.
  // Throws EngineFault invalid_argument, out_of_memory.
  std::vector<LinearSample> Linear(const LinearBenchCase& layer);

 private:
  const kernels::KernelTable& kernels_;
  ThreadPool pool_;
  AlignedBuffer<float> memory_;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_MACHINE_BENCH_H_
