#include "engine/base_digest.h"

#include <algorithm>

#include "engine/json.h"
#include "engine/safetensors.h"

namespace hotbed {
namespace {

const char* RopeTypeName(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kLlama3:
      return "llama3";
  }
  return "default";
}

std::string Bool(bool value) { return value ? "true" : "false"; }

// Keys in byte order, as RFC 8785 asks.
std::string ConfigJson(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  return "{\"architecture\":" + QuoteJson(config.architecture) +
         ",\"contextLength\":" + std::to_string(config.max_position) +
         ",\"headDim\":" + std::to_string(config.head_dim) +
         ",\"hiddenSize\":" + std::to_string(config.hidden_size) +
         ",\"intermediateSize\":" + std::to_string(config.intermediate_size) +
         ",\"keyValueHeads\":" + std::to_string(config.num_kv_heads) +
         ",\"layers\":" + std::to_string(config.num_layers) +
         ",\"mlpBias\":" + Bool(config.mlp_bias) + ",\"oBias\":" + Bool(config.o_bias) +
         ",\"qkNorm\":" + Bool(config.qk_norm) + ",\"qkvBias\":" + Bool(config.qkv_bias) +
         ",\"queryHeads\":" + std::to_string(config.num_heads) +
         ",\"rmsNormEps\":" + NumberToJson(static_cast<double>(config.rms_norm_eps)) +
         ",\"rope\":{\"factor\":" + NumberToJson(rope.factor) +
         ",\"highFreqFactor\":" + NumberToJson(rope.high_freq_factor) +
         ",\"lowFreqFactor\":" + NumberToJson(rope.low_freq_factor) +
         ",\"originalContextLength\":" + NumberToJson(rope.original_max_position) +
         ",\"theta\":" + NumberToJson(rope.theta) +
         ",\"type\":" + QuoteJson(RopeTypeName(rope.type)) +
         "},\"tiedHead\":" + Bool(config.tied_head) +
         ",\"vocabularySize\":" + std::to_string(config.vocab_size) + "}";
}

std::string TokenizerJson(const ModelConfig& config) {
  if (!config.tokenizer_ids) return "null";
  std::string json = "[";
  for (const auto& [first, last] : *config.tokenizer_ids) {
    if (json.size() > 1) json += ",";
    json += "[" + std::to_string(first) + "," + std::to_string(last) + "]";
  }
  return json + "]";
}

}  // namespace

std::string BaseDigest(const ModelConfig& config, std::vector<TensorIdentity> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  std::string json = "{\"config\":" + ConfigJson(config) + ",\"tensors\":[";
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i > 0) json += ",";
    json += "[" + QuoteJson(tensors[i].name) + "," + QuoteJson(tensors[i].dtype) + "," +
            ShapeText(tensors[i].shape) + ",\"" + ToHex(tensors[i].digest) + "\"]";
  }
  json += "],\"tokenizerIds\":" + TokenizerJson(config) + "}";
  static constexpr char kDomain[] = "hotbed.base.1";  // the terminating zero is hashed too
  return ToHex(Sha256().Update(kDomain, sizeof kDomain).Update(json).Finish());
}

}  // namespace hotbed
