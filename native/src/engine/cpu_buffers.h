// What the CPU executor reuses from plan to plan.
#ifndef HOTBED_ENGINE_CPU_BUFFERS_H_
#define HOTBED_ENGINE_CPU_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/cpu_executor.h"
#include "kernels/kernel_table.h"

namespace hotbed {

struct CpuExecutor::SamplingBuffers {
  RowContext rows;
  std::vector<float*> pages;  // of the current layer, as plan.page_ids
  std::vector<size_t> full_rows;
  std::vector<size_t> score_rows;
  std::vector<size_t> offsets;
  std::vector<int32_t> targets;
  std::vector<kernels::SampleArgs> requests;
  std::vector<kernels::SampleResult> results;
};

struct CpuExecutor::TrainingBuffers {
  RowContext rows;           // all rows
  RowContext backward_rows;  // the prefix that has a backward pass
  std::vector<LayerActivations> layers;
  std::vector<float*> pages;  // page tables of all runs, one after another
  BackwardGroups groups;
  std::vector<size_t> offsets;  // 0, 1, ..., targets
  std::vector<float> c;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_CPU_BUFFERS_H_
