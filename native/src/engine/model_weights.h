// The frozen weights of a base by role, read from one or many *.safetensors files.
//
// Storage is owned (never a mapping of a file that could change under us), 64-byte aligned,
// row-major as in the file: a linear layer is [out, in]. BF16 stays BF16, F32 stays F32, F16 is
// widened to F32, all exact. A kernel that packs its own panels calls Release() on the matrix
// afterwards to give the memory back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model_config.h"

namespace hotbed {

enum class WeightType { kF32, kBf16 };

struct WeightMatrix {
  WeightType type = WeightType::kF32;
  int64_t rows = 0;  // output features (or vocabulary ids)
  int64_t cols = 0;  // input features
  std::shared_ptr<const void> data;

  bool present() const { return rows != 0; }
  const float* f32() const { return static_cast<const float*>(data.get()); }
  const uint16_t* bf16() const { return static_cast<const uint16_t*>(data.get()); }
  size_t bytes() const {
    return static_cast<size_t>(rows) * static_cast<size_t>(cols) *
           (type == WeightType::kF32 ? 4 : 2);
  }
  void Release() { data.reset(); }
};

struct LayerWeights {
  std::vector<float> input_norm;           // [hidden]
  std::vector<float> post_attention_norm;  // [hidden]
  std::vector<float> q_norm, k_norm;       // [head_dim]; empty unless qk_norm
  WeightMatrix q, k, v, o, gate, up, down;
  // Widened biases [out]; empty where the layer has none.
  std::vector<float> q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias;
};

struct ModelWeights {
  WeightMatrix embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  // [vocab, hidden]. A tied head shares the embedding's storage (same pointer), also where the
  // files repeat it.
  WeightMatrix head;

  uint64_t parameter_count = 0;  // each stored parameter once
  uint64_t bytes = 0;            // of the matrices and vectors above
};

struct LoadedModel {
  ModelConfig config;
  ModelWeights weights;
  std::string base_digest;  // SHA-256 hex, see base_digest.h
};

// Reads a whole Hugging Face folder. Throws EngineFault kInvalidFile (names file and tensor),
// kUnsupportedModel, kOutOfMemory, kIo.
LoadedModel LoadModel(const std::string& folder);

}  // namespace hotbed
