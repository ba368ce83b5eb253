// The tenants of an engine and what of theirs is pending: names, admission, ages. Any thread may
// call it.
#ifndef HOTBED_ENGINE_TENANT_DESK_H_
#define HOTBED_ENGINE_TENANT_DESK_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/admission.h"

namespace hotbed {

// One call that may be pending (admission.h), from its acceptance to its end.
struct Ticket {
  uint64_t id = 0;
  AccountId account = 0;
  PendingWork work;
};

class TenantDesk {
 public:
  explicit TenantDesk(const AdmissionLimits& limits);

  // The account of a tenant, made at its first call; "" = 0, which always is.
  AccountId AccountOf(const std::string& tenant);
  // By account.
  std::vector<std::string> Names() const;

  // Throws EngineFault busy naming the limit and what is pending.
  Ticket Admit(AccountId account, const PendingWork& work);
  void Release(const Ticket& ticket);

  PendingWork pending() const;
  PendingWork pending(AccountId account) const;
  uint64_t refusals() const;
  uint64_t refusals(AccountId account) const;
  // Milliseconds since the acceptance of the oldest pending call; 0 when there is none.
  double oldest_sampling_ms() const;
  double oldest_training_ms() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Ages = std::map<uint64_t, Clock::time_point>;  // by ticket: the oldest is the first

  double Oldest(const Ages& ages) const;

  mutable std::mutex mutex_;
  Admission admission_;
  std::unordered_map<std::string, AccountId> accounts_;
  std::vector<std::string> names_;
  Ages sampling_, training_;
  uint64_t next_ticket_ = 1;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_TENANT_DESK_H_
