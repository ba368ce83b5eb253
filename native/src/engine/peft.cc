#include "engine/peft.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "engine/fault.h"
#include "engine/file_io.h"
#include "engine/json.h"
#include "engine/safetensors.h"

namespace hotbed {
namespace {

constexpr uint64_t kMostConfigBytes = 16u << 20;

[[noreturn]] void Invalid(const std::string& path, const std::string& problem) {
  throw EngineFault(FaultCode::kInvalidFile, path + ": " + problem);
}

// "q_proj", the last part of the module's path.
std::string ShortName(Module module) {
  const std::string name = ModulePeftName(module);
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

bool TakePrefix(std::string& text, const std::string& prefix) {
  if (text.compare(0, prefix.size(), prefix) != 0) return false;
  text.erase(0, prefix.size());
  return true;
}

bool TakeSuffix(std::string& text, const std::string& suffix) {
  if (text.size() < suffix.size() ||
      text.compare(text.size() - suffix.size(), suffix.size(), suffix) != 0) {
    return false;
  }
  text.erase(text.size() - suffix.size());
  return true;
}

// A layer number without sign, leading zero or anything after it.
std::optional<int> TakeLayer(std::string& text, int layers) {
  const size_t dot = text.find('.');
  if (dot == std::string::npos || dot == 0 || dot > 6 || (dot > 1 && text[0] == '0')) {
    return std::nullopt;
  }
  int layer = 0;
  for (size_t i = 0; i < dot; ++i) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    layer = layer * 10 + (text[i] - '0');
  }
  if (layer >= layers) return std::nullopt;
  text.erase(0, dot + 1);
  return layer;
}

// What a key of adapter_model.safetensors stands for.
struct Place {
  Module module;
  int layer;
  bool is_b;
  bool operator<(const Place& other) const {
    if (layer != other.layer) return layer < other.layer;
    if (module != other.module) return module < other.module;
    return is_b < other.is_b;
  }
};

std::optional<Place> ParseKey(std::string key, int layers) {
  TakePrefix(key, "base_model.model.");
  if (!TakeSuffix(key, ".default.weight") && !TakeSuffix(key, ".weight")) return std::nullopt;
  Place place{Module::kLmHead, layers, false};
  if (TakeSuffix(key, ".lora_B")) {
    place.is_b = true;
  } else if (!TakeSuffix(key, ".lora_A")) {
    return std::nullopt;
  }
  if (key == ModulePeftName(Module::kLmHead)) return place;
  if (!TakePrefix(key, "model.layers.")) return std::nullopt;
  const auto layer = TakeLayer(key, layers);
  if (!layer) return std::nullopt;
  place.layer = *layer;
  for (int i = 0; i < kLayerModuleCount; ++i) {
    place.module = static_cast<Module>(i);
    if (key == ModulePeftName(place.module)) return place;
  }
  return std::nullopt;
}

// A value that asks for nothing.
bool IsNeutral(const Json& value) {
  switch (value.kind) {
    case Json::Kind::kNull:
      return true;
    case Json::Kind::kBool:
      return !value.boolean;
    case Json::Kind::kNumber:
      return value.AsDouble().value_or(1) == 0;
    case Json::Kind::kString:
      return value.text.empty();
    case Json::Kind::kArray:
      return value.items.empty();
    case Json::Kind::kObject:
      return value.members.empty();
  }
  return false;
}

// Members that describe where the adapter came from or how it was initialised, and decide nothing
// once it is trained.
bool IsDescriptive(const std::string& key) {
  static const char* const kKeys[] = {"auto_mapping",      "base_model_name_or_path",
                                      "corda_config",      "ensure_weight_tying",
                                      "eva_config",        "inference_mode",
                                      "loftq_config",      "lora_ga_config",
                                      "megatron_core",     "peft_version",
                                      "qalora_group_size", "revision",
                                      "runtime_config",    "layers_pattern"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

// The initialisations that leave the base as it is; others (PiSSA, OLoRA, LoftQ, ...) move part of
// it into the adapter.
bool IsPlainInitialisation(const Json& value) {
  return value.is_null() || value.kind == Json::Kind::kBool ||
         (value.is_string() &&
          (value.text == "gaussian" || value.text == "eva" || value.text == "orthogonal"));
}

struct PeftConfig {
  AdapterSpec spec;                         // without targets
  std::vector<std::string> target_modules;  // last parts; empty when given as an expression
};

void ReadTargetModules(const std::string& path, const Json& value, PeftConfig& config) {
  if (value.is_string() || value.is_null()) return;  // an expression: the keys of the file decide
  if (!value.is_array()) Invalid(path, "\"target_modules\" must be a list of names or a string");
  for (const Json& item : value.items) {
    if (!item.is_string()) Invalid(path, "\"target_modules\" must be a list of names");
    const size_t dot = item.text.rfind('.');
    config.target_modules.push_back(dot == std::string::npos ? item.text
                                                             : item.text.substr(dot + 1));
  }
}

PeftConfig ReadPeftConfig(const std::string& path, uint64_t seed) {
  const Json document = ParseJson(ReadTextFile(path, kMostConfigBytes), path);
  if (!document.is_object()) Invalid(path, "expected a JSON object");
  PeftConfig config;
  config.spec.seed = seed;
  bool has_type = false;
  bool has_rank = false;
  bool has_alpha = false;
  for (const auto& [key, value] : document.members) {
    if (key == "peft_type") {
      has_type = value.is_string() && value.text == "LORA";
      if (!has_type) Invalid(path, "\"peft_type\" must be \"LORA\"");
    } else if (key == "r") {
      const auto rank = value.AsUnsigned();
      has_rank = rank && *rank >= 1 && *rank <= 256;
      if (!has_rank) Invalid(path, "\"r\" must be an integer from 1 to 256");
      config.spec.rank = static_cast<int>(*rank);
    } else if (key == "lora_alpha") {
      const auto alpha = value.AsDouble();
      has_alpha = alpha && *alpha > 0;
      if (!has_alpha) Invalid(path, "\"lora_alpha\" must be a number above 0");
      config.spec.alpha = *alpha;
    } else if (key == "use_rslora") {
      if (value.kind != Json::Kind::kBool && !value.is_null()) {
        Invalid(path, "\"use_rslora\" must be true or false");
      }
      config.spec.rslora = value.boolean;
    } else if (key == "target_modules") {
      ReadTargetModules(path, value, config);
    } else if (key == "task_type") {
      if (!value.is_null() && value.text != "CAUSAL_LM") {
        Invalid(path, "\"task_type\" must be \"CAUSAL_LM\"");
      }
    } else if (key == "bias") {
      if (value.text != "none") Invalid(path, "\"bias\" must be \"none\"");
    } else if (key == "lora_dropout") {
      if (!IsNeutral(value)) {
        Invalid(path,
                "\"lora_dropout\" must be 0: training here uses no dropout (it does not "
                "change the stored weights, so it may be set to 0 in the file)");
      }
    } else if (key == "init_lora_weights") {
      if (!IsPlainInitialisation(value)) {
        Invalid(path, "\"init_lora_weights\" " + QuoteJson(value.text) +
                          " changes the base; convert the adapter to a plain LoRA first");
      }
    } else if (!IsDescriptive(key) && !IsNeutral(value)) {
      Invalid(path, "\"" + key + "\" is not supported; expected it absent, null, false or empty");
    }
  }
  if (!has_type) Invalid(path, "\"peft_type\" is missing");
  if (!has_rank) Invalid(path, "\"r\" is missing");
  if (!has_alpha) Invalid(path, "\"lora_alpha\" is missing");
  return config;
}

using Places = std::map<Place, const SafetensorsEntry*>;

// Copies of the base's own weights, which PEFT adds of its own accord where lm_head is a target.
bool IsBaseCopy(const std::string& key) {
  return key == "base_model.model.lm_head.base_layer.weight" ||
         key == "base_model.model.model.embed_tokens.weight";
}

Places MatchKeys(const SafetensorsFile& file, int layers) {
  Places places;
  for (const SafetensorsEntry& entry : file.entries()) {
    const auto place = ParseKey(entry.name, layers);
    if (!place && IsBaseCopy(entry.name)) {
      Invalid(file.path(), "key \"" + entry.name +
                               "\" is a copy of the base's weights, which an adapter does not "
                               "carry; save it with save_embedding_layers=False");
    }
    if (!place) {
      Invalid(file.path(), "key \"" + entry.name +
                               "\" matches no module of this base; expected names like "
                               "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
    }
    const auto [at, fresh] = places.emplace(*place, &entry);
    if (!fresh) {
      Invalid(file.path(), "keys \"" + at->second->name + "\" and \"" + entry.name +
                               "\" stand for the same tensor");
    }
  }
  return places;
}

void ReadTargets(const std::string& config_path, const Places& places, PeftConfig& config) {
  bool present[kModuleCount] = {};
  for (const auto& [place, entry] : places) present[static_cast<int>(place.module)] = true;
  for (int i = 0; i < kModuleCount; ++i) {
    if (present[i]) config.spec.targets.push_back(static_cast<Module>(i));
  }
  for (const std::string& name : config.target_modules) {
    const bool found = std::any_of(config.spec.targets.begin(), config.spec.targets.end(),
                                   [&](Module module) { return ShortName(module) == name; });
    if (!found) {
      Invalid(config_path,
              "\"target_modules\" names \"" + name + "\" but the weights hold no such tensors");
    }
  }
}

// The file has what the spec asks for, tensor by tensor: known before memory is taken for a state,
// whose size the small config alone would decide.
void CheckTensors(const SafetensorsFile& file, const Places& places, const AdapterLayout& layout) {
  for (const AdapterTensor& tensor : layout.tensors()) {
    const auto found = places.find(Place{tensor.module, tensor.layer, tensor.is_b});
    if (found == places.end()) {
      Invalid(file.path(), "tensor \"" + PeftTensorName(tensor) + "\" is missing");
    }
    const SafetensorsEntry& entry = *found->second;
    const std::vector<int64_t> expected = {tensor.rows, tensor.cols};
    if (entry.shape != expected) {
      Invalid(file.path(), "tensor \"" + entry.name + "\": shape " + ShapeText(entry.shape) +
                               ", but this base and \"r\" ask for " + ShapeText(expected));
    }
  }
}

void FillTensor(const SafetensorsFile& file, const SafetensorsEntry& entry,
                const AdapterTensor& tensor, AdapterWeights& weights) {
  float* values = weights.at(tensor);
  file.ReadF32(entry, values);
  for (size_t i = 0; i < tensor.size(); ++i) {
    if (!std::isfinite(values[i])) {
      Invalid(file.path(), "tensor \"" + entry.name + "\": element " + std::to_string(i) +
                               " is not a finite number");
    }
  }
}

}  // namespace

std::string PeftTensorName(const AdapterTensor& tensor) {
  std::string name = "base_model.model.";
  if (tensor.module != Module::kLmHead) {
    name += "model.layers." + std::to_string(tensor.layer) + ".";
  }
  return name + ModulePeftName(tensor.module) + (tensor.is_b ? ".lora_B" : ".lora_A") + ".weight";
}

std::vector<const AdapterTensor*> PeftOrder(const AdapterLayout& layout) {
  std::vector<std::pair<std::string, const AdapterTensor*>> named;
  for (const AdapterTensor& tensor : layout.tensors()) {
    named.emplace_back(PeftTensorName(tensor), &tensor);
  }
  std::sort(named.begin(), named.end());
  std::vector<const AdapterTensor*> order;
  for (const auto& [name, tensor] : named) order.push_back(tensor);
  return order;
}

std::string PeftHeader(const AdapterLayout& layout) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;
  for (const AdapterTensor* tensor : PeftOrder(layout)) {
    tensors.emplace_back(PeftTensorName(*tensor), std::vector<int64_t>{tensor->rows, tensor->cols});
  }
  return CanonicalF32Header(tensors);
}

std::string PeftConfigText(const AdapterSpec& spec) {
  std::string targets;
  for (const Module module : spec.targets) {
    targets += (targets.empty() ? "\n    " : ",\n    ") + QuoteJson(ShortName(module));
  }
  return std::string("{\n") +
         "  \"base_model_name_or_path\": null,\n"
         "  \"bias\": \"none\",\n"
         "  \"fan_in_fan_out\": false,\n"
         "  \"inference_mode\": true,\n"
         "  \"init_lora_weights\": true,\n"
         "  \"lora_alpha\": " +
         NumberToJson(spec.alpha) +
         ",\n"
         "  \"lora_dropout\": 0.0,\n"
         "  \"modules_to_save\": null,\n"
         "  \"peft_type\": \"LORA\",\n"
         "  \"r\": " +
         std::to_string(spec.rank) +
         ",\n"
         "  \"target_modules\": [" +
         targets +
         "\n  ],\n"
         "  \"task_type\": \"CAUSAL_LM\",\n"
         "  \"use_dora\": false,\n"
         "  \"use_rslora\": " +
         (spec.rslora ? "true" : "false") + "\n}\n";
}

std::unique_ptr<AdapterState> ImportPeft(const std::string& folder, const ModelConfig& config,
                                         uint64_t seed) {
  if (!FileExists(folder)) Invalid(folder, "the adapter folder does not exist");
  const std::string config_path = folder + "/adapter_config.json";
  PeftConfig peft = ReadPeftConfig(config_path, seed);
  const SafetensorsFile file(folder + "/adapter_model.safetensors");
  const Places places = MatchKeys(file, config.num_layers);
  if (places.empty()) Invalid(file.path(), "holds no tensors");
  ReadTargets(config_path, places, peft);
  try {
    ValidateSpec(peft.spec);
  } catch (const EngineFault& fault) {
    Invalid(config_path, std::string("the adapter is refused: ") + fault.what());
  }
  CheckTensors(file, places, AdapterLayout(config, peft.spec));
  auto state = ZeroAdapterState(config, peft.spec);
  for (const AdapterTensor& tensor : state->layout->tensors()) {
    const Place place{tensor.module, tensor.layer, tensor.is_b};
    FillTensor(file, *places.at(place), tensor, *state->weights);
  }
  return state;
}

}  // namespace hotbed
