#include "engine/tenant_shares.h"

#include <algorithm>
#include <limits>

namespace hotbed {

TenantShares::TenantShares(double max_wait) : max_wait_(max_wait) {}

TenantShares::Account& TenantShares::At(AccountId account) {
  if (account >= accounts_.size()) accounts_.resize(account + 1);
  return accounts_[account];
}

const TenantShares::Account* TenantShares::Find(AccountId account) const {
  return account < accounts_.size() ? &accounts_[account] : nullptr;
}

void TenantShares::SetWeight(AccountId account, double weight) { At(account).weight = weight; }

void TenantShares::Open(const std::vector<AccountId>& wanting, double clock) {
  clock_ = clock;
  before_.swap(active_);
  for (AccountId id : before_) accounts_[id].in_plan = false;
  active_ = wanting;
  for (AccountId id : active_) {
    Account& account = At(id);
    account.in_plan = true;
    account.unmet = false;
    if (account.active) continue;
    account.active = true;
    account.waiting_since = clock;
    account.time = std::max(account.time, level_);
  }
  for (AccountId id : before_) {
    if (!accounts_[id].in_plan) accounts_[id].active = false;
  }
  for (AccountId id : active_) accounts_[id].in_plan = false;
}

bool TenantShares::IsOverdue(const Account& account) const {
  return clock_ - account.waiting_since > max_wait_;
}

bool TenantShares::After(AccountId a, AccountId b) const {
  const Account &left = accounts_[a], &right = accounts_[b];
  const bool left_overdue = IsOverdue(left), right_overdue = IsOverdue(right);
  if (left_overdue != right_overdue) return right_overdue;
  if (!left_overdue && left.time != right.time) return left.time > right.time;
  if (left.waiting_since != right.waiting_since) return left.waiting_since > right.waiting_since;
  return a > b;
}

void TenantShares::Gather(const std::vector<AccountId>& accounts) {
  heap_ = accounts;
  std::make_heap(heap_.begin(), heap_.end(),
                 [this](AccountId a, AccountId b) { return After(a, b); });
}

void TenantShares::Serve(double cost) {
  const auto after = [this](AccountId a, AccountId b) { return After(a, b); };
  std::pop_heap(heap_.begin(), heap_.end(), after);
  Account& account = accounts_[heap_.back()];
  if (IsOverdue(account)) ++account.overdue;
  account.waiting_since = clock_;
  account.time += cost / account.weight;
  account.served += cost;
  if (!account.in_plan) ++account.plans;
  account.in_plan = true;
  std::push_heap(heap_.begin(), heap_.end(), after);
}

void TenantShares::Leave() {
  std::pop_heap(heap_.begin(), heap_.end(),
                [this](AccountId a, AccountId b) { return After(a, b); });
  heap_.pop_back();
}

void TenantShares::Correct(AccountId id, double cost) {
  Account& account = At(id);
  account.time += cost / account.weight;
  account.served += cost;
}

void TenantShares::Close(const std::vector<AccountId>& unmet) {
  for (AccountId id : unmet) accounts_[id].unmet = true;
  most_ = level_;
  double least = std::numeric_limits<double>::infinity();
  for (AccountId id : active_) {
    const Account& account = accounts_[id];
    most_ = std::max(most_, account.time);
    if (account.unmet) least = std::min(least, account.time);
  }
  level_ = std::max(level_, unmet.empty() ? most_ : least);
  for (AccountId id : active_) {
    Account& account = accounts_[id];
    account.time =
        std::max({account.time, account.unmet ? 0.0 : level_, most_ - max_wait_ / account.weight});
    // What has no work left waits for nothing.
    if (!account.unmet) account.waiting_since = clock_;
  }
}

std::optional<AccountId> TenantShares::First(const std::vector<AccountId>& accounts) const {
  std::optional<AccountId> first;
  for (AccountId id : accounts) {
    if (!first || After(*first, id)) first = id;
  }
  return first;
}

double TenantShares::weight(AccountId id) const {
  const Account* account = Find(id);
  return account ? account->weight : 1;
}

double TenantShares::served(AccountId id) const {
  const Account* account = Find(id);
  return account ? account->served : 0;
}

uint64_t TenantShares::plans(AccountId id) const {
  const Account* account = Find(id);
  return account ? account->plans : 0;
}

uint64_t TenantShares::overdue(AccountId id) const {
  const Account* account = Find(id);
  return account ? account->overdue : 0;
}

double TenantShares::virtual_time(AccountId id) const {
  const Account* account = Find(id);
  return account ? account->time : 0;
}

double TenantShares::lag(AccountId id) const {
  const Account* account = Find(id);
  return account && account->active ? std::max(0.0, most_ - account->time) : 0;
}

}  // namespace hotbed
