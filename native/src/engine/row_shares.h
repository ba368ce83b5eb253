// Divides the rows of a step among lanes: tenants by weighted fair queueing, the lanes of one
// tenant in equal parts.
#ifndef HOTBED_ENGINE_ROW_SHARES_H_
#define HOTBED_ENGINE_ROW_SHARES_H_

#include <cstddef>
#include <vector>

#include "engine/tenant_shares.h"

namespace hotbed {

// Rows that one policy's sequences could run in a step.
struct LaneDemand {
  AccountId account = 0;
  size_t rows = 0;
  double row_flops = 0;
};

// shares[i] = rows for lanes[i], together at most `budget`; dealt[account] += the FLOPs that
// `tenants` was charged for it (dealt is as long as the largest account needs). Rows that do not
// divide inside a tenant go to its lanes from `first` on.
void DealRows(const std::vector<LaneDemand>& lanes, size_t budget, size_t first,
              TenantShares* tenants, std::vector<double>* dealt, std::vector<size_t>* shares);

}  // namespace hotbed

#endif  // HOTBED_ENGINE_ROW_SHARES_H_
