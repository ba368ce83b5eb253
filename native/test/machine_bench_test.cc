#include "engine/machine_bench.h"

#include "fault_check.h"
#include "harness.h"
#include "kernels/machine_burst.h"

using namespace hotbed;

TEST(read_burst_reads_every_float_once) {
  AlignedBuffer<float> x(2048);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 3);
  float sum = 0;
  for (float value : x) sum += value;
  CHECK_EQ(kernels::readBurst(x.data(), x.size()), sum);  // small integers: exact in any order
}

TEST(machine_bench_measures_ceilings_and_layers_in_turn) {
  MachineBenchOptions options;
  options.read_mib = 4;
  MachineBench bench(options);
  const MachineSample machine = bench.Machine();
  CHECK(machine.fma_gflops > 0);
  CHECK(machine.read_gbs > 0);
  CHECK_EQ(machine.bf16_gflops.has_value(), kernels::hasBf16Dot());
  for (BenchPanels panels : {BenchPanels::kWide, BenchPanels::kNarrow, BenchPanels::kPairs}) {
    LinearBenchCase layer;
    layer.d_in = 40;
    layer.d_out = 70;
    layer.rows = {1, 5};
    layer.panels = panels;
    layer.rounds = 2;
    const auto samples = bench.Linear(layer);
    CHECK_EQ(samples.size(), size_t{4});
    for (size_t i = 0; i < samples.size(); ++i) {
      CHECK_EQ(samples[i].rows, layer.rows[i % 2]);
      CHECK(samples[i].gflops > 0);
      CHECK(samples[i].weight_gbs > 0);
    }
  }
}

TEST(machine_bench_refuses_what_it_cannot_measure) {
  MachineBenchOptions options;
  options.read_mib = 1;
  MachineBench bench(options);
  CHECK_FAULT(bench.Linear({}), FaultCode::kInvalidArgument, "linear");
  options.threads = 0;
  CHECK_FAULT(MachineBench{options}, FaultCode::kInvalidArgument, "threads");
}
