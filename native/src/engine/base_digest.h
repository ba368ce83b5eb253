// Names a base by content: equal digests mean equal results, however the files are sharded or
// named.
//
// baseDigest = SHA-256 of 'hotbed.base.1' || 0x00 || canonical JSON (RFC 8785) of
//   {"config": {every field below, always present},
//    "tensors": [[name, dtype, shape, SHA-256 hex of the stored bytes], ...] ascending by name,
//    "tokenizerIds": [[first, last], ...] ascending inclusive ranges, or null without
//    tokenizer.json}
// Only fields and tensors that decide results take part; a stored head that repeats a tied
// embedding does not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model_config.h"
#include "engine/sha256.h"

namespace hotbed {

struct TensorIdentity {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  Digest digest;
};

// The digest in hex. `tensors` may come in any order.
std::string BaseDigest(const ModelConfig& config, std::vector<TensorIdentity> tensors);

}  // namespace hotbed
