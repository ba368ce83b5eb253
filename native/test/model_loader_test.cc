// Loading model folders: both spellings of config.json, one and many files, and every way a folder
// can be wrong.
#include <algorithm>
#include <random>

#include "engine/model_config.h"
#include "engine/model_weights.h"
#include "fault_check.h"
#include "harness.h"
#include "model_folder.h"
#include "util/check.h"

using namespace hotbed;
using namespace hotbed::test;

namespace {

// kTinyConfig with one piece replaced.
std::string Config(const std::string& from, const std::string& to) {
  std::string config = kTinyConfig;
  const size_t at = config.find(from);
  CHECK_MESSAGE(at != std::string::npos, from);
  return config.replace(at, from.size(), to);
}

LoadedModel LoadWith(const std::string& config, const std::vector<TestTensor>& tensors) {
  const TemporaryFolder folder;
  WriteTinyModel(folder.path(), tensors, config);
  return LoadModel(folder.path());
}

ModelConfig ReadWith(const std::string& config) {
  const TemporaryFolder folder;
  WriteFile(folder.path() + "/config.json", config);
  return ReadModelConfig(folder.path());
}

void RefuseConfig(const std::string& from, const std::string& to, FaultCode code,
                  const char* words) {
  CHECK_FAULT(ReadWith(Config(from, to)), code, words);
}

void RefuseTensors(const std::vector<TestTensor>& tensors, const char* words) {
  CHECK_FAULT(LoadWith(kTinyConfig, tensors), FaultCode::kInvalidFile, words);
}

TestTensor& Named(std::vector<TestTensor>& tensors, const std::string& name) {
  return *std::find_if(tensors.begin(), tensors.end(),
                       [&](const TestTensor& tensor) { return tensor.name == name; });
}

constexpr char kRopeTheta[] = "\"rope_theta\":10000.0";

}  // namespace

TEST(config_reads_both_spellings_alike) {
  const ModelConfig old_style = ReadWith(Config(
      kRopeTheta,
      "\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32.0,"
      "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":"
      "8192}"));
  const ModelConfig new_style = ReadWith(
      Config(kRopeTheta,
             "\"dtype\":\"bfloat16\",\"rope_parameters\":{\"rope_theta\":500000.0,\"rope_type\":"
             "\"llama3\",\"factor\":32.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
             "\"original_max_position_embeddings\":8192}"));
  for (const ModelConfig& config : {old_style, new_style}) {
    CHECK_EQ(config.rope.theta, 500000.0);
    CHECK(config.rope.type == RopeType::kLlama3);
    CHECK_EQ(config.rope.factor, 32.0);
    CHECK_EQ(config.rope.original_max_position, 8192.0);
  }
  CHECK_EQ(old_style.head_dim, 6);
  CHECK_EQ(old_style.q_size(), 24);
  CHECK_EQ(old_style.kv_size(), 12);
}

TEST(config_refuses_contradictions) {
  RefuseConfig("\"torch_dtype\":\"bfloat16\"", "\"torch_dtype\":\"bfloat16\",\"dtype\":\"float32\"",
               FaultCode::kInvalidFile, "\"torch_dtype\" says bfloat16 but \"dtype\" says float32");
  RefuseConfig(kRopeTheta, "\"rope_theta\":1e4,\"rope_parameters\":{\"rope_theta\":2e4}",
               FaultCode::kInvalidFile, "\"rope_theta\" is given twice");
  RefuseConfig(kRopeTheta,
               "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"rope_parameters\":{"
               "\"rope_type\":\"default\"}",
               FaultCode::kInvalidFile, "contradict");
  RefuseConfig("\"model_type\":\"llama\"", "\"model_type\":\"qwen3\"", FaultCode::kInvalidFile,
               "\"model_type\" says qwen3");
}

