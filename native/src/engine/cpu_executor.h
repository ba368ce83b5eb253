// The executor on the CPU kernels.
#ifndef HOTBED_ENGINE_CPU_EXECUTOR_H_
#define HOTBED_ENGINE_CPU_EXECUTOR_H_

#include <memory>
#include <vector>

#include "engine/arena.h"
#include "engine/cpu_layer.h"
#include "engine/cpu_model.h"
#include "engine/executor.h"
#include "engine/numerics.h"
#include "kernels/kernel_table.h"
#include "util/thread_pool.h"

namespace hotbed {

struct CpuExecutorOptions {
  Numerics numerics = Numerics::kF32;
  kernels::Path path = kernels::Path::scalar;
  size_t threads = 1;
  // Above this many bytes of activations a pass keeps only its layers' inputs (N14).
  size_t activation_budget_bytes = 0;
  // A slice of a pass ends when about so much work is done.
  double slice_flops = 0;
  bool mutation = false;
};

class CpuExecutor : public Executor {
 public:
  CpuExecutor(const CpuExecutorOptions& options, const ModelConfig& config, ModelWeights weights);
  ~CpuExecutor() override;

  void InitializeAdapter(AdapterState* state) override;
  void RunSampling(const SamplingPlan& plan, SamplingOutput* output) override;
  void BeginTraining(const TrainingPlan& plan, TrainingOutput* output) override;
  double AdvanceTraining() override;
  OptimStepResult RunOptimizer(AdapterState* state, const AdamParams& params) override;
  size_t rows_kept(size_t rank) const override;
  size_t page_bytes() const override;
  size_t base_bytes() const override;
  size_t kv_allocated_bytes() const override;
  size_t scratch_bytes() const override;

 private:
  struct SamplingBuffers;
  struct SamplingHeadStep;
  struct TrainingPass;

  // The weights' transposes, made when first needed.
  const CpuAdapterCopy* CopyFor(const AdapterWeights& weights);
  void FillCopy(const AdapterWeights& weights, CpuAdapterCopy* copy);
  void AddLora(const AdapterWeights* weights, size_t row_begin, size_t row_end, float* gradient,
               RowContext* rows);
  // Appends the pair on the head, where these weights have one.
  void AddHeadLora(const AdapterWeights& weights, size_t row_begin, size_t row_end, float* gradient,
                   std::vector<kernels::HeadLora>* lora);

  // Page `id` of layer 0; layer l lies l * layer_page_floats_ further.
  float* Page(int32_t id);
  void CopyPage(const PageCopy& copy);

  void LayOutRows(TrainingPass* pass);
  void LayOutHead(TrainingPass* pass);
  void LayOutMemory(TrainingPass* pass);
  void LayOutPages(TrainingPass* pass);
  // Runs one slice of the pass and returns about how many FLOPs it took.
  double TrainingSlice(TrainingPass* pass);
  size_t HeadSliceStride() const;
  size_t HeadSliceFloats() const;
  bool KeepsLogits(const TrainingPass& pass) const;
  double AdvanceHead(TrainingPass* pass);
  void BeginLayersBackward(TrainingPass* pass);
  const std::vector<kernels::HeadLora>& LoraOfSlice(TrainingPass* pass, size_t begin, size_t count);
  void ScoreTargets(TrainingPass* pass, size_t begin, size_t count);
  void ComputeLosses(TrainingPass* pass, size_t begin, size_t end);
  void HeadGradient(TrainingPass* pass, size_t begin, size_t count);
  // Hidden states after the last layer [rows, d] -> everything that the plan asks for.
  void SamplingHead(const SamplingPlan& plan, const float* x, SamplingOutput* output);
  void ListHeadRows(const SamplingPlan& plan);
  void RunHead(const SamplingPlan& plan, const size_t* rows, size_t count, SamplingHeadStep* step);
  void HeadWithLogits(const SamplingPlan& plan, size_t begin, size_t count, SamplingHeadStep* step,
                      SamplingOutput* output);
  void TakeRow(const SamplingPlan& plan, size_t row, const float* logits, float lse,
               SamplingHeadStep* step, SamplingOutput* output);
  void HeadOfScores(const SamplingPlan& plan, SamplingHeadStep* step, SamplingOutput* output);
  // Adapters of the head over the given ascending rows of the plan.
  const std::vector<kernels::HeadLora>& SamplingHeadLora(const SamplingPlan& plan,
                                                         const size_t* rows, size_t count);
  // x[rows[i]] -> normed [count, d] by the final norm; `gathered` keeps the rows before it.
  void GatherFinal(const float* x, const size_t* rows, size_t count, float* gathered,
                   float* normed);

  CpuExecutorOptions options_;
  const kernels::KernelTable& kernels_;
  ThreadPool pool_;
  CpuModel model_;
  CpuContext context_;

  size_t layer_page_floats_;
  size_t pages_per_slab_;
  std::vector<AlignedBuffer<float>> slabs_;

  Arena step_arena_;
  Arena head_arena_;
  Arena pass_arena_;
  std::unique_ptr<SamplingBuffers> sampling_;
  std::unique_ptr<TrainingPass> pass_;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_CPU_EXECUTOR_H_
