// Continuous batching: sequences of any policies share steps; each step is one plan for the
// executor.
//
// 1. A call's prompt is prefilled once, in chunks. Its other sequences draw their first token from
// the same row and go on in pages of their own: whole blocks of the prompt are shared, the page in
// which it ends is copied.
// 2. Whole blocks of prompts and of drawn text stay in the prefix cache when their sequences end. A
// block is known once the step that completed it is over: two calls that compute one prompt at the
// same time both compute it, and one that is behind the other takes up its blocks where they meet.
// A row whose logits are wanted (to draw, or to score the prompt) is always computed.
// 3. Admission asks for the pages that a sequence needs soon: its text and one block more. When
// pages run out, cached ones go first, longest unused; then the sequence that was admitted last
// gives up its pages and later computes its text again. Sequences keep their places in the order of
// admission, only later ones ever give way, and who gave way returns before anybody new is
// admitted: so the oldest always goes on, and everybody becomes the oldest. A sequence that does
// not fit into all pages is refused at once.
// 4. Calls wait in one queue per policy and tenant; admission takes the tenant whose turn it is and
// of its queues the one that has waited for longest, and never passes a call that does not fit yet,
// so a large call cannot starve. Rows of a step are shared by tenants' weights, then equally by
// policies.
// 5. Which rows share a step, which pages were there already and who gave way depends on arrival
// and load; no result does.
#ifndef HOTBED_ENGINE_SAMPLER_H_
#define HOTBED_ENGINE_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/flops.h"
#include "engine/plan.h"
#include "engine/prefix_cache.h"
#include "engine/row_shares.h"
#include "engine/sampling_job.h"
#include "engine/tenant_shares.h"

namespace hotbed {

class Sampler {
 public:
  Sampler(const ModelConfig& config, Executor* executor, size_t page_count, int max_step_rows,
          double max_wait_flops, EngineStats* stats);
  ~Sampler();

  // Rejects at once (out_of_memory) a call of which not even one sequence fits into all pages.
  void Submit(std::unique_ptr<SampleCall> call);
  // Rejects the call with cancelled if it is still here.
  void Cancel(RequestId id);
  // The sequence ends after `length` tokens (at least one) and drops what it has drawn beyond.
  void StopSequence(RequestId id, size_t sequence, size_t length);
  void RejectAll(const Fault& fault);

  bool has_work() const { return !lanes_.empty(); }
  size_t active_sequences() const;
  // Pages of running sequences; idle ones of the prefix cache not counted.
  size_t used_pages() const { return cache_.pages().in_use(); }
  // Runs one step; `clock` = FLOPs done so far by anybody. Returns its FLOPs, 0 when it had no
  // rows.
  double Step(double clock);

  // Who was served how much, by account.
  TenantShares& shares() { return shares_; }
  const TenantShares& shares() const { return shares_; }
  // The sum of the weights of the tenants with work here.
  double waiting_weight();
  // Counts on whenever a policy came or went.
  uint64_t lane_changes() const { return lane_changes_; }

  // The running sequence that was admitted last gives up its pages. False when none has any.
  bool PreemptLatest();
  // Gives up the cached pages of weights that nobody holds any more.
  void DropUnreachable() { cache_.DropUnreachable(); }
  const PrefixCache& cache() const { return cache_; }

 private:
  using Job = SamplingJob;
  using Sequence = SamplingSequence;
  using Lane = SamplingLane;

  // What a row's result belongs to.
  struct DrawOwner {
    Sequence* sequence;
    size_t top;  // where its highest tokens stand in the output, if asked for
  };
  struct ScoreOwner {
    Job* job;
    size_t index;  // of the prompt token scored
    size_t top;
  };
  // Rows that a sequence gets in this step.
  struct Grant {
    Sequence* sequence;
    size_t lane;
    size_t rows;
  };

  Lane* LaneOf(const std::shared_ptr<const AdapterWeights>& weights, AccountId account);
  // Each tenant with a lane, once.
  const std::vector<AccountId>& Accounts();

  // sampler_admission.cc
  bool Resume();
  Lane* NextToAdmit();
  void Admit();
  bool AdmitOne(Lane* lane);
  bool Activate(Sequence* sequence);
  bool Fork(Sequence* sequence);
  void AttachCached(Sequence* sequence);
  size_t FinalPages(const Sequence& sequence) const;
  size_t SoonPages(const Sequence& sequence) const;
  size_t PagesWanted(const Sequence& sequence) const;
  size_t PledgedPages() const;
  bool PreemptAfter(uint64_t ticket);
  void ReleasePages(Sequence* sequence);

  // sampler_plan.cc
  void BuildPlan();
  void ShareRows();
  void Settle();
  void WantPrefill(size_t lane, size_t budget);
  void WantDecode(size_t lane, size_t budget);
  void GrantPages();
  void EmitRows(const Grant& grant);
  void AddRow(Sequence* sequence, size_t position);
  void AddDraw(Sequence* sequence);
  size_t AddTop(int count);

  void Deliver();
  void KeepBlocks(Sequence* sequence);
  void DeliverScore(const ScoreOwner& owner, float logprob);
  void Accept(const DrawOwner& owner, const Draw& draw);
  void TellListeners();
  void CopyTop(size_t from, int count, TopTokens* top) const;
  void Fail(Job* job, const Fault& fault);
  void End(Sequence* sequence, StopReason reason);
  void Reap();

  const ModelConfig config_;
  Executor* const executor_;
  const size_t max_step_rows_;
  EngineStats* const stats_;
  const FlopsModel flops_;
  TenantShares shares_;
  PrefixCache cache_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  uint64_t admission_tick_ = 0;
  uint64_t lane_changes_ = 0;
  size_t step_turn_ = 0;
  uint64_t next_ticket_ = 1;
  size_t pledged_ = 0;  // pages that running sequences will need soon, while Resume and Admit look

  std::vector<PageCopy> pending_copies_;  // the page copied from has a user for each
  SamplingPlan plan_;
  SamplingOutput output_;
  std::vector<Grant> grants_;
  std::vector<DrawOwner> draw_owners_;    // as plan_.draws
  std::vector<ScoreOwner> score_owners_;  // as plan_.scores
  std::vector<Job*> logits_owners_;       // as plan_.logits_rows
  size_t next_top_ = 0;                   // entries of all plan_.tops
  std::vector<LaneDemand> prefill_demand_, decode_demand_;
  std::vector<size_t> prefill_share_, decode_share_;
  std::vector<AccountId> accounts_, unmet_;
  std::vector<double> dealt_, exact_;  // FLOPs of the step by account: as dealt, as planned
  std::vector<bool> seen_;             // by account, scratch
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_SAMPLER_H_
