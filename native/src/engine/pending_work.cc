#include "engine/pending_work.h"

#include <algorithm>

namespace hotbed {

PendingWork WorkOf(const ModelConfig& config, const SampleRequest& request) {
  const uint64_t room = static_cast<uint64_t>(config.max_position) - request.prompt.size();
  const uint64_t drawn = std::min<uint64_t>(static_cast<uint64_t>(request.params.max_tokens), room);
  PendingWork work;
  work.sampling_calls = 1;
  work.sampling_tokens = request.prompt.size() + request.seeds.size() * drawn;
  return work;
}

PendingWork WorkOf(const std::vector<Datum>& datums) {
  const auto bytes = [](const auto& values) { return values ? values->size() * 4 : 0; };
  PendingWork work;
  for (const Datum& datum : datums) {
    work.training_rows += datum.prompt.size() - 1;
    work.training_bytes += datum.prompt.size() * 4;
    for (const Branch& branch : datum.branches) {
      work.training_rows += branch.tokens.size();
      work.training_bytes += branch.tokens.size() * 4 + bytes(branch.weights) +
                             bytes(branch.logprobs) + bytes(branch.advantages) +
                             bytes(branch.targets) + bytes(branch.gradients) + bytes(branch.mask);
    }
  }
  return work;
}

}  // namespace hotbed
