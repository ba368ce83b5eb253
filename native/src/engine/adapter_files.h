// Files of adapters: snapshots of a whole training state, and exported weights. Both are written to
// a temporary name, synced and renamed (file_io.h), so a path holds a whole file or none.
//
// A snapshot is an ordinary safetensors file without __metadata__, tensors in byte order of their
// names:
//   gradient.<name>, m.<name>, v.<name>, weight.<name>   F32, <name> as in peft.h
//   hotbed.snapshot                                      U8: canonical JSON, padded with 0x20 to a
//   multiple of 8, of
//     {"format":"hotbed.snapshot.1","opIndex":"<decimal>","spec":{spec as in state_digest.h},
//      "stateDigest":"<hex>","step":"<decimal>"}
// Equal states at equal opIndex give equal files. Reading recomputes the state digest and refuses a
// difference.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/adapter_state.h"
#include "engine/state_digest.h"

namespace hotbed {

struct AdapterFile {
  std::string path;
  std::string digest;  // SHA-256 hex of the file's bytes
  uint64_t bytes = 0;
};

// Throws EngineFault kIo.
AdapterFile WriteSnapshot(const std::string& path, const AdapterState& state,
                          const StateIdentity& identity, TensorDigests& cache);
AdapterFile ExportWeights(const std::string& path, const AdapterWeights& weights);

struct Snapshot {
  std::unique_ptr<AdapterState> state;
  uint64_t op_index = 0;
};

// Throws EngineFault kInvalidFile (malformed, incomplete, or not what its digest says),
// kBaseMismatch (made on another base or under another numerics id), kIo.
Snapshot ReadSnapshot(const std::string& path, const ModelConfig& config,
                      const std::string& base_digest, const std::string& numerics_id);

}  // namespace hotbed