TEST(config_refuses_other_architectures_and_features_by_name) {
  const auto unsupported = FaultCode::kUnsupportedModel;
  RefuseConfig("LlamaForCausalLM", "MistralForCausalLM", unsupported, "MistralForCausalLM");
  RefuseConfig("\"rope_theta\":10000.0", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}",
               unsupported, "yarn");
  for (const char* const type : {"dynamic", "longrope", "proportional", "mrope", "su"}) {
    const std::string scaling = "{\"rope_type\":\"" + std::string(type) + "\",\"factor\":4}";
    RefuseConfig(kRopeTheta, "\"rope_scaling\":" + scaling, unsupported, type);
    RefuseConfig(kRopeTheta, "\"rope_parameters\":" + scaling, unsupported, type);
  }
  RefuseConfig(kRopeTheta, "\"rope_parameters\":{\"partial_rotary_factor\":0.5}", unsupported,
               "partial_rotary_factor");
  RefuseConfig("\"bos_token_id\":1", "\"partial_rotary_factor\":0.5", unsupported,
               "partial_rotary_factor");
  RefuseConfig("\"bos_token_id\":1", "\"num_local_experts\":8", unsupported, "experts");
  for (const char* const other : {"Qwen3MoeForCausalLM", "Qwen2MoeForCausalLM", "Gemma3ForCausalLM",
                                  "Phi3ForCausalLM", "LlamaForSequenceClassification"}) {
    RefuseConfig("LlamaForCausalLM", other, unsupported, other);
  }
  RefuseConfig("\"torch_dtype\":\"bfloat16\"", "\"torch_dtype\":\"float8_e4m3fn\"", unsupported,
               "float8_e4m3fn");
  RefuseConfig("\"rope_theta\":10000.0",
               "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4,\"x\":1}", unsupported,
               "rope_scaling.x");
  RefuseConfig("\"bos_token_id\":1", "\"hidden_act\":\"gelu\"", unsupported, "gelu");
  RefuseConfig("\"bos_token_id\":1", "\"quantization_config\":{\"bits\":4}", unsupported,
               "quantization_config");
  RefuseConfig("\"bos_token_id\":1", "\"use_sliding_window\":true", unsupported, "sliding-window");
  RefuseConfig("\"bos_token_id\":1", "\"layer_types\":[\"sliding_attention\"]", unsupported,
               "sliding_attention");
}

TEST(config_names_the_field_that_is_wrong) {
  const auto invalid = FaultCode::kInvalidFile;
  RefuseConfig("\"hidden_size\":16,", "", invalid, "\"hidden_size\" is missing");
  RefuseConfig("\"hidden_size\":16", "\"hidden_size\":0", invalid, "\"hidden_size\" must be");
  RefuseConfig("\"hidden_size\":16", "\"hidden_size\":1e3", invalid, "\"hidden_size\" must be");
  RefuseConfig("\"num_hidden_layers\":2", "\"num_hidden_layers\":99999999999999999999", invalid,
               "\"num_hidden_layers\" must be");
  RefuseConfig("\"num_key_value_heads\":2", "\"num_key_value_heads\":3", invalid,
               "does not divide");
  RefuseConfig("\"head_dim\":6", "\"head_dim\":7", invalid, "\"head_dim\" must be even");
  RefuseConfig("\"rms_norm_eps\":1e-05", "\"rms_norm_eps\":0", invalid, "\"rms_norm_eps\"");
  RefuseConfig("\"eos_token_id\":2", "\"eos_token_id\":[2,40]", invalid, "\"eos_token_id\"");
  RefuseConfig("\"tie_word_embeddings\":true", "\"tie_word_embeddings\":1", invalid,
               "\"tie_word_embeddings\"");
  RefuseConfig("\"max_position_embeddings\":64", "\"max_position_embeddings\":1048577", invalid,
               "\"max_position_embeddings\" must be an integer from 1 to 1048576");
  RefuseConfig(kRopeTheta, "\"rope_theta\":0.5", invalid, "\"rope_theta\" must be from 1");
  RefuseConfig(kRopeTheta, "\"rope_theta\":1e300", invalid, "\"rope_theta\" must be from 1");
  RefuseConfig(kRopeTheta, "\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}", invalid,
               "\"rope_scaling.factor\" must be from 1");
  RefuseConfig("LlamaForCausalLM", std::string(100000, 'x'), FaultCode::kUnsupportedModel,
               "supported are LlamaForCausalLM");
  CHECK_FAULT(ReadWith("[]"), invalid, "expected a JSON object");
  CHECK_FAULT(ReadModelConfig("/nowhere"), invalid, "does not exist");
  const TemporaryFolder empty;
  CHECK_FAULT(ReadModelConfig(empty.path()), invalid, "config.json: missing");
}

TEST(config_takes_eos_lists_from_generation_config) {
  const TemporaryFolder folder;
  WriteFile(folder.path() + "/config.json", kTinyConfig);
  WriteFile(folder.path() + "/generation_config.json", "{\"eos_token_id\":[5,3,5]}");
  const ModelConfig config = ReadModelConfig(folder.path());
  CHECK(config.eos_token_ids == (std::vector<int>{3, 5}));
  CHECK_EQ(config.bos_token_id, 1);
}

