#include "engine/work_shares.h"

#include <algorithm>

namespace hotbed {

WorkShares::WorkShares(double decode_floor, double training_floor, double max_wait)
    : floor_{decode_floor, training_floor}, max_wait_(max_wait) {}

WorkKind WorkShares::Choose(bool sampling, bool training, double sampling_weight,
                            double training_weight) {
  wants_[0] = sampling;
  wants_[1] = training;
  if (!sampling || !training) return sampling ? WorkKind::kSampling : WorkKind::kTraining;
  const double wished = sampling_weight / (sampling_weight + training_weight);
  part_[0] = std::min(std::max(wished, floor_[0]), 1 - floor_[1]);
  part_[1] = 1 - part_[0];
  const int next = mark_[0] <= mark_[1] ? 0 : 1;
  const int other = 1 - next;
  if (waited_[other] > max_wait_ && waited_[other] > waited_[next]) {
    ++overdue_;
    return static_cast<WorkKind>(other);
  }
  return static_cast<WorkKind>(next);
}

void WorkShares::Charge(WorkKind kind, double cost) {
  const int served = static_cast<int>(kind), other = 1 - served;
  clock_ += cost;
  waited_[served] = 0;
  if (wants_[other]) {
    // A part of 0 (a floor of 1 for the other) is served by the age bound alone.
    mark_[served] += cost / std::max(part_[served], 1e-9);
    waited_[other] += cost;
  } else {
    mark_[other] = mark_[served] = std::max(mark_[0], mark_[1]);
    waited_[other] = 0;
  }
}

}  // namespace hotbed
