#include "engine/tenant_desk.h"

#include "engine/fault.h"

namespace hotbed {

TenantDesk::TenantDesk(const AdmissionLimits& limits)
    : admission_(limits), accounts_{{"", 0}}, names_{""} {}

AccountId TenantDesk::AccountOf(const std::string& tenant) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [at, made] = accounts_.try_emplace(tenant, static_cast<AccountId>(names_.size()));
  if (made) names_.push_back(tenant);
  return at->second;
}

std::vector<std::string> TenantDesk::Names() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return names_;
}

Ticket TenantDesk::Admit(AccountId account, const PendingWork& work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto refusal = admission_.Admit(account, work)) {
    throw EngineFault(FaultCode::kBusy, *refusal);
  }
  const Ticket ticket{next_ticket_++, account, work};
  (work.sampling_calls != 0 ? sampling_ : training_).emplace(ticket.id, Clock::now());
  return ticket;
}

void TenantDesk::Release(const Ticket& ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  admission_.Release(ticket.account, ticket.work);
  (ticket.work.sampling_calls != 0 ? sampling_ : training_).erase(ticket.id);
}

PendingWork TenantDesk::pending() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return admission_.total();
}

PendingWork TenantDesk::pending(AccountId account) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return admission_.of(account);
}

uint64_t TenantDesk::refusals() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return admission_.refusals();
}

uint64_t TenantDesk::refusals(AccountId account) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return admission_.refusals(account);
}

double TenantDesk::Oldest(const Ages& ages) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ages.empty()) return 0;
  return std::chrono::duration<double, std::milli>(Clock::now() - ages.begin()->second).count();
}

double TenantDesk::oldest_sampling_ms() const { return Oldest(sampling_); }
double TenantDesk::oldest_training_ms() const { return Oldest(training_); }

}  // namespace hotbed
