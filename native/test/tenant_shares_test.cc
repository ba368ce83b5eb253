// Weighted fair queueing, decided without an engine: served FLOPs, newcomers, idleness, lag, age.
#include "engine/tenant_shares.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "engine/admission.h"
#include "engine/flops.h"
#include "engine/row_shares.h"
#include "engine/work_shares.h"
#include "engine_support.h"
#include "harness.h"

namespace hotbed::test {
namespace {

constexpr double kNever = 1e300;

// Plans of `places` places each; who is backlogged takes all it is given.
class Plans {
 public:
  explicit Plans(double max_wait = kNever) : shares(max_wait) {}

  // One plan: accounts with `wants` places left to give, each of its own cost.
  void Run(const std::vector<AccountId>& wanting, size_t places, const std::vector<double>& cost,
           std::vector<size_t>* wants) {
    shares.Open(wanting, clock);
    double done = 0;
    shares.Deal(wanting, [&](AccountId account) -> std::optional<double> {
      if (places == 0 || (*wants)[account] == 0) return std::nullopt;
      --places;
      --(*wants)[account];
      done += cost[account];
      return cost[account];
    });
    std::vector<AccountId> unmet;
    for (AccountId account : wanting) {
      if ((*wants)[account] != 0) unmet.push_back(account);
    }
    shares.Close(unmet);
    clock += done;
  }

