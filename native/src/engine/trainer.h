// Adapters and the calls on them, in order; training passes that hold datums of several adapters.
//
// 1. Each adapter has one queue; calls apply in the order in which they came (N7). Queues advance
// independently.
// 2. A pass takes whole datums, one adapter after another in turn, up to max_train_rows; a larger
// datum goes alone. A
//    call may spread over several passes: gradients are chains carried across them (N6).
// 3. A call that fails puts back the gradient that it started from. It is copied when the call's
// first pass begins,
//    unless it is still zero.
// 4. An optimizer step writes in place unless somebody holds the weights (a policy, a state copy):
// then into new ones.
#ifndef HOTBED_ENGINE_TRAINER_H_
#define HOTBED_ENGINE_TRAINER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/plan.h"

namespace hotbed {

struct TrainingCall {
  bool backward = false;
  Loss loss;
  std::vector<Datum> datums;
  Done<ForwardBackwardResult> done;
};

class Trainer {
 public:
  Trainer(Executor* executor, int max_train_rows, EngineStats* stats);
  ~Trainer();

  void Add(AdapterHandle handle, std::unique_ptr<AdapterState> state);
  bool Has(AdapterHandle handle) const;
  // Rejects what is pending with cancelled.
  void Drop(AdapterHandle handle);

  // The handle must be one that Has() knows; 0 stands for the base, which takes only Run() without
  // backward.
  void Run(AdapterHandle handle, std::unique_ptr<TrainingCall> call);
  void OptimStep(AdapterHandle handle, const AdamParams& params, Done<OptimStepResult> done);
  // Calls visit(state) or, when the adapter goes first, reject(fault), in the adapter's order.
  // visit may keep the weights but not the state.
  void Visit(AdapterHandle handle, std::function<void(const AdapterState&)> visit,
             std::function<void(const Fault&)> reject);
  void RejectAll(const Fault& fault);

  // Everything that needs no pass and whose turn has come.
  void RunImmediate();
  bool has_pass() const;
  // The next slice of the pass in flight, or of a new one. Returns its cost in forward rows (a row
  // with a backward pass counts three times).
  double Work();

  size_t adapters() const;
  // Calls visit(state) for every adapter.
  void ForEach(const std::function<void(const AdapterState&)>& visit) const;

 private:
  struct Call;
  struct Adapter;

  Adapter* Find(AdapterHandle handle);
  void Push(AdapterHandle handle, Call call);
  // Runs the adapter's calls that need no pass, up to the first that does.
  void Advance(Adapter* adapter);
  void BeginPass();
  void EndPass();
  void BuildPlan();
  void AddDatum(const Datum& datum, LossName loss);
  void AddTargets(const Branch& branch, LossName loss);
  void BeginCall(Adapter* adapter, Call* call);
  void RestoreGradient(Adapter* adapter, Call* call);
  void Deliver();
  void FailPlan(const Fault& fault);

  Executor* const executor_;
  const size_t max_train_rows_;
  EngineStats* const stats_;
  std::vector<std::unique_ptr<Adapter>> adapters_;  // [0] is the base
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
