// Divides a budget of rows among lanes.
#ifndef HOTBED_ENGINE_FAIR_SHARE_H_
#define HOTBED_ENGINE_FAIR_SHARE_H_

#include <cstddef>
#include <vector>

namespace hotbed {

// Max-min fair: no lane gets more than it demands, and what one leaves goes to the others in equal
// parts. Rows that do not divide go to the lanes from `first` on, so that a caller who moves
// `first` serves everybody.
void FairShare(const std::vector<size_t>& demands, size_t budget, size_t first,
               std::vector<size_t>* shares);

}  // namespace hotbed

#endif  // HOTBED_ENGINE_FAIR_SHARE_H_
