// What config.json, generation_config.json and tokenizer.json say about a base, checked and
// normalised.
//
// Families: LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM. Both spellings of transformers 4
// (torch_dtype, rope_theta, rope_scaling) and 5 (dtype, rope_parameters) are read; two spellings
// that disagree are refused. Everything else is refused by name before any weight is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hotbed {

enum class ModelFamily { kLlama, kQwen2, kQwen3 };

// `llama3` stretches the long wavelengths; `linear` divides every frequency by `factor`.
enum class RopeType { kDefault, kLinear, kLlama3 };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_max_position = 0.0;
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kLlama;
  std::string architecture;  // "LlamaForCausalLM"
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;  // divides num_heads
  int head_dim = 0;      // even; need not be hidden_size / num_heads
  int vocab_size = 0;    // rows of the embedding
  int max_position = 0;  // positions a sequence may have
  float rms_norm_eps = 1e-6f;
  RopeConfig rope;
  // What the config says; absent there = a head is expected unless the files hold none.
  std::optional<bool> declared_tied_head;
  bool tied_head = false;  // what holds after loading
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;  // gate, up and down
  bool qk_norm = false;   // RMSNorm of each q and k head before RoPE

  int bos_token_id = -1;  // -1 = none
  std::vector<int>
      eos_token_ids;       // generation_config.json's, else config.json's; ascending, no duplicates
  int tokenizer_size = 0;  // ids at or above this are never drawn; <= vocab_size
  // The ids that tokenizer.json defines as ascending, disjoint, inclusive ranges; nothing without
  // that file (then every row of the embedding may be drawn).
  std::optional<std::vector<std::pair<uint64_t, uint64_t>>> tokenizer_ids;

  int q_size() const { return num_heads * head_dim; }
  int kv_size() const { return num_kv_heads * head_dim; }
};

// Applies the model's rope scaling to one unscaled inverse frequency theta^(-2i/head_dim). Only
// IEEE arithmetic: no library function decides a bit of it.
double ScaledInverseFrequency(const RopeConfig& rope, double inv_freq);

// Reads and checks the JSON files of `folder`. Throws EngineFault: kInvalidFile (missing,
// malformed, contradictory; names file and field), kUnsupportedModel (names what is not supported).
ModelConfig ReadModelConfig(const std::string& folder);

}  // namespace hotbed
