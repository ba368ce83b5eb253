#include "engine/model_config.h"

#include <algorithm>
#include <cmath>

#include "engine/fault.h"
#include "engine/file_io.h"
#include "engine/json.h"

namespace hotbed {
namespace {

constexpr uint64_t kMostConfigBytes = 16u << 20;
constexpr uint64_t kMostTokenizerBytes = 512u << 20;

// Bounds that keep every later size computation far from overflow.
constexpr uint64_t kMostFeatures = 1u << 20;
constexpr uint64_t kMostLayers = 1u << 12;
constexpr uint64_t kMostVocabulary = 1u << 24;
// Rotary angles are reduced exactly below 2^20 (kernels/rope.cc), and no frequency exceeds 1.
constexpr uint64_t kMostPositions = 1u << 20;

[[noreturn]] void Invalid(const std::string& path, const std::string& problem) {
  throw EngineFault(FaultCode::kInvalidFile, path + ": " + problem);
}
[[noreturn]] void Unsupported(const std::string& path, const std::string& problem) {
  throw EngineFault(FaultCode::kUnsupportedModel, path + ": " + problem);
}

// Typed access to the members of one object; null counts as absent, as transformers treats it.
class Fields {
 public:
  Fields(const std::string& path, const Json& object, std::string prefix = "")
      : path_(path), object_(object), prefix_(std::move(prefix)) {}

  const std::string& path() const { return path_; }
  const Json& object() const { return object_; }
  std::string Name(const std::string& key) const { return "\"" + prefix_ + key + "\""; }

  const Json* Find(const std::string& key) const {
    const Json* value = object_.Find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  std::optional<int> Integer(const std::string& key, uint64_t least, uint64_t most) const {
    const Json* value = Find(key);
    if (value == nullptr) return std::nullopt;
    const auto number = value->AsUnsigned();
    if (!number || *number < least || *number > most) {
      Invalid(path_, Name(key) + " must be an integer from " + std::to_string(least) + " to " +
                         std::to_string(most));
    }
    return static_cast<int>(*number);
  }

  int RequiredInteger(const std::string& key, uint64_t least, uint64_t most) const {
    const auto value = Integer(key, least, most);
    if (!value) Invalid(path_, Name(key) + " is missing");
    return *value;
  }

  std::optional<double> Number(const std::string& key) const {
    const Json* value = Find(key);
    if (value == nullptr) return std::nullopt;
    const auto number = value->AsDouble();
    if (!number) Invalid(path_, Name(key) + " must be a finite number");
    return number;
  }

  std::optional<bool> Boolean(const std::string& key) const {
    const Json* value = Find(key);
    if (value == nullptr) return std::nullopt;
    if (value->kind != Json::Kind::kBool) Invalid(path_, Name(key) + " must be true or false");
    return value->boolean;
  }

  std::optional<std::string> Text(const std::string& key) const {
    const Json* value = Find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) Invalid(path_, Name(key) + " must be a string");
    return value->text;
  }

