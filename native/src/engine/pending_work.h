// What a call holds while it is pending, for admission: counted before anything is queued.
#ifndef HOTBED_ENGINE_PENDING_WORK_H_
#define HOTBED_ENGINE_PENDING_WORK_H_

#include <vector>

#include "engine/engine.h"

namespace hotbed {

// A sampling call at its most. The request must be valid.
PendingWork WorkOf(const ModelConfig& config, const SampleRequest& request);
// A training call. The datums must be valid.
PendingWork WorkOf(const std::vector<Datum>& datums);

}  // namespace hotbed

#endif  // HOTBED_ENGINE_PENDING_WORK_H_
