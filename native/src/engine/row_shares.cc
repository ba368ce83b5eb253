#include "engine/row_shares.h"

#include <algorithm>
#include <optional>

#include "engine/fair_share.h"

namespace hotbed {

namespace {

struct Demand {
  AccountId account;
  size_t rows = 0;
  double flops = 0;  // of all of them
  size_t given = 0;
  std::vector<size_t> lanes;
};

std::vector<Demand> ByAccount(const std::vector<LaneDemand>& lanes) {
  std::vector<Demand> demands;
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (lanes[i].rows == 0) continue;
    auto at = std::find_if(demands.begin(), demands.end(),
                           [&](const Demand& d) { return d.account == lanes[i].account; });
    if (at == demands.end()) at = demands.insert(at, Demand{lanes[i].account, 0, 0, 0, {}});
    at->rows += lanes[i].rows;
    at->flops += static_cast<double>(lanes[i].rows) * lanes[i].row_flops;
    at->lanes.push_back(i);
  }
  return demands;
}

}  // namespace

void DealRows(const std::vector<LaneDemand>& lanes, size_t budget, size_t first,
              TenantShares* tenants, std::vector<double>* dealt, std::vector<size_t>* shares) {
  shares->assign(lanes.size(), 0);
  std::vector<Demand> demands = ByAccount(lanes);
  std::vector<AccountId> accounts;
  for (const Demand& demand : demands) accounts.push_back(demand.account);
  const auto demand_of = [&](AccountId account) -> Demand& {
    return *std::find_if(demands.begin(), demands.end(),
                         [&](const Demand& d) { return d.account == account; });
  };
  // Nobody to compete with: all at once.
  const size_t place = demands.size() == 1 ? budget : 1;
  tenants->Deal(accounts, [&](AccountId account) -> std::optional<double> {
    Demand& demand = demand_of(account);
    const size_t rows = std::min({place, demand.rows - demand.given, budget});
    if (rows == 0) return std::nullopt;
    demand.given += rows;
    budget -= rows;
    const double flops =
        demand.flops / static_cast<double>(demand.rows) * static_cast<double>(rows);
    (*dealt)[account] += flops;
    return flops;
  });

  std::vector<size_t> wanted, given;
  for (const Demand& demand : demands) {
    wanted.clear();
    for (size_t lane : demand.lanes) wanted.push_back(lanes[lane].rows);
    FairShare(wanted, demand.given, first % wanted.size(), &given);
    for (size_t i = 0; i < given.size(); ++i) (*shares)[demand.lanes[i]] = given[i];
  }
}

}  // namespace hotbed