 private:
  const std::string& path_;
  const Json& object_;
  std::string prefix_;
};

Json ReadObject(const std::string& path, uint64_t most_bytes) {
  Json value = ParseJson(ReadTextFile(path, most_bytes), path);
  if (!value.is_object()) Invalid(path, "expected a JSON object");
  return value;
}

struct FamilyName {
  ModelFamily family;
  const char* architecture;
  const char* model_type;
};
constexpr FamilyName kFamilies[] = {
    {ModelFamily::kLlama, "LlamaForCausalLM", "llama"},
    {ModelFamily::kQwen2, "Qwen2ForCausalLM", "qwen2"},
    {ModelFamily::kQwen3, "Qwen3ForCausalLM", "qwen3"},
};
constexpr char kSupported[] =
    "supported are LlamaForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM";

void ReadFamily(const Fields& fields, ModelConfig& config) {
  const auto model_type = fields.Text("model_type");
  const Json* architectures = fields.Find("architectures");
  std::string named;
  if (architectures != nullptr) {
    if (!architectures->is_array() || architectures->items.size() != 1 ||
        !architectures->items[0].is_string()) {
      Invalid(fields.path(), "\"architectures\" must be a list of one name");
    }
    named = architectures->items[0].text;
  } else if (!model_type) {
    Invalid(fields.path(), "\"architectures\" is missing");
  }
  for (const FamilyName& candidate : kFamilies) {
    if (!named.empty() ? named != candidate.architecture : *model_type != candidate.model_type) {
      continue;
    }
    if (model_type && *model_type != candidate.model_type) {
      Invalid(fields.path(),
              "\"architectures\" says " + named + " but \"model_type\" says " + *model_type);
    }
    config.family = candidate.family;
    config.architecture = candidate.architecture;
    return;
  }
  Unsupported(fields.path(), "architecture " + (named.empty() ? *model_type : named) +
                                 " is not supported; " + kSupported);
}

void RefuseUnsupportedFeatures(const Fields& fields) {
  const std::string& path = fields.path();
  const auto activation = fields.Text("hidden_act");
  if (activation && *activation != "silu" && *activation != "swish") {
    Unsupported(path, "\"hidden_act\" " + *activation + " is not supported; expected silu");
  }
  if (fields.Find("quantization_config") != nullptr) {
    Unsupported(path, "\"quantization_config\": quantised weights are not supported");
  }
  if (fields.Boolean("use_sliding_window").value_or(false)) {
    Unsupported(path, "\"use_sliding_window\": sliding-window attention is not supported");
  }
  if (fields.Number("partial_rotary_factor").value_or(1.0) != 1.0) {
    Unsupported(path, "\"partial_rotary_factor\" other than 1 is not supported");
  }
  for (const char* const experts : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (fields.Number(experts).value_or(0.0) > 0) {
      Unsupported(path, fields.Name(experts) + ": mixtures of experts are not supported");
    }
  }
  if (const Json* types = fields.Find("layer_types")) {
    if (!types->is_array()) Invalid(path, "\"layer_types\" must be a list");
    for (const Json& type : types->items) {
      if (!type.is_string()) Invalid(path, "\"layer_types\" must be a list of names");
      if (type.text != "full_attention") {
        Unsupported(path,
                    "\"layer_types\": " + type.text + " is not supported; expected full_attention");
      }
    }
  }
  const auto old_dtype = fields.Text("torch_dtype");
  const auto new_dtype = fields.Text("dtype");
  if (old_dtype && new_dtype && *old_dtype != *new_dtype) {
    Invalid(path, "\"torch_dtype\" says " + *old_dtype + " but \"dtype\" says " + *new_dtype);
  }
  const std::string dtype = new_dtype ? *new_dtype : old_dtype.value_or("float32");
  if (dtype != "float32" && dtype != "bfloat16" && dtype != "float16" && dtype != "auto") {
    Unsupported(path, "\"" + std::string(new_dtype ? "dtype" : "torch_dtype") + "\" " + dtype +
                          " is not supported; expected float32, bfloat16 or float16");
  }
}

// One description of RoPE, whichever spelling it came from.
struct RopeReading {
  std::optional<double> theta;
  RopeConfig rope;
};

double PositiveNumber(const Fields& fields, const std::string& key) {
  const auto value = fields.Number(key);
  if (!value) Invalid(fields.path(), fields.Name(key) + " is missing");
  if (!(*value > 0)) Invalid(fields.path(), fields.Name(key) + " must be above 0");
  return *value;
}

// A rotary base or a scaling factor: below 1 a frequency would exceed 1, near the ends of double
// the tables would hold none.
double AtLeastOne(const Fields& fields, const std::string& key) {
  const double value = PositiveNumber(fields, key);
  if (value < 1 || value > 1e30)
    Invalid(fields.path(), fields.Name(key) + " must be from 1 to 1e30");
  return value;
}

RopeReading ReadRopeObject(const Fields& fields) {
  const std::string& path = fields.path();
  const auto old_name = fields.Text("type");
  const auto new_name = fields.Text("rope_type");
  if (old_name && new_name && *old_name != *new_name) {
    Invalid(path, fields.Name("type") + " says " + *old_name + " but " + fields.Name("rope_type") +
                      " says " + *new_name);
  }
  const std::string type = new_name ? *new_name : old_name.value_or("default");
  RopeReading reading;
  std::vector<std::string> known = {"type", "rope_type", "rope_theta", "partial_rotary_factor"};
  if (fields.Find("rope_theta") != nullptr) reading.theta = AtLeastOne(fields, "rope_theta");
  if (fields.Number("partial_rotary_factor").value_or(1.0) != 1.0) {
    Unsupported(path, fields.Name("partial_rotary_factor") + " other than 1 is not supported");
  }
  if (type == "linear") {
    reading.rope.type = RopeType::kLinear;
    reading.rope.factor = AtLeastOne(fields, "factor");
    known.insert(known.end(), {"factor"});
  } else if (type == "llama3") {
    RopeConfig& rope = reading.rope;
    rope.type = RopeType::kLlama3;
    rope.factor = AtLeastOne(fields, "factor");
    rope.low_freq_factor = PositiveNumber(fields, "low_freq_factor");
    rope.high_freq_factor = PositiveNumber(fields, "high_freq_factor");
    rope.original_max_position = PositiveNumber(fields, "original_max_position_embeddings");
    if (!(rope.high_freq_factor > rope.low_freq_factor)) {
      Invalid(path,
              fields.Name("high_freq_factor") + " must be above " + fields.Name("low_freq_factor"));
    }
    known.insert(known.end(), {"factor", "low_freq_factor", "high_freq_factor",
                               "original_max_position_embeddings"});
  } else if (type != "default") {
    Unsupported(path, fields.Name("rope_type") + " " + type +
                          " is not supported; expected default, linear or llama3");
  }
  // An unknown member would change positions silently.
  for (const auto& [key, value] : fields.object().members) {
    if (!value.is_null() && std::find(known.begin(), known.end(), key) == known.end()) {
      Unsupported(path, fields.Name(key) + " is not supported with rope type " + type);
    }
  }
  return reading;
}

bool SameScaling(const RopeConfig& a, const RopeConfig& b) {
  return a.type == b.type && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor &&
         a.high_freq_factor == b.high_freq_factor &&
         a.original_max_position == b.original_max_position;
}

RopeConfig ReadRope(const Fields& fields) {
  const std::string& path = fields.path();
  std::optional<RopeReading> old_style;
  std::optional<RopeReading> new_style;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = fields.Find(key);
    if (value == nullptr) continue;
    if (!value->is_object()) Invalid(path, fields.Name(key) + " must be an object");
    auto reading = ReadRopeObject(Fields(path, *value, std::string(key) + "."));
    (key[5] == 's' ? old_style : new_style) = reading;
  }
  if (old_style && new_style && !SameScaling(old_style->rope, new_style->rope)) {
    Invalid(path, "\"rope_scaling\" and \"rope_parameters\" contradict each other");
  }
  RopeConfig rope = new_style ? new_style->rope : old_style ? old_style->rope : RopeConfig();
  std::optional<double> theta;
  if (fields.Find("rope_theta") != nullptr) theta = AtLeastOne(fields, "rope_theta");
  for (const auto& reading : {old_style, new_style}) {
    if (!reading || !reading->theta) continue;
    if (theta && *theta != *reading->theta) {
      Invalid(path, "\"rope_theta\" is given twice, as " + NumberToJson(*theta) + " and as " +
                        NumberToJson(*reading->theta));
    }
    theta = reading->theta;
  }
  rope.theta = theta.value_or(10000.0);
  return rope;
}

void ReadShape(const Fields& fields, ModelConfig& config) {
  const std::string& path = fields.path();
  config.hidden_size = fields.RequiredInteger("hidden_size", 1, kMostFeatures);
  config.intermediate_size = fields.RequiredInteger("intermediate_size", 1, kMostFeatures);
  config.num_layers = fields.RequiredInteger("num_hidden_layers", 1, kMostLayers);
  config.num_heads = fields.RequiredInteger("num_attention_heads", 1, kMostFeatures);
  config.num_kv_heads =
      fields.Integer("num_key_value_heads", 1, kMostFeatures).value_or(config.num_heads);
  config.vocab_size = fields.RequiredInteger("vocab_size", 1, kMostVocabulary);
  const bool llama = config.family == ModelFamily::kLlama;
  config.max_position =
      fields.Integer("max_position_embeddings", 1, kMostPositions).value_or(llama ? 2048 : 32768);

  if (config.num_heads % config.num_kv_heads != 0) {
    Invalid(path, "\"num_key_value_heads\" " + std::to_string(config.num_kv_heads) +
                      " does not divide \"num_attention_heads\" " +
                      std::to_string(config.num_heads));
  }
  const auto head_dim = fields.Integer("head_dim", 1, kMostFeatures);
  if (head_dim) {
    config.head_dim = *head_dim;
  } else if (config.family == ModelFamily::kQwen3) {
    config.head_dim = 128;  // the family's default; its heads need not tile hidden_size
  } else if (config.hidden_size % config.num_heads == 0) {
    config.head_dim = config.hidden_size / config.num_heads;
  } else {
    Invalid(path,
            "\"num_attention_heads\" does not divide \"hidden_size\" and \"head_dim\" is "
            "missing");
  }
  if (config.head_dim % 2 != 0) Invalid(path, "\"head_dim\" must be even for rotary positions");
  if (static_cast<uint64_t>(config.num_heads) * static_cast<uint64_t>(config.head_dim) >
      kMostFeatures) {
    Invalid(path,
            "\"num_attention_heads\" x \"head_dim\" exceeds " + std::to_string(kMostFeatures));
  }
  const double eps = fields.Number("rms_norm_eps").value_or(1e-6);
  config.rms_norm_eps = static_cast<float>(eps);
  if (!(eps > 0) || !std::isfinite(config.rms_norm_eps) || config.rms_norm_eps == 0) {
    Invalid(path, "\"rms_norm_eps\" must be a number above 0 that fits 32 bits");
  }
}

void ReadFlags(const Fields& fields, ModelConfig& config) {
  const bool attention_bias = fields.Boolean("attention_bias").value_or(false);
  switch (config.family) {
    case ModelFamily::kLlama:
      config.qkv_bias = config.o_bias = attention_bias;
      config.mlp_bias = fields.Boolean("mlp_bias").value_or(false);
      break;
    case ModelFamily::kQwen2:
      config.qkv_bias = true;
      break;
    case ModelFamily::kQwen3:
      config.qkv_bias = config.o_bias = attention_bias;
      config.qk_norm = true;
      break;
  }
  config.declared_tied_head = fields.Boolean("tie_word_embeddings");
}

std::vector<int> ReadTokenIds(const Fields& fields, const std::string& key, int vocab_size) {
  const Json* value = fields.Find(key);
  if (value == nullptr) return {};
  std::vector<int> ids;
  const auto add = [&](const Json& item) {
    const auto id = item.AsUnsigned();
    if (!id || *id >= static_cast<uint64_t>(vocab_size)) {
      Invalid(fields.path(), fields.Name(key) + " must hold token ids below the vocabulary's " +
                                 std::to_string(vocab_size));
    }
    ids.push_back(static_cast<int>(*id));
  };
  if (value->is_array()) {
    for (const Json& item : value->items) add(item);
  } else {
    add(*value);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void ReadSpecialTokens(const std::string& folder, const Fields& fields, ModelConfig& config) {
  config.eos_token_ids = ReadTokenIds(fields, "eos_token_id", config.vocab_size);
  std::vector<int> bos = ReadTokenIds(fields, "bos_token_id", config.vocab_size);
  const std::string path = folder + "/generation_config.json";
  if (FileExists(path)) {
    const Json generation = ReadObject(path, kMostConfigBytes);
    const Fields generation_fields(path, generation);
    // What generation uses wins over what the model declares, as everywhere else.
    const auto eos = ReadTokenIds(generation_fields, "eos_token_id", config.vocab_size);
    if (!eos.empty()) config.eos_token_ids = eos;
    const auto generation_bos = ReadTokenIds(generation_fields, "bos_token_id", config.vocab_size);
    if (!generation_bos.empty()) bos = generation_bos;
  }
  if (bos.size() > 1) Invalid(fields.path(), "\"bos_token_id\" must be one token id");
  config.bos_token_id = bos.empty() ? -1 : bos[0];
}

void ReadTokenizer(const std::string& folder, ModelConfig& config) {
  const std::string path = folder + "/tokenizer.json";
  if (!FileExists(path)) {
    config.tokenizer_size = config.vocab_size;
    return;
  }
  const Json tokenizer = ReadObject(path, kMostTokenizerBytes);
  std::vector<uint64_t> ids;
  const auto add = [&](const Json* value, const std::string& where) {
    const auto id = value == nullptr ? std::optional<uint64_t>() : value->AsUnsigned();
    if (!id || *id > 0xFFFFFFFFu) Invalid(path, where + " must be a token id");
    ids.push_back(*id);
  };
  const Json* model = tokenizer.Find("model");
  const Json* vocabulary = model == nullptr ? nullptr : model->Find("vocab");
  if (vocabulary == nullptr || (!vocabulary->is_object() && !vocabulary->is_array())) {
    Invalid(path, "\"model.vocab\" must be an object or a list");
  }
  for (const auto& [token, id] : vocabulary->members) {
    add(&id, "\"model.vocab\": the value of " + QuoteJson(token));
  }
  // Unigram models list [token, score] pairs; the id is the place in the list.
  for (uint64_t i = 0; i < vocabulary->items.size(); ++i) ids.push_back(i);
  if (const Json* added = tokenizer.Find("added_tokens")) {
    if (!added->is_array() && !added->is_null()) Invalid(path, "\"added_tokens\" must be a list");
    for (const Json& token : added->items) add(token.Find("id"), "\"added_tokens[].id\"");
  }
  if (ids.empty()) Invalid(path, "defines no token");
  std::sort(ids.begin(), ids.end());
  config.tokenizer_ids.emplace();
  for (const uint64_t id : ids) {
    auto& ranges = *config.tokenizer_ids;
    if (!ranges.empty() && id <= ranges.back().second + 1) {
      ranges.back().second = id;
    } else {
      ranges.emplace_back(id, id);
    }
  }
  // A tokenizer may define ids that the embedding has no row for; those can neither be read nor
  // drawn.
  config.tokenizer_size =
      static_cast<int>(std::min(ids.back() + 1, static_cast<uint64_t>(config.vocab_size)));
}

}  // namespace

double ScaledInverseFrequency(const RopeConfig& rope, double inv_freq) {
  if (rope.type == RopeType::kDefault) return inv_freq;
  if (rope.type == RopeType::kLinear) return inv_freq / rope.factor;
  constexpr double kTwoPi = 6.283185307179586;
  const double wavelength = kTwoPi / inv_freq;
  if (wavelength < rope.original_max_position / rope.high_freq_factor) return inv_freq;
  if (wavelength > rope.original_max_position / rope.low_freq_factor) return inv_freq / rope.factor;
  const double smooth = (rope.original_max_position / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * (inv_freq / rope.factor) + smooth * inv_freq;
}

ModelConfig ReadModelConfig(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!FileExists(folder)) {
    throw EngineFault(FaultCode::kInvalidFile, folder + ": the model folder does not exist");
  }
  if (!FileExists(path)) {
    Invalid(path, "missing; a model folder in Hugging Face layout has one");
  }
  const Json document = ReadObject(path, kMostConfigBytes);
  const Fields fields(path, document);
  ModelConfig config;
  ReadFamily(fields, config);
  RefuseUnsupportedFeatures(fields);
  ReadShape(fields, config);
  config.rope = ReadRope(fields);
  ReadFlags(fields, config);
  ReadSpecialTokens(folder, fields, config);
  ReadTokenizer(folder, config);
  return config;
}

}  // namespace hotbed
