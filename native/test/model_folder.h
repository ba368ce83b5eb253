// Makes model folders for tests: a tiny random model whose files may then be damaged on purpose.
#pragma once

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/safetensors.h"

namespace hotbed::test {

// A folder that vanishes with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hotbed-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::string LittleEndian64(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

struct TestTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

inline std::string SafetensorsBytes(const std::vector<TestTensor>& tensors) {
  std::string header = "{";
  std::string data;
  for (const TestTensor& tensor : tensors) {
    if (header.size() > 1) header += ",";
    header += "\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype +
              "\",\"shape\":" + ShapeText(tensor.shape) + ",\"data_offsets\":[" +
              std::to_string(data.size()) + "," +
              std::to_string(data.size() + tensor.bytes.size()) + "]}";
    data += tensor.bytes;
  }
  header += "}";
  return LittleEndian64(header.size()) + header + data;
}

// Random BF16 or F32 values of small size.
inline std::string RandomBytes(std::mt19937_64& random, const std::string& dtype, int64_t count) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(static_cast<int64_t>(random() % 2001) - 1000) / 4096.0f;
    char raw[4];
    std::memcpy(raw, &value, 4);
    bytes.append(dtype == "F32" ? raw : raw + 2, dtype == "F32" ? 4 : 2);
  }
  return bytes;
}

constexpr char kTinyConfig[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":16,"
    "\"intermediate_size\":24,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"head_dim\":6,\"vocab_size\":40,\"max_position_embeddings\":64,"
    "\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,\"tie_word_embeddings\":true,"
    "\"torch_dtype\":\"bfloat16\",\"bos_token_id\":1,\"eos_token_id\":2}";

// The tensors that kTinyConfig asks for.
inline std::vector<TestTensor> TinyTensors(uint64_t seed, const std::string& dtype = "BF16") {
  std::mt19937_64 random(seed);
  std::vector<TestTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    tensors.push_back({name, dtype, std::move(shape), RandomBytes(random, dtype, count)});
  };
  add("model.embed_tokens.weight", {40, 16});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    add(layer + "input_layernorm.weight", {16});
    add(layer + "post_attention_layernorm.weight", {16});
    add(layer + "self_attn.q_proj.weight", {24, 16});
    add(layer + "self_attn.k_proj.weight", {12, 16});
    add(layer + "self_attn.v_proj.weight", {12, 16});
    add(layer + "self_attn.o_proj.weight", {16, 24});
    add(layer + "mlp.gate_proj.weight", {24, 16});
    add(layer + "mlp.up_proj.weight", {24, 16});
    add(layer + "mlp.down_proj.weight", {16, 24});
  }
  add("model.norm.weight", {16});
  return tensors;
}

inline void WriteTinyModel(const std::string& folder, const std::vector<TestTensor>& tensors,
                           const std::string& config = kTinyConfig) {
  WriteFile(folder + "/config.json", config);
  WriteFile(folder + "/model.safetensors", SafetensorsBytes(tensors));
}

}  // namespace hotbed::test
