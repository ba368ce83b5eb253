// How much work may wait in the engine, per tenant and in all: refuses rather than stalls. Decides
// only; the caller guards it. (What is let in here gets key/value pages by sampler_admission.cc, or
// waits in the trainer's queues.)
//
// 1. A call counts from its acceptance to its end, whatever ends it.
// 2. A call that would pass a limit is refused with the limit's name and what is pending; nothing
// else changes.
// 3. A call larger than a limit is taken while its tenant (or the engine) has nothing of that
// measure pending: it could never be taken otherwise.
#ifndef HOTBED_ENGINE_ADMISSION_H_
#define HOTBED_ENGINE_ADMISSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/tenant_shares.h"

namespace hotbed {

// What a call holds of each measure.
struct PendingWork {
  uint64_t sampling_calls = 0;
  uint64_t sampling_tokens = 0;  // prompt, and all that may be drawn
  uint64_t training_rows = 0;    // shared rows and branches, not computed yet or not answered yet
  uint64_t training_bytes = 0;   // of the datums
};

struct AdmissionLimits {
  PendingWork total{16384, uint64_t{16} << 20, uint64_t{4} << 20, uint64_t{1024} << 20};
  PendingWork per_tenant{8192, uint64_t{8} << 20, uint64_t{2} << 20, uint64_t{512} << 20};
};

class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits);

  // Counts the work, or says why not.
  std::optional<std::string> Admit(AccountId account, const PendingWork& work);
  // Exactly once for what was admitted.
  void Release(AccountId account, const PendingWork& work);

  const PendingWork& total() const { return total_; }
  PendingWork of(AccountId account) const;
  uint64_t refusals(AccountId account) const;
  uint64_t refusals() const { return refusals_; }

 private:
  struct Account {
    PendingWork pending;
    uint64_t refusals = 0;
  };

  const AdmissionLimits limits_;
  PendingWork total_;
  uint64_t refusals_ = 0;
  std::vector<Account> accounts_;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_ADMISSION_H_
