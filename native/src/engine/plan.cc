#include "engine/plan.h"

namespace hotbed {

void SamplingPlan::Clear() {
  tokens.clear();
  positions.clear();
  segments.clear();
  copies.clear();
  spans.clear();
  page_ids.clear();
  scores.clear();
  draws.clear();
  tops.clear();
  logits_rows.clear();
}

void TrainingPlan::Clear() {
  tokens.clear();
  positions.clear();
  segments.clear();
  datums.clear();
  runs.clear();
  target_rows.clear();
  target_offsets.assign(1, 0);
  targets.clear();
  recorded.clear();
  weights.clear();
  mask.clear();
}

}  // namespace hotbed