  TenantShares shares;
  double clock = 0;
};

const size_t kBacklog = 1 << 30;

TEST(tenant_shares_backlogged_tenants_are_served_by_weight) {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    Plans plans;
    const size_t count = 2 + random() % 5;
    std::vector<AccountId> all;
    std::vector<double> weight, cost;
    double most = 0, weights = 0;
    for (size_t i = 0; i < count; ++i) {
      all.push_back(static_cast<AccountId>(i));
      weight.push_back(1 + random() % 7);
      cost.push_back(1 + random() % 50);
      plans.shares.SetWeight(all[i], weight[i]);
      most = std::max(most, cost[i] / weight[i]);
      weights += weight[i];
    }
    std::vector<size_t> wants(count, kBacklog);
    for (int plan = 0; plan < 300; ++plan) {
      plans.Run(all, 1 + random() % 40, cost, &wants);
      // The bound on lag: nobody is more than one place of the other ahead.
      for (AccountId a : all) {
        for (AccountId b : all) {
          const double ahead = plans.shares.virtual_time(a) - plans.shares.virtual_time(b);
          CHECK_MESSAGE(ahead <= cost[a] / weight[a] + 1e-6, "plan " << plan);
        }
      }
    }
    double served = 0;
    for (AccountId a : all) served += plans.shares.served(a);
    for (AccountId a : all) {
      const double due = served * weight[a] / weights;
      CHECK_MESSAGE(std::abs(plans.shares.served(a) - due) <= most * weight[a] * 2,
                    plans.shares.served(a) << " of " << due);
    }
  }
}

TEST(tenant_shares_one_to_three) {
  Plans plans;
  plans.shares.SetWeight(1, 3);
  std::vector<size_t> wants(2, kBacklog);
  for (int plan = 0; plan < 100; ++plan) plans.Run({0, 1}, 8, {10, 10}, &wants);
  CHECK_EQ(plans.shares.served(0), 2000.0);
  CHECK_EQ(plans.shares.served(1), 6000.0);
  // Both ride in every plan.
  CHECK_EQ(plans.shares.plans(0), uint64_t{100});
  CHECK_EQ(plans.shares.plans(1), uint64_t{100});
}

TEST(tenant_shares_a_newcomer_starves_nobody_and_is_not_starved) {
  Plans plans;
  std::vector<size_t> wants(2, kBacklog);
  for (int plan = 0; plan < 1000; ++plan) plans.Run({0}, 8, {10, 10}, &wants);
  const double before = plans.shares.served(0);
  for (int plan = 0; plan < 10; ++plan) {
    plans.Run({0, 1}, 8, {10, 10}, &wants);
    // From the first plan on: half each.
    CHECK_EQ(plans.shares.served(0) - before, 40.0 * (plan + 1));
    CHECK_EQ(plans.shares.served(1), 40.0 * (plan + 1));
  }
}

TEST(tenant_shares_idleness_earns_no_credit) {
  Plans plans;
  std::vector<size_t> wants(2, kBacklog);
  for (int plan = 0; plan < 10; ++plan) plans.Run({0, 1}, 8, {10, 10}, &wants);
  for (int plan = 0; plan < 500; ++plan) plans.Run({0}, 8, {10, 10}, &wants);
  const double before = plans.shares.served(0);
  const double mine = plans.shares.served(1);
  for (int plan = 0; plan < 10; ++plan) plans.Run({0, 1}, 8, {10, 10}, &wants);
  CHECK_EQ(plans.shares.served(0) - before, 400.0);
  CHECK_EQ(plans.shares.served(1) - mine, 400.0);
}

// One that asks for a single place at a time gets it at once, and keeps nothing for later.
TEST(tenant_shares_small_demands_are_met_and_earn_no_credit) {
  Plans plans;
  std::vector<size_t> wants(2, kBacklog);
  for (int plan = 0; plan < 500; ++plan) {
    wants[1] = 1;
    plans.Run({0, 1}, 8, {10, 10}, &wants);
    CHECK_EQ(wants[1], size_t{0});
  }
  const double before = plans.shares.served(0), mine = plans.shares.served(1);
  wants[1] = kBacklog;
  for (int plan = 0; plan < 10; ++plan) plans.Run({0, 1}, 8, {10, 10}, &wants);
  CHECK(std::abs((plans.shares.served(0) - before) - (plans.shares.served(1) - mine)) <= 20);
}

// What nobody else wanted costs nothing later.
TEST(tenant_shares_uncontested_use_is_free) {
  Plans plans;
  std::vector<size_t> wants(2, 0);
  for (int plan = 0; plan < 500; ++plan) {
    wants = {6, 1};
    plans.Run({0, 1}, 8, {10, 10}, &wants);
  }
  const double before = plans.shares.served(0), mine = plans.shares.served(1);
  wants.assign(2, kBacklog);
  for (int plan = 0; plan < 10; ++plan) plans.Run({0, 1}, 8, {10, 10}, &wants);
  CHECK(std::abs((plans.shares.served(0) - before) - (plans.shares.served(1) - mine)) <= 20);
}

// Light weights wait long, but no longer than the bound and a plan.
TEST(tenant_shares_the_age_bound_forces_service) {
  const double max_wait = 5000;
  Plans plans(max_wait);
  plans.shares.SetWeight(1, 1e-3);
  std::vector<size_t> wants(2, kBacklog);
  double last = 0, longest = 0;
  uint64_t seen = 0;
  for (int plan = 0; plan < 2000; ++plan) {
    plans.Run({0, 1}, 8, {10, 10}, &wants);
    if (plans.shares.plans(1) != seen) {
      longest = std::max(longest, plans.clock - last);
      last = plans.clock;
      seen = plans.shares.plans(1);
    }
  }
  CHECK(plans.shares.overdue(1) > 10);
  CHECK_MESSAGE(longest <= max_wait + 3 * 80, longest);
  Plans unbounded;
  unbounded.shares.SetWeight(1, 1e-3);
  for (int plan = 0; plan < 1000; ++plan) unbounded.Run({0, 1}, 8, {10, 10}, &wants);
  CHECK_EQ(unbounded.shares.overdue(1), uint64_t{0});
}

// Nobody catches up for longer than the bound, however long it could not be served.
TEST(tenant_shares_lag_is_bounded) {
  const double max_wait = 1000;
  Plans plans(max_wait);
  for (int plan = 0; plan < 500; ++plan) {
    // Account 1 wants, and nothing of it fits.
    plans.shares.Open({0, 1}, plans.clock);
    int places = 8;
    plans.shares.Deal({0, 1}, [&](AccountId account) -> std::optional<double> {
      if (account == 1 || places-- == 0) return std::nullopt;
      return 10;
    });
    plans.shares.Close({0, 1});
    plans.clock += 80;
    CHECK(plans.shares.lag(1) <= max_wait);
  }
}

TEST(row_shares_split_by_tenant_then_by_lane) {
  TenantShares tenants(kNever);
  tenants.SetWeight(1, 3);
  // Tenant 0 has three policies, tenant 1 one.
  const std::vector<LaneDemand> lanes = {{0, 100, 5}, {0, 100, 5}, {0, 100, 5}, {1, 1000, 5}};
  std::vector<double> dealt(2, 0);
  std::vector<size_t> shares;
  tenants.Open({0, 1}, 0);
  DealRows(lanes, 96, 0, &tenants, &dealt, &shares);
  tenants.Close({0, 1});
  CHECK_EQ(shares[0] + shares[1] + shares[2], size_t{24});
  CHECK_EQ(shares[0], size_t{8});
  CHECK_EQ(shares[3], size_t{72});
  CHECK_EQ(dealt[0], 24 * 5.0);
  CHECK_EQ(dealt[1], 72 * 5.0);
}

// Every row is given that can be, none twice, whatever the lanes.
TEST(row_shares_waste_nothing) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    TenantShares tenants(kNever);
    std::vector<LaneDemand> lanes(random() % 12);
    size_t wanted = 0;
    std::vector<AccountId> accounts;
    for (LaneDemand& lane : lanes) {
      lane = {static_cast<AccountId>(random() % 4), random() % 30, 1.0 + random() % 9};
      wanted += lane.rows;
      if (std::find(accounts.begin(), accounts.end(), lane.account) == accounts.end()) {
        accounts.push_back(lane.account);
      }
    }
    const size_t budget = random() % 200;
    std::vector<double> dealt(4, 0);
    std::vector<size_t> shares;
    tenants.Open(accounts, 0);
    DealRows(lanes, budget, random() % 7, &tenants, &dealt, &shares);
    size_t given = 0;
    for (size_t i = 0; i < lanes.size(); ++i) {
      CHECK(shares[i] <= lanes[i].rows);
      given += shares[i];
    }
    CHECK_EQ(given, std::min(wanted, budget));
  }
}

