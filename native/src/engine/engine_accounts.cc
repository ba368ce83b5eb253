#include <unordered_set>

#include "engine/engine_impl.h"
#include "util/aligned_buffer.h"

namespace hotbed {

EngineStats Engine::Impl::stats() const {
  const PendingWork pending = desk_.pending();
  std::lock_guard<std::mutex> lock(mutex_);
  EngineStats stats = published_stats_;
  stats.policies = policies_.size();
  stats.busy_refusals = desk_.refusals();
  stats.pending_sampling_calls = pending.sampling_calls;
  stats.pending_sampling_tokens = pending.sampling_tokens;
  stats.pending_training_rows = pending.training_rows;
  stats.pending_data_bytes = pending.training_bytes;
  stats.oldest_sampling_ms = desk_.oldest_sampling_ms();
  stats.oldest_training_ms = desk_.oldest_training_ms();
  return stats;
}

void Engine::Impl::Publish() {
  stats_.active_sequences = sampler_->active_sequences();
  stats_.kv_bytes = sampler_->used_pages() * executor_->page_bytes();
  stats_.adapters = trainer_->adapters();
  stats_.overdue_services = shares_.overdue();
  stats_.kv_allocated_bytes = executor_->kv_allocated_bytes();
  stats_.scratch_bytes = executor_->scratch_bytes() + keptBytes();
  if (memory_changed_.exchange(false)) {
    sampler_->DropUnreachable();
    const AdapterMemory memory = MemoryOf(std::nullopt);
    stats_.state_bytes = memory.state_bytes;
    stats_.in_flight_bytes = memory.in_flight_bytes;
    stats_.policy_bytes = memory.policy_bytes;
    stats_.packed_bytes = memory.packed_bytes;
    stats_.adapter_bytes =
        memory.state_bytes + memory.in_flight_bytes + memory.policy_bytes + memory.packed_bytes;
  }
  // After what nobody can ask for again is gone.
  stats_.prefix_pages = sampler_->cache().blocks();
  stats_.prefix_evictions = sampler_->cache().evictions();
  std::lock_guard<std::mutex> lock(mutex_);
  published_stats_ = stats_;
}

std::vector<TenantStats> Engine::Impl::Tenants() const {
  const TenantShares& sampling = sampler_->shares();
  const TenantShares& training = trainer_->shares();
  std::vector<TenantStats> tenants;
  for (std::string& name : desk_.Names()) {
    const auto account = static_cast<AccountId>(tenants.size());
    TenantStats tenant;
    tenant.tenant = std::move(name);
    tenant.weight = sampling.weight(account);
    tenant.sampling_flops = sampling.served(account);
    tenant.training_flops = training.served(account);
    tenant.sampling_steps = sampling.plans(account);
    tenant.training_passes = training.plans(account);
    tenant.sampling_lag = sampling.lag(account);
    tenant.training_lag = training.lag(account);
    tenant.overdue_services = sampling.overdue(account) + training.overdue(account);
    tenant.busy_refusals = desk_.refusals(account);
    tenant.pending = desk_.pending(account);
    tenants.push_back(std::move(tenant));
  }
  trainer_->ForEach([&](AdapterHandle, AccountId account, const AdapterState&, size_t) {
    ++tenants[account].adapters;
  });
  return tenants;
}

AdapterMemory Engine::Impl::MemoryOf(std::optional<AdapterHandle> only) const {
  AdapterMemory memory;
  std::unordered_set<const AdapterWeights*> counted;
  const auto packed = [&](const AdapterWeights& weights) {
    if (weights.executor_copy) memory.packed_bytes += weights.values.bytes();
  };
  trainer_->ForEach([&](AdapterHandle handle, AccountId, const AdapterState& state, size_t copies) {
    if (only && handle != *only) return;
    counted.insert(state.weights.get());
    memory.state_bytes +=
        state.weights->values.bytes() + state.m.bytes() + state.v.bytes() + state.gradient.bytes();
    memory.in_flight_bytes += copies;
    packed(*state.weights);
  });
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& entry : policies_) {
    const Policy& policy = entry.second;
    if (only && policy.adapter != *only) continue;
    if (!counted.insert(policy.weights.get()).second) continue;
    memory.policy_bytes += policy.weights->values.bytes();
    packed(*policy.weights);
  }
  return memory;
}

}  // namespace hotbed