TEST(config_counts_the_ids_that_the_tokenizer_defines) {
  const auto size_with = [](const std::string& tokenizer) {
    const TemporaryFolder folder;
    WriteFile(folder.path() + "/config.json", kTinyConfig);
    WriteFile(folder.path() + "/tokenizer.json", tokenizer);
    return ReadModelConfig(folder.path()).tokenizer_size;
  };
  CHECK_EQ(ReadWith(kTinyConfig).tokenizer_size, 40);
  CHECK_EQ(size_with("{\"model\":{\"vocab\":{\"a\":0,\"b\":1}},\"added_tokens\":[{\"id\":2}]}"), 3);
  CHECK_EQ(size_with("{\"model\":{\"vocab\":[[\"a\",0.0],[\"b\",-1.5]]}}"), 2);
  CHECK_EQ(size_with("{\"model\":{\"vocab\":{\"a\":99}}}"), 40);
  CHECK_FAULT(size_with("{\"model\":{\"vocab\":{\"a\":-1}}}"), FaultCode::kInvalidFile, "token id");
  CHECK_FAULT(size_with("{\"model\":{}}"), FaultCode::kInvalidFile, "model.vocab");
}

TEST(rope_scaling_touches_only_the_long_wavelengths) {
  const RopeConfig rope{RopeType::kLlama3, 500000.0, 32.0, 1.0, 4.0, 8192.0};
  CHECK_EQ(ScaledInverseFrequency(rope, 1.0), 1.0);
  CHECK_EQ(ScaledInverseFrequency(rope, 1e-4), 1e-4 / 32.0);
  const double middle = ScaledInverseFrequency(rope, 0.0015);
  CHECK(middle < 0.0015 && middle > 0.0015 / 32.0);
}

TEST(weights_load_from_one_file_and_from_shards_alike) {
  const auto tensors = TinyTensors(1);
  const LoadedModel whole = LoadWith(kTinyConfig, tensors);
  CHECK_EQ(whole.weights.layers.size(), size_t{2});
  CHECK(whole.config.tied_head);
  CHECK(whole.weights.head.data == whole.weights.embedding.data);
  CHECK(whole.weights.embedding.type == WeightType::kBf16);

  const TemporaryFolder folder;
  WriteFile(folder.path() + "/config.json", kTinyConfig);
  std::vector<TestTensor> first(tensors.begin(), tensors.begin() + 7);
  std::vector<TestTensor> second(tensors.begin() + 7, tensors.end());
  WriteFile(folder.path() + "/a.safetensors", SafetensorsBytes(first));
  WriteFile(folder.path() + "/b.safetensors", SafetensorsBytes(second));
  std::string map;
  for (const auto& [list, name] : {std::pair(first, "a"), std::pair(second, "b")}) {
    for (const TestTensor& tensor : list) {
      map += (map.empty() ? "\"" : ",\"") + tensor.name + "\":\"" + name + ".safetensors\"";
    }
  }
  const std::string index = folder.path() + "/model.safetensors.index.json";
  WriteFile(index, "{\"metadata\":{},\"weight_map\":{" + map + "}}");
  CHECK_EQ(LoadModel(folder.path()).base_digest, whole.base_digest);

  const auto refuse = [&](const std::string& from, const std::string& to, const char* words) {
    std::string changed = map;
    changed.replace(changed.find(from), from.size(), to);
    WriteFile(index, "{\"weight_map\":{" + changed + "}}");
    CHECK_FAULT(LoadModel(folder.path()), FaultCode::kInvalidFile, words);
  };
  refuse("a.safetensors", "b.safetensors", "is not in b.safetensors");
  refuse("a.safetensors", "../a.safetensors", "not a plain file name");
  refuse("a.safetensors", "c.safetensors", "c.safetensors: cannot open");
  refuse("a.safetensors", std::string(300, 'x'), "cannot open: File name too long");
  refuse("\"model.norm.weight\":\"b.safetensors\"", "\"x\":\"b.safetensors\"", "\"x\" is not in");
}

TEST(a_tied_head_may_be_absent_repeated_or_different) {
  const auto tied = TinyTensors(1);
  auto repeated = tied;
  repeated.push_back({"lm_head.weight", "BF16", {40, 16}, tied[0].bytes});
  auto different = repeated;
  different.back().bytes[1] ^= 1;
  const std::string untied =
      Config("\"tie_word_embeddings\":true", "\"tie_word_embeddings\":false");
  const std::string silent = Config("\"tie_word_embeddings\":true,", "");

  const LoadedModel base = LoadWith(kTinyConfig, tied);
  CHECK(base.config.tied_head);
  CHECK_EQ(LoadWith(kTinyConfig, repeated).base_digest, base.base_digest);
  CHECK_EQ(LoadWith(silent, tied).base_digest, base.base_digest);

  const LoadedModel own_head = LoadWith(untied, different);
  CHECK(!own_head.config.tied_head);
  CHECK(own_head.weights.head.data != own_head.weights.embedding.data);
  CHECK_EQ(LoadWith(kTinyConfig, different).base_digest, own_head.base_digest);
  CHECK_EQ(LoadWith(silent, different).base_digest, own_head.base_digest);
  CHECK_FAULT(LoadWith(untied, tied), FaultCode::kInvalidFile, "\"lm_head.weight\" is missing");
}

