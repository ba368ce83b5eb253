// Adapters and the calls on them, in order; training passes that hold datums of several adapters.
//
// 1. Each adapter has one queue; calls apply in the order in which they came (N7). Queues advance
// independently.
// 2. A pass takes whole datums up to max_train_rows (or the rows whose activations can be kept,
// unless they are very few), each of the tenant whose turn it is and of its adapters in turn; a
// larger datum goes alone. A call may spread over several passes: gradients are chains carried
// across them (N6).
// 3. A call that fails puts back the gradient that it started from. It is copied when the call's
// first pass begins, unless it is still zero.
// 4. An optimizer step writes in place unless somebody holds the weights (a policy, a state copy):
// then into new ones.
#ifndef HOTBED_ENGINE_TRAINER_H_
#define HOTBED_ENGINE_TRAINER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/flops.h"
#include "engine/plan.h"
#include "engine/tenant_shares.h"

namespace hotbed {

struct TrainingCall {
  bool backward = false;
  Loss loss;
  std::vector<Datum> datums;
  Done<ForwardBackwardResult> done;
};

class Trainer {
 public:
  Trainer(const ModelConfig& config, Executor* executor, int max_train_rows, double max_wait_flops,
          EngineStats* stats);
  ~Trainer();

  void Add(AdapterHandle handle, AccountId account, std::unique_ptr<AdapterState> state);
  bool Has(AdapterHandle handle) const;
  // Rejects what is pending with cancelled.
  void Drop(AdapterHandle handle);

  // The handles of the calls below must be ones that Has() knows.
  void Run(AdapterHandle handle, std::unique_ptr<TrainingCall> call);
  // On the base, for a tenant: without backward.
  void RunBase(AccountId account, std::unique_ptr<TrainingCall> call);
  void OptimStep(AdapterHandle handle, const AdamParams& params, Done<OptimStepResult> done);
  // Calls visit(state) or, when the adapter goes first, reject(fault), in the adapter's order.
  // visit may keep the weights but not the state.
  void Visit(AdapterHandle handle, std::function<void(const AdapterState&)> visit,
             std::function<void(const Fault&)> reject);
  void RejectAll(const Fault& fault);

  // Everything that needs no pass and whose turn has come.
  void RunImmediate();
  bool has_pass() const;
  // The next slice of the pass in flight, or of a new one; `clock` = FLOPs done so far by anybody.
  // Returns its FLOPs.
  double Work(double clock);
  bool in_pass() const { return in_pass_; }

  // Who was served how much, by account.
  TenantShares& shares() { return shares_; }
  const TenantShares& shares() const { return shares_; }
  // The sum of the weights of the tenants with work here.
  double waiting_weight() const;

  size_t adapters() const { return by_handle_.size(); }
  // Calls visit(handle, account, state, bytes of the copies that calls in flight hold) for every
  // adapter.
  void ForEach(const std::function<void(AdapterHandle, AccountId, const AdapterState&, size_t)>&
                   visit) const;

 private:
  struct Call;
  struct Adapter;

  // A tenant's adapters that wait for a pass, in turn.
  struct Line {
    AccountId account;
    std::vector<Adapter*> adapters;
    size_t next = 0;
    bool unmet = false;
  };

  Adapter* Find(AdapterHandle handle);
  static Call CallOf(std::unique_ptr<TrainingCall> training);
  double FlopsOf(const Adapter& adapter, const Datum& datum, bool backward) const;
  // Picks the datums of the next pass (Call::planned) and charges for them.
  std::vector<Adapter*> Pick(double clock);
  size_t PassRows(const std::vector<Adapter*>& waiting) const;
  std::optional<double> PlanOne(Line* line, size_t* rows);
  // Runs the adapter's calls that need no pass, up to the first that does.
  void Advance(Adapter* adapter);
  void BeginPass(double clock);
  void EndPass();
  void BuildPlan(double clock);
  void AddDatum(const Datum& datum, LossName loss);
  void AddTargets(const Branch& branch, LossName loss);
  void BeginCall(Adapter* adapter, Call* call);
  void RestoreGradient(Adapter* adapter, Call* call);
  void Deliver();
  void FailPlan(const Fault& fault);

  Executor* const executor_;
  const size_t max_train_rows_;
  size_t pass_rows_ = 0;  // most rows of the pass being planned
  EngineStats* const stats_;
  const FlopsModel flops_;
  TenantShares shares_;
  std::vector<std::unique_ptr<Adapter>> adapters_;  // and the base, once per tenant that uses it
  std::unordered_map<AccountId, Adapter*> bases_;
  std::unordered_map<AdapterHandle, Adapter*> by_handle_;
  size_t turn_ = 0;

  TrainingPlan plan_;
  TrainingOutput output_;
  std::vector<Adapter*> owners_;  // as plan_.segments
  bool in_pass_ = false;
  double pass_cost_ = 0;
  double pass_done_ = 0;  // 0..1
  // Dropped while their rows are in the pass, which still reads their tensors.
  std::vector<std::unique_ptr<Adapter>> dropped_;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_TRAINER_H_
