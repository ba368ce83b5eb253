// Sampling or training next: decides only, in FLOPs; knows no clock, no thread and no work.
//
// 1. While both wait, each gets its part of the FLOPs: the part of the tenants' weight that waits
// for it, but never less than its floor. One tenant with both kinds of work: half and half.
// 2. What waits alone gets everything, and the other, once it has work, starts at its mark.
// 3. Age bound: a kind that has waited while the other did `max_wait` FLOPs goes next.
#ifndef HOTBED_ENGINE_WORK_SHARES_H_
#define HOTBED_ENGINE_WORK_SHARES_H_

#include <cstddef>
#include <cstdint>

namespace hotbed {

enum class WorkKind { kSampling = 0, kTraining = 1 };

class WorkShares {
 public:
  // Floors are parts of all FLOPs; their sum is at most 1.
  WorkShares(double decode_floor, double training_floor, double max_wait);

  // At least one of the two has work; `*_weight` = sum of the weights of the tenants that wait for
  // it.
  WorkKind Choose(bool sampling, bool training, double sampling_weight, double training_weight);
  // What the chosen work cost; call it after every Choose.
  void Charge(WorkKind kind, double cost);

  // Sampling's part of the FLOPs as of the last Choose.
  double sampling_part() const { return part_[0]; }
  // Times that the age bound decided.
  uint64_t overdue() const { return overdue_; }
  // FLOPs done so far.
  double clock() const { return clock_; }

 private:
  const double floor_[2];
  const double max_wait_;
  double part_[2] = {0.5, 0.5};
  double mark_[2] = {0, 0};  // FLOPs done / part
  double waited_[2] = {0,
                       0};  // FLOPs that the other did since this kind had work and was not served
  bool wants_[2] = {false, false};
  double clock_ = 0;
  uint64_t overdue_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_WORK_SHARES_H_