TEST(weights_refuse_wrong_tensors_by_name) {
  auto tensors = TinyTensors(1);
  tensors.pop_back();
  RefuseTensors(tensors, "\"model.norm.weight\" is missing");

  tensors = TinyTensors(1);
  tensors.push_back({"model.layers.0.self_attn.q_proj.bias", "BF16", {24}, std::string(48, '\0')});
  RefuseTensors(tensors, "\"model.layers.0.self_attn.q_proj.bias\": this architecture has no such");

  tensors = TinyTensors(1);
  Named(tensors, "model.layers.1.mlp.up_proj.weight").shape = {16, 24};
  RefuseTensors(tensors, "\"model.layers.1.mlp.up_proj.weight\": shape [16,24], but");

  tensors = TinyTensors(1);
  Named(tensors, "model.norm.weight") = {"model.norm.weight", "I32", {16}, std::string(64, '\0')};
  RefuseTensors(tensors, "\"model.norm.weight\": dtype I32");

  tensors = TinyTensors(1);
  Named(tensors, "model.layers.0.mlp.down_proj.weight").bytes.replace(10, 2, "\x80\x7f");
  RefuseTensors(tensors, "\"model.layers.0.mlp.down_proj.weight\": element 5 is not a finite");

  tensors = TinyTensors(1);
  tensors.push_back(
      {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {3}, std::string(12, '\0')});
  CHECK_EQ(LoadWith(kTinyConfig, tensors).base_digest,
           LoadWith(kTinyConfig, TinyTensors(1)).base_digest);

  const TemporaryFolder folder;
  WriteFile(folder.path() + "/config.json", kTinyConfig);
  WriteFile(folder.path() + "/pytorch_model.bin", "x");
  CHECK_FAULT(LoadModel(folder.path()), FaultCode::kInvalidFile, "safetensors files only");
}

TEST(base_digest_follows_content_only) {
  const std::string digest = LoadWith(kTinyConfig, TinyTensors(1)).base_digest;
  auto reordered = TinyTensors(1);
  std::reverse(reordered.begin(), reordered.end());
  CHECK_EQ(LoadWith(kTinyConfig, reordered).base_digest, digest);
  const auto differs = [&](const std::string& config, const std::vector<TestTensor>& tensors) {
    CHECK(LoadWith(config, tensors).base_digest != digest);
  };
  differs(kTinyConfig, TinyTensors(2));
  differs(kTinyConfig, TinyTensors(1, "F32"));
  differs(Config("1e-05", "1e-06"), TinyTensors(1));
  differs(Config("10000.0", "20000.0"), TinyTensors(1));
  differs(Config("\"max_position_embeddings\":64", "\"max_position_embeddings\":65"),
          TinyTensors(1));
}

// Whatever the bytes are, loading ends with a model or with a fault that names the file: never a
// crash, never another exception. Deterministic; longer runs belong to a fuzzer.
TEST(damaged_model_files_never_crash) {
  const TemporaryFolder folder;
  const std::string weights = SafetensorsBytes(TinyTensors(1));
  const std::string config = kTinyConfig;
  WriteTinyModel(folder.path(), TinyTensors(1));
  std::mt19937_64 random(20261130);
  const auto mutate = [&](std::string bytes, size_t within) {
    const size_t edits = 1 + random() % 4;
    for (size_t i = 0; i < edits && !bytes.empty(); ++i) {
      const size_t at = random() % std::min(within, bytes.size());
      switch (random() % 5) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, 1 + random() % 8);
          break;
        case 2:
          bytes.insert(at, 1, "0123456789{}[],:\"-e"[random() % 19]);
          break;
        case 3:
          bytes.resize(at);
          break;
        default:
          bytes.replace(at, 1, bytes.substr(random() % bytes.size(), random() % 16));
      }
    }
    return bytes;
  };
  const size_t header = weights.find("}}") + 2;
  size_t refused = 0;
  for (int round = 0; round < 2000; ++round) {
    const bool damage_config = round % 3 == 0;
    const std::string path =
        folder.path() + (damage_config ? "/config.json" : "/model.safetensors");
    WriteFile(path, damage_config ? mutate(config, config.size()) : mutate(weights, header));
    try {
      LoadModel(folder.path());
    } catch (const EngineFault& fault) {
      ++refused;
      CHECK_MESSAGE(std::string(fault.what()).find(folder.path()) != std::string::npos,
                    fault.what());
    }
    WriteFile(path, damage_config ? config : weights);
  }
  CHECK(refused > 1500);
}
