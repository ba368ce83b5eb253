// What the CPU executor reuses from plan to plan.
#ifndef HOTBED_ENGINE_CPU_BUFFERS_H_
#define HOTBED_ENGINE_CPU_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/cpu_executor.h"
#include "kernels/kernel_table.h"

namespace hotbed {

// Target rows per slice of the head: enough for the kernels to run at full speed, few enough that
// sampling does not wait long.
constexpr size_t kHeadSlice = 112;

struct CpuExecutor::SamplingBuffers {
  RowContext rows;
  std::vector<float*> pages;  // of the current layer, as plan.page_ids
  std::vector<size_t> full_rows;
  std::vector<kernels::HeadLora> head_lora;  // over the rows of a chunk of the head
  std::vector<size_t> score_rows;
  std::vector<size_t> offsets;
  std::vector<int32_t> targets;
  std::vector<kernels::SampleArgs> requests;
  std::vector<kernels::SampleResult> results;
  std::vector<kernels::TopTokensArgs> tops;
  std::vector<int32_t> top_tokens;  // as the entries of the plan's tops
  std::vector<float> top_logprobs;
  std::vector<size_t> other_scores;  // those in rows whose logits nobody else wants
  std::vector<float> other_logprobs;
};

// The pass in flight.
struct CpuExecutor::TrainingPass {
  enum class Phase { kForward, kHead, kHeadBackward, kBackward, kOver };

  const TrainingPlan* plan = nullptr;
  TrainingOutput* output = nullptr;
  Phase phase = Phase::kOver;
  size_t next = 0;  // layer, or first target row of the next slice of the head
  double flops_done = 0;
  double flops_total = 0;

  // Segments with a backward pass come first, so its rows, datums and target rows are prefixes.
  size_t backward_datums = 0;
  size_t backward_targets = 0;  // target rows
  bool keeps_activations = false;
  bool keeps_logits = false;  // from a slice's log-probs to its gradient

  RowContext rows;           // all rows
  RowContext backward_rows;  // the prefix that has a backward pass
  // The adapters' second forms, which others may drop meanwhile.
  std::vector<std::shared_ptr<void>> held;
  std::vector<LayerActivations> layers;
  std::vector<float*> pages;  // page tables of all runs, one after another
  BackwardGroups groups;
  std::vector<float> c;                       // [targets]
  std::vector<kernels::HeadLora> head_lora;   // over all target rows
  std::vector<kernels::HeadLora> head_slice;  // over those of a slice
  size_t head_rank = 0;                       // the largest of them

  // In pass_arena_.
  LayerScratch scratch;
  BackwardScratch back_scratch;
  float* final_x = nullptr;      // [rows, d]
  float* gathered = nullptr;     // [target rows, d], before the final norm
  float* normed = nullptr;       // [target rows, d] after it
  float* lse = nullptr;          // [target rows]
  float* head_u = nullptr;       // [target rows, head_rank]
  float* head_du = nullptr;      // [target rows of a slice, head_rank]
  float* head_logits = nullptr;  // [target rows of a slice, HeadSliceStride()], or null
  float* page_block = nullptr;   // the pages themselves
  float* dx = nullptr;           // [backward rows, d]
  float* d_final = nullptr;      // [backward target rows, d]
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_CPU_BUFFERS_H_
