#include "engine/machine_bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "engine/cpu_count.h"
#include "engine/fault.h"
#include "kernels/machine_burst.h"

namespace hotbed {

namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A few milliseconds each: long against waking a thread, short against a neighbour's time slice.
constexpr size_t kFmaRepeats = 400000;
constexpr size_t kBf16Repeats = 600000;
constexpr size_t kReadFloats = size_t{1} << 18;  // one task of the pool
constexpr double kLinearSeconds = 0.008;

size_t ThreadsOf(const MachineBenchOptions& options) {
  const int threads = options.threads.value_or(PhysicalCores());
  if (threads < 1) throw EngineFault(FaultCode::kInvalidArgument, "threads: expected at least 1");
  return static_cast<size_t>(threads);
}

const kernels::KernelTable& TableOf(const MachineBenchOptions& options) {
  return kernels::kernels(kernels::parsePath(options.kernels ? options.kernels->c_str() : nullptr));
}

// FLOPs of `burst` on every thread at once, per second, in units of 10^9.
template <typename Burst>
double BurstGflops(ThreadPool& pool, Burst burst) {
  std::vector<double> flops(8 * pool.threads());
  const auto start = Clock::now();
  pool.forEach(pool.threads(), [&](size_t i, size_t) { flops[8 * i] = burst(); });
  const double seconds = SecondsSince(start);
  return std::accumulate(flops.begin(), flops.end(), 0.0) / seconds * 1e-9;
}

}  // namespace

MachineBench::MachineBench(const MachineBenchOptions& options)
    : kernels_(TableOf(options)),
      pool_(ThreadsOf(options)),
      memory_(std::max<size_t>(1, options.read_mib) << 18) {
  // Touched by the threads that will read it; bf16 numbers, so that any part can serve as weights.
  pool_.forEach(memory_.size() / kReadFloats, [&](size_t task, size_t) {
    float* x = memory_.data() + task * kReadFloats;
    for (size_t i = 0; i < kReadFloats; ++i) x[i] = static_cast<float>(i % 17) * 0.25f - 2.0f;
  });
}

MachineSample MachineBench::Machine() {
  MachineSample sample;
  sample.fma_gflops = BurstGflops(pool_, [&] { return kernels_.fmaBurst(kFmaRepeats); });
  if (kernels::hasBf16Dot()) {
    sample.bf16_gflops = BurstGflops(pool_, [] { return kernels::bf16DotBurst(kBf16Repeats); });
  }
  std::vector<float> sums(16 * pool_.threads());
  const size_t tasks = memory_.size() / kReadFloats;
  const auto start = Clock::now();
  pool_.forEach(tasks, [&](size_t task, size_t worker) {
    sums[16 * worker] += kernels::readBurst(memory_.data() + task * kReadFloats, kReadFloats);
  });
  const double seconds = SecondsSince(start);
  volatile float sink = std::accumulate(sums.begin(), sums.end(), 0.0f);
  static_cast<void>(sink);
  sample.read_gbs = static_cast<double>(tasks * kReadFloats * sizeof(float)) / seconds * 1e-9;
  return sample;
}

std::vector<LinearSample> MachineBench::Linear(const LinearBenchCase& layer) {
  if (layer.d_in == 0 || layer.d_out == 0 || layer.rows.empty()) {
    throw EngineFault(FaultCode::kInvalidArgument, "linear: dIn, dOut and rows must not be empty");
  }
  const size_t floats = kernels::packedLinearFloats(layer.d_out, layer.d_in);
  const bool pairs = layer.panels == BenchPanels::kPairs;
  const bool wide = layer.panels == BenchPanels::kWide;
  const size_t words =
      pairs ? kernels::pairPanelWords(layer.d_out, layer.d_in) : kernels::narrowPanelWords(floats);
  const size_t bytes = wide ? floats * 4 : words * 4;
  const size_t copies = std::max<size_t>(1, memory_.bytes() / bytes);
  AlignedBuffer<uint32_t> narrow(wide ? 0 : copies * words);
  AlignedBuffer<float> own(wide && copies * floats > memory_.size() ? copies * floats : 0);
  const float* panels = own.size() != 0 ? own.data() : memory_.data();
  if (!wide) {
    AlignedBuffer<float> panel(floats);
    for (size_t i = 0; i < floats; ++i) panel[i] = static_cast<float>(i % 17) * 0.25f - 2.0f;
    if (pairs) {
      kernels_.pairPanels(pool_, panel.data(), layer.d_out, layer.d_in, narrow.data());
    } else {
      kernels_.narrowPanels(pool_, panel.data(), floats, narrow.data());
    }
    for (size_t copy = 1; copy < copies; ++copy) {
      std::memcpy(narrow.data() + copy * words, narrow.data(), bytes);
    }
  }
  const size_t most = *std::max_element(layer.rows.begin(), layer.rows.end());
  AlignedBuffer<float> x(most * layer.d_in), y(most * layer.d_out);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) * 0.1f;

  std::vector<LinearSample> samples;
  size_t copy = 0;
  for (size_t round = 0; round < layer.rounds; ++round) {
    for (size_t rows : layer.rows) {
      LinearSample sample;
      sample.rows = rows;
      sample.machine = Machine();
      size_t calls = 0;
      double seconds = 0;
      const auto start = Clock::now();
      do {
        kernels::LinearArgs args;
        args.x = x.data();
        args.ldx = layer.d_in;
        args.rows = rows;
        if (wide) {
          args.weight.panels = panels + copy * floats;
        } else {
          (pairs ? args.weight.pairPanels : args.weight.narrowPanels) =
              narrow.data() + copy * words;
        }
        args.weight.dOut = layer.d_out;
        args.weight.dIn = layer.d_in;
        args.y = y.data();
        args.ldy = layer.d_out;
        kernels_.linear(pool_, args);
        copy = (copy + 1) % copies;
        ++calls;
        seconds = SecondsSince(start);
      } while (seconds < kLinearSeconds);
      const double work = static_cast<double>(calls) / seconds * 1e-9;
      sample.gflops = 2.0 * static_cast<double>(rows * layer.d_in * layer.d_out) * work;
      sample.weight_gbs = static_cast<double>(bytes) * work;
      samples.push_back(sample);
    }
  }
  return samples;
}

}  // namespace hotbed
