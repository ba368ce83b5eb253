// Continuous batching: sequences of any policies share steps; each step is one plan for the
// executor.
//
// 1. A call's prompt is prefilled once, in chunks, into pages that all its sequences refer to; the
// page in which the
//    prompt ends is private to each sequence (copied when it starts, taken over by the last).
// 2. A sequence is admitted only with all the pages it can ever need reserved, so nothing is
// preempted. A call that
//    has sequences left to start hands a finished one's pages to the next, so admitted calls always
//    end.
// 3. Calls wait in one queue per policy; admission takes the policies in turn and never passes a
// call that does not
//    fit yet, so a large call cannot starve.
// 4. Which rows share a step depends on arrival and load; no result does.
#ifndef HOTBED_ENGINE_SAMPLER_H_
#define HOTBED_ENGINE_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/kv_pages.h"
#include "engine/plan.h"

namespace hotbed {

// One accepted call. With `logits_done` set it asks for the logits after the prompt and has no
// seeds.
struct SampleCall {
  RequestId id = 0;
  std::shared_ptr<const AdapterWeights> weights;  // null = base
  SampleRequest request;
  Done<SampleResult> done;
  Done<std::vector<float>> logits_done;

  void Reject(const Fault& fault) const;
};

class Sampler {
 public:
  Sampler(const ModelConfig& config, Executor* executor, size_t page_count, int max_step_rows,
          EngineStats* stats);
  ~Sampler();

  // Rejects at once (out_of_memory) a call of which not even one sequence fits into all pages.
  void Submit(std::unique_ptr<SampleCall> call);
  // Rejects the call with cancelled if it is still here.
  void Cancel(RequestId id);
  void RejectAll(const Fault& fault);

  bool has_work() const { return !lanes_.empty(); }
  size_t active_sequences() const;
  size_t used_pages() const { return pages_.used(); }
  // Runs one step. Returns the rows it had.
  size_t Step();

 private:
  struct Sequence;
  struct Job;
  struct Lane;
  // What a row's result belongs to.
  struct DrawOwner {
    Job* job;
    Sequence* sequence;
  };

  Lane* LaneOf(const std::shared_ptr<const AdapterWeights>& weights);
  void Admit();
  bool AdmitOne(Lane* lane);
  bool StartSequence(Job* job);
  size_t PrivatePages(const Job& job) const;
  size_t PromptPages(const Job& job) const;
  void TakeTail(Job* job, Sequence* sequence);
  void BuildPlan();
  void PlanPrefill(Lane* lane, size_t budget);
  void PlanDecode(Lane* lane, size_t budget);
  void AddRow(int32_t token, size_t position);
  void Deliver();
  void Accept(Job* job, Sequence* sequence, const Draw& draw);
  void Fail(Job* job, const Fault& fault);
  void FinishSequence(Job* job, Sequence* sequence, StopReason reason);
  void FreeSequencePages(Sequence* sequence);
  void FreeJobPages(Job* job);
  void Reap();

  const ModelConfig config_;
  Executor* const executor_;
  const size_t max_step_rows_;
  EngineStats* const stats_;
  KvPages pages_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  size_t admission_turn_ = 0;
  size_t step_turn_ = 0;

  std::vector<PageCopy> pending_copies_;
  SamplingPlan plan_;
  SamplingOutput output_;
  std::vector<DrawOwner> draw_owners_;  // as plan_.draws
  struct ScoreOwner {
    Job* job;
    size_t index;  // of the prompt token scored
  };
  std::vector<ScoreOwner> score_owners_;  // as plan_.scores
  std::vector<Job*> logits_owners_;       // as plan_.logits_rows
  std::vector<size_t> prefill_demand_, decode_demand_, prefill_share_, decode_share_;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_SAMPLER_H_