TEST(work_shares_keep_the_floors_and_follow_the_weights) {
  struct Case {
    double decode_floor, training_floor, sampling_weight, training_weight, part;
  };
  for (const Case& c :
       {Case{0.25, 0.25, 1, 1, 0.5}, Case{0.25, 0.25, 100, 1, 0.75}, Case{0.25, 0.25, 1, 100, 0.25},
        Case{0, 0, 3, 1, 0.75}, Case{0.6, 0.4, 1, 100, 0.6}}) {
    WorkShares shares(c.decode_floor, c.training_floor, kNever);
    double done[2] = {0, 0};
    for (int i = 0; i < 4000; ++i) {
      const WorkKind kind = shares.Choose(true, true, c.sampling_weight, c.training_weight);
      const double cost = kind == WorkKind::kSampling ? 1 : 7;
      shares.Charge(kind, cost);
      done[static_cast<int>(kind)] += cost;
    }
    CHECK_MESSAGE(std::abs(done[0] / (done[0] + done[1]) - c.part) < 0.01,
                  done[0] << " " << done[1]);
  }
}

TEST(work_shares_who_was_idle_starts_level_and_age_forces_service) {
  WorkShares shares(0.25, 0.25, kNever);
  for (int i = 0; i < 1000; ++i) shares.Charge(shares.Choose(false, true, 0, 1), 10);
  int sampling = 0;
  for (int i = 0; i < 10; ++i) {
    const WorkKind kind = shares.Choose(true, true, 1, 1);
    shares.Charge(kind, 10);
    sampling += kind == WorkKind::kSampling;
  }
  CHECK_EQ(sampling, 5);
  WorkShares starving(0, 0, 1000);
  double waited = 0, longest = 0;
  for (int i = 0; i < 5000; ++i) {
    const WorkKind kind = starving.Choose(true, true, 1, 1e9);
    starving.Charge(kind, 10);
    waited = kind == WorkKind::kSampling ? 0 : waited + 10;
    longest = std::max(longest, waited);
  }
  CHECK(starving.overdue() > 0);
  CHECK(longest <= 1010);
}

TEST(admission_counts_to_the_end_and_names_the_limit) {
  AdmissionLimits limits;
  limits.total = {4, 1000, 100, 1000};
  limits.per_tenant = {3, 600, 100, 1000};
  Admission admission(limits);
  const PendingWork call{1, 200, 0, 0}, rows{0, 0, 60, 100};
  CHECK(!admission.Admit(1, call) && !admission.Admit(1, call) && !admission.Admit(1, call));
  const auto refusal = admission.Admit(1, call);
  CHECK(refusal);
  CHECK_EQ(*refusal, std::string("limits.perTenant.samplingCalls: 3 sampling calls are pending for "
                                 "this tenant and this call has 1, the limit is 3; try again when "
                                 "some have ended"));
  CHECK(!admission.Admit(2, call));
  CHECK(admission.Admit(2, call)->find("limits.total.samplingCalls") == 0);
  CHECK(!admission.Admit(1, rows));  // another measure
  CHECK(admission.Admit(2, rows)->find("limits.total.trainingRows") == 0);
  admission.Release(1, call);
  CHECK(!admission.Admit(1, call));
  CHECK_EQ(admission.refusals(1), uint64_t{1});
  CHECK_EQ(admission.refusals(), uint64_t{3});
  CHECK_EQ(admission.of(1).sampling_calls, uint64_t{3});
  CHECK_EQ(admission.total().training_rows, uint64_t{60});
}

TEST(admission_takes_a_call_above_the_limit_when_it_is_alone) {
  AdmissionLimits limits;
  limits.total = limits.per_tenant = {2, 100, 100, 100};
  Admission admission(limits);
  const PendingWork large{1, 5000, 0, 0};
  CHECK(!admission.Admit(0, large));
  CHECK(admission.Admit(0, {1, 1, 0, 0}));
  admission.Release(0, large);
  CHECK(!admission.Admit(0, {1, 1, 0, 0}));
  CHECK(admission.Admit(0, large));
}

// The formula against its parts, spelled out for a base of one layer.
TEST(flops_follow_the_formula) {
  TinyBase base = LlamaBase();
  base.layers = 1;
  const ModelConfig config = ConfigOf(base);
  const FlopsModel flops(config);
  const double d = base.hidden, q = base.heads * base.head_dim, kv = base.kv_heads * base.head_dim;
  const double p = d * q * 2 + 2 * d * kv + 3 * d * base.ff;
  CHECK_EQ(flops.row(), 2 * p);
  CHECK_EQ(flops.head(), 2 * d * base.vocab);
  // Three rows at positions 4, 5, 6: 5 + 6 + 7 keys.
  CHECK_EQ(flops.Forward(4, 3, 100, 2), 3 * (2 * p + 200) + 4 * q * 18 + 2 * 2 * d * base.vocab);
  CHECK_EQ(flops.Backward(4, 3, 100, 2), 3 * (2 * p + 400) + 10 * q * 18 + 2 * 2 * d * base.vocab);
}

}  // namespace
}  // namespace hotbed::test
