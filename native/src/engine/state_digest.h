// The two digests of an adapter, both of exact bytes and free of ids and names.
//
// weightsDigest = SHA-256 of the canonical PEFT safetensors of A and B (see peft.h): the file that
// ExportWeights writes. stateDigest = SHA-256 of 'hotbed.state.1' || 0x00 || u64 opIndex || u64
// step
//   || SHA-256(canonical JSON of {alpha, baseDigest, numericsId, rank, rslora, seed, targets})
//   || SHA-256 of each tensor's fp32 little-endian bytes, modules in N8's order, per module A, B,
//   mA, mB, vA, vB, gA, gB.
// Integers are big-endian; `seed` is a decimal string, `targets` are "q".."lm_head" in the order of
// the module ids.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/adapter_state.h"
#include "engine/sha256.h"

namespace hotbed {

// In hex.
std::string WeightsDigest(const AdapterWeights& weights);

// Digests of every tensor of one state, and the change counts that they belong to.
struct TensorDigests {
  std::vector<Digest> weights, m, v, gradient;  // [layout tensors]; empty = not computed yet
  uint64_t weights_changes = 0;
  uint64_t moments_changes = 0;
  uint64_t gradient_changes = 0;
};

// What a state digest covers besides the tensors.
struct StateIdentity {
  std::string base_digest;
  std::string numerics_id;
  uint64_t op_index = 0;
};

// In hex. Rehashes the buffers whose change count differs from `cache`'s, and updates it.
std::string StateDigest(const AdapterState& state, const StateIdentity& identity,
                        TensorDigests& cache);

// The canonical JSON above, also the identity part of a snapshot.
std::string SpecJson(const AdapterSpec& spec, const std::string& base_digest,
                     const std::string& numerics_id);

}  // namespace hotbed
