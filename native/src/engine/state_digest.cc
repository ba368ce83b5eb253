#include "engine/state_digest.h"

#include "engine/json.h"
#include "engine/peft.h"

namespace hotbed {
namespace {

void HashTensors(const AdapterLayout& layout, const AlignedBuffer<float>& buffer,
                 std::vector<Digest>& digests) {
  digests.clear();
  for (const AdapterTensor& tensor : layout.tensors()) {
    digests.push_back(Sha256Of(buffer.data() + tensor.offset, tensor.size() * sizeof(float)));
  }
}

}  // namespace

std::string WeightsDigest(const AdapterWeights& weights) {
  Sha256 hash;
  hash.Update(PeftHeader(*weights.layout));
  for (const AdapterTensor* tensor : PeftOrder(*weights.layout)) {
    hash.Update(weights.at(*tensor), tensor->size() * sizeof(float));
  }
  return ToHex(hash.Finish());
}

std::string SpecJson(const AdapterSpec& spec, const std::string& base_digest,
                     const std::string& numerics_id) {
  std::string targets;
  for (const Module module : spec.targets) {
    if (!targets.empty()) targets += ",";
    targets += QuoteJson(ModuleName(module));
  }
  return "{\"alpha\":" + NumberToJson(spec.alpha) + ",\"baseDigest\":" + QuoteJson(base_digest) +
         ",\"numericsId\":" + QuoteJson(numerics_id) + ",\"rank\":" + std::to_string(spec.rank) +
         ",\"rslora\":" + (spec.rslora ? "true" : "false") + ",\"seed\":\"" +
         std::to_string(spec.seed) + "\",\"targets\":[" + targets + "]}";
}

std::string StateDigest(const AdapterState& state, const StateIdentity& identity,
                        TensorDigests& cache) {
  const AdapterLayout& layout = *state.layout;
  if (cache.weights.empty() || cache.weights_changes != state.weights_changes) {
    HashTensors(layout, state.weights->values, cache.weights);
    cache.weights_changes = state.weights_changes;
  }
  if (cache.m.empty() || cache.moments_changes != state.moments_changes) {
    HashTensors(layout, state.m, cache.m);
    HashTensors(layout, state.v, cache.v);
    cache.moments_changes = state.moments_changes;
  }
  if (cache.gradient.empty() || cache.gradient_changes != state.gradient_changes) {
    HashTensors(layout, state.gradient, cache.gradient);
    cache.gradient_changes = state.gradient_changes;
  }

  const std::string spec = SpecJson(*state.spec, identity.base_digest, identity.numerics_id);
  static constexpr char kDomain[] = "hotbed.state.1";  // the terminating zero is hashed too
  Sha256 hash;
  hash.Update(kDomain, sizeof kDomain);
  hash.UpdateU64(identity.op_index).UpdateU64(state.step);
  hash.Update(Sha256Of(spec.data(), spec.size()));
  // The layout lists A and B of a module next to each other.
  for (size_t a = 0; a < layout.tensors().size(); a += 2) {
    for (const auto* digests : {&cache.weights, &cache.m, &cache.v, &cache.gradient}) {
      hash.Update((*digests)[a]).Update((*digests)[a + 1]);
    }
  }
  return ToHex(hash.Finish());
}

}  // namespace hotbed
