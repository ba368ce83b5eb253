#include "engine/admission.h"

namespace hotbed {

namespace {

struct Measure {
  const char* name;
  const char* things;
  uint64_t PendingWork::*member;
};

constexpr Measure kMeasures[] = {
    {"samplingCalls", "sampling calls", &PendingWork::sampling_calls},
    {"samplingTokens", "tokens of sampling calls", &PendingWork::sampling_tokens},
    {"trainingRows", "training rows", &PendingWork::training_rows},
    {"trainingMiB", "bytes of training data", &PendingWork::training_bytes},
};

std::string Refusal(const char* scope, const char* whose, const Measure& measure, uint64_t limit,
                    uint64_t pending, uint64_t more) {
  return std::string("limits.") + scope + "." + measure.name + ": " + std::to_string(pending) +
         " " + measure.things + " are pending " + whose + " and this call has " +
         std::to_string(more) + ", the limit is " + std::to_string(limit) +
         "; try again when some have ended";
}

}  // namespace

Admission::Admission(const AdmissionLimits& limits) : limits_(limits) {}

std::optional<std::string> Admission::Admit(AccountId id, const PendingWork& work) {
  if (id >= accounts_.size()) accounts_.resize(id + 1);
  Account& account = accounts_[id];
  const auto passes = [](uint64_t pending, uint64_t more, uint64_t limit) {
    return more != 0 && pending != 0 && (pending >= limit || more > limit - pending);
  };
  for (const Measure& measure : kMeasures) {
    const uint64_t more = work.*measure.member;
    const uint64_t own = account.pending.*measure.member, all = total_.*measure.member;
    std::optional<std::string> refusal;
    if (passes(own, more, limits_.per_tenant.*measure.member)) {
      refusal = Refusal("perTenant", "for this tenant", measure, limits_.per_tenant.*measure.member,
                        own, more);
    } else if (passes(all, more, limits_.total.*measure.member)) {
      refusal = Refusal("total", "in all", measure, limits_.total.*measure.member, all, more);
    }
    if (refusal) {
      ++account.refusals;
      ++refusals_;
      return refusal;
    }
  }
  for (const Measure& measure : kMeasures) {
    account.pending.*measure.member += work.*measure.member;
    total_.*measure.member += work.*measure.member;
  }
  return std::nullopt;
}

void Admission::Release(AccountId id, const PendingWork& work) {
  for (const Measure& measure : kMeasures) {
    accounts_[id].pending.*measure.member -= work.*measure.member;
    total_.*measure.member -= work.*measure.member;
  }
}

PendingWork Admission::of(AccountId id) const {
  return id < accounts_.size() ? accounts_[id].pending : PendingWork();
}

uint64_t Admission::refusals(AccountId id) const {
  return id < accounts_.size() ? accounts_[id].refusals : 0;
}

}  // namespace hotbed
