// The seam between scheduling and arithmetic: an executor runs plans on one device and keeps what
// lives there (packed base, key/value pages, its own copies of adapter weights). It knows nothing
// of requests, tenants or handles.
//
// 1. Called by the engine thread alone.
// 2. An output element is a function of its own row's inputs (see plan.h, rule 2), for any plan
// that contains the row.
// 3. A plan that throws has changed nothing but gradients of the plan's adapters, which the caller
// restores.
#ifndef HOTBED_ENGINE_EXECUTOR_H_
#define HOTBED_ENGINE_EXECUTOR_H_

#include <cstddef>

#include "engine/adapter_state.h"
#include "engine/engine.h"
#include "engine/plan.h"

namespace hotbed {

class Executor {
 public:
  virtual ~Executor() = default;

  // Fills A by N13; everything else of a fresh state is +0 already.
  virtual void InitializeAdapter(AdapterState* state) = 0;
  virtual void RunSampling(const SamplingPlan& plan, SamplingOutput* output) = 0;
  // Starts a pass: forward, loss, and for segments with backward the gradient added to the
  // adapter's. One at a time; `plan` and `output` stay in place until it is over.
  virtual void BeginTraining(const TrainingPlan& plan, TrainingOutput* output) = 0;
  // Runs the next slice of the pass, at least a layer in one direction, bounded in work, so that
  // sampling steps go in between. Returns the part of the pass that is done, 1 = all of it. After a
  // throw the pass is over.
  virtual double AdvanceTraining() = 0;
  // N8. Throws EngineFault not_finite (state unchanged).
  virtual OptimStepResult RunOptimizer(AdapterState* state, const AdamParams& params) = 0;

  // Rows of a pass with backward whose activations can be kept, for adapters of ranks up to `rank`;
  // more rows mean that layers are computed twice (N14).
  virtual size_t rows_kept(size_t rank) const = 0;

  // Bytes of one key/value page, all layers.
  virtual size_t page_bytes() const = 0;
  // Bytes of the packed base.
  virtual size_t base_bytes() const = 0;
  // Bytes of key/value pages taken from the system so far: they are used again, never given back.
  virtual size_t kv_allocated_bytes() const = 0;
  // Bytes of activations and scratch, grown to the largest plan so far.
  virtual size_t scratch_bytes() const = 0;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_EXECUTOR_H_
