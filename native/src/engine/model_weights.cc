#include "engine/model_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <unordered_map>
#include <unordered_set>

#include "engine/base_digest.h"
#include "engine/fault.h"
#include "engine/file_io.h"
#include "engine/json.h"
#include "engine/safetensors.h"
#include "engine/sha256.h"
#include "util/aligned_buffer.h"

namespace hotbed {
namespace {

constexpr uint64_t kMostIndexBytes = 256u << 20;
constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr char kHead[] = "lm_head.weight";

struct Stored {
  const SafetensorsFile* file;
  const SafetensorsEntry* entry;
};

// All tensors of a folder by name, whichever file holds them.
class TensorCatalogue {
 public:
  explicit TensorCatalogue(const std::string& folder) {
    const std::string single = folder + "/model.safetensors";
    const std::string index = folder + "/model.safetensors.index.json";
    where_ = single;
    if (FileExists(single)) {
      Open(single);
    } else if (FileExists(index)) {
      where_ = index;
      OpenShards(folder, index);
    } else {
      throw EngineFault(FaultCode::kInvalidFile,
                        single +
                            ": missing, and so is model.safetensors.index.json; weights are "
                            "read from safetensors files only");
    }
  }

  const std::string& where() const { return where_; }
  const std::unordered_map<std::string, Stored>& tensors() const { return tensors_; }
  const Stored* Find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }

 private:
  const SafetensorsFile& Open(const std::string& path) {
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    const SafetensorsFile& file = *files_.back();
    for (const SafetensorsEntry& entry : file.entries()) {
      const auto [at, fresh] = tensors_.emplace(entry.name, Stored{&file, &entry});
      if (!fresh) {
        throw EngineFault(FaultCode::kInvalidFile, path + ": tensor \"" + entry.name +
                                                       "\" is also in " + at->second.file->path());
      }
    }
    return file;
  }

  void OpenShards(const std::string& folder, const std::string& index) {
    const auto refuse = [&](const std::string& problem) {
      throw EngineFault(FaultCode::kInvalidFile, index + ": " + problem);
    };
    const Json document = ParseJson(ReadTextFile(index, kMostIndexBytes), index);
    const Json* map = document.Find("weight_map");
    if (map == nullptr || !map->is_object() || map->members.empty()) {
      refuse("\"weight_map\" must be an object of tensor names to file names");
    }
    std::map<std::string, const SafetensorsFile*> shards;
    std::unordered_set<std::string> listed;
    for (const auto& [tensor, name] : map->members) {
      // A file name, never a path: an index must not reach outside its folder.
      if (!name.is_string() || name.text.empty() || name.text[0] == '.' ||
          name.text.find('/') != std::string::npos || name.text.find('\0') != std::string::npos) {
        refuse("tensor \"" + tensor + "\": not a plain file name");
      }
      const SafetensorsFile*& shard = shards[name.text];
      if (shard == nullptr) shard = &Open(folder + "/" + name.text);
    }
    for (const auto& [tensor, name] : map->members) {
      const SafetensorsFile* shard = shards[name.text];
      listed.insert(tensor);
      const Stored* stored = Find(tensor);
      if (stored == nullptr || stored->file != shard) {
        refuse("tensor \"" + tensor + "\" is not in " + name.text);
      }
    }
    for (const auto& [tensor, stored] : tensors_) {
      if (listed.count(tensor) == 0) {
        refuse("tensor \"" + tensor + "\" of " + stored.file->path() + " is not listed");
      }
    }
  }

  std::string where_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unordered_map<std::string, Stored> tensors_;
};

[[noreturn]] void RefuseTensor(const Stored& stored, const std::string& problem) {
  throw EngineFault(FaultCode::kInvalidFile,
                    stored.file->path() + ": tensor \"" + stored.entry->name + "\": " + problem);
}

// One tensor of the model: where it goes and what it must look like. Exactly one target is set.
struct Wanted {
  std::string name;
  std::vector<int64_t> shape;
  WeightMatrix* matrix;
  std::vector<float>* vector;
};

std::vector<Wanted> WantedTensors(const ModelConfig& config, bool head, ModelWeights& weights) {
  std::vector<Wanted> wanted;
  const auto matrix = [&](const std::string& name, int rows, int cols, WeightMatrix& target) {
    wanted.push_back({name, {rows, cols}, &target, nullptr});
  };
  const auto vector = [&](const std::string& name, int size, std::vector<float>& target) {
    wanted.push_back({name, {size}, nullptr, &target});
  };
  const int hidden = config.hidden_size;
  const int inner = config.intermediate_size;
  const int q = config.q_size();
  const int kv = config.kv_size();

  matrix(kEmbedding, config.vocab_size, hidden, weights.embedding);
  if (head) matrix(kHead, config.vocab_size, hidden, weights.head);
  vector("model.norm.weight", hidden, weights.final_norm);
  weights.layers.resize(static_cast<size_t>(config.num_layers));
  for (int i = 0; i < config.num_layers; ++i) {
    LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    const std::string attention = prefix + "self_attn.";
    const std::string mlp = prefix + "mlp.";
    vector(prefix + "input_layernorm.weight", hidden, layer.input_norm);
    vector(prefix + "post_attention_layernorm.weight", hidden, layer.post_attention_norm);
    matrix(attention + "q_proj.weight", q, hidden, layer.q);
    matrix(attention + "k_proj.weight", kv, hidden, layer.k);
    matrix(attention + "v_proj.weight", kv, hidden, layer.v);
    matrix(attention + "o_proj.weight", hidden, q, layer.o);
    matrix(mlp + "gate_proj.weight", inner, hidden, layer.gate);
    matrix(mlp + "up_proj.weight", inner, hidden, layer.up);
    matrix(mlp + "down_proj.weight", hidden, inner, layer.down);
    if (config.qk_norm) {
      vector(attention + "q_norm.weight", config.head_dim, layer.q_norm);
      vector(attention + "k_norm.weight", config.head_dim, layer.k_norm);
    }
    if (config.qkv_bias) {
      vector(attention + "q_proj.bias", q, layer.q_bias);
      vector(attention + "k_proj.bias", kv, layer.k_bias);
      vector(attention + "v_proj.bias", kv, layer.v_bias);
    }
    if (config.o_bias) vector(attention + "o_proj.bias", hidden, layer.o_bias);
    if (config.mlp_bias) {
      vector(mlp + "gate_proj.bias", inner, layer.gate_bias);
      vector(mlp + "up_proj.bias", inner, layer.up_bias);
      vector(mlp + "down_proj.bias", hidden, layer.down_bias);
    }
  }
  return wanted;
}

bool EndsWith(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

// Tables that old checkpoints carry and every reader computes itself.
bool IsDerivedTable(const std::string& name) { return EndsWith(name, ".rotary_emb.inv_freq"); }

// Everything about names, shapes and dtypes, before memory is taken for any weight.
void CheckCatalogue(const TensorCatalogue& catalogue, const std::vector<Wanted>& wanted) {
  std::unordered_map<std::string, const Wanted*> by_name;
  for (const Wanted& tensor : wanted) by_name.emplace(tensor.name, &tensor);
  for (const Wanted& tensor : wanted) {
    const Stored* stored = catalogue.Find(tensor.name);
    if (stored == nullptr) {
      throw EngineFault(FaultCode::kInvalidFile,
                        catalogue.where() + ": tensor \"" + tensor.name + "\" is missing");
    }
    if (stored->entry->shape != tensor.shape) {
      RefuseTensor(*stored, "shape " + ShapeText(stored->entry->shape) +
                                ", but config.json asks for " + ShapeText(tensor.shape));
    }
    const std::string& dtype = stored->entry->dtype;
    if (dtype != "F32" && dtype != "BF16" && dtype != "F16") {
      RefuseTensor(*stored, "dtype " + dtype + " is not supported; expected F32, F16 or BF16");
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, stored] : catalogue.tensors()) names.push_back(name);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (by_name.count(name) == 0 && name != kHead && !IsDerivedTable(name)) {
      RefuseTensor(*catalogue.Find(name), "this architecture has no such tensor");
    }
  }
}

template <typename T>
std::shared_ptr<T> AlignedArray(uint64_t count) {
  const size_t bytes = count * sizeof(T);
  return std::shared_ptr<T>(static_cast<T*>(allocateAligned(bytes)),
                            [bytes](T* block) { freeAligned(block, bytes); });
}

void CheckFinite(const Stored& stored, const float* values, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) {
      RefuseTensor(stored, "element " + std::to_string(i) + " is not a finite number");
    }
  }
}

void CheckFiniteBf16(const Stored& stored, const uint16_t* values, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    if ((values[i] & 0x7F80u) == 0x7F80u) {
      RefuseTensor(stored, "element " + std::to_string(i) + " is not a finite number");
    }
  }
}

// The stored bytes, hashed on the way; F16 is widened, the other two stay as they are.
Digest ReadMatrix(const Stored& stored, WeightMatrix& matrix) {
  const SafetensorsEntry& entry = *stored.entry;
  const uint64_t count = entry.elements();
  matrix.rows = entry.shape[0];
  matrix.cols = entry.shape[1];
  if (entry.dtype == "F32") {
    const auto values = AlignedArray<float>(count);
    stored.file->Read(entry, values.get());
    CheckFinite(stored, values.get(), count);
    matrix.type = WeightType::kF32;
    matrix.data = values;
    return Sha256Of(values.get(), entry.bytes());
  }
  const auto narrow = AlignedArray<uint16_t>(count);
  stored.file->Read(entry, narrow.get());
  const Digest digest = Sha256Of(narrow.get(), entry.bytes());
  if (entry.dtype == "BF16") {
    CheckFiniteBf16(stored, narrow.get(), count);
    matrix.type = WeightType::kBf16;
    matrix.data = narrow;
    return digest;
  }
  const auto values = AlignedArray<float>(count);
  for (uint64_t i = 0; i < count; ++i) values.get()[i] = WidenF16(narrow.get()[i]);
  CheckFinite(stored, values.get(), count);
  matrix.type = WeightType::kF32;
  matrix.data = values;
  return digest;
}

Digest ReadVector(const Stored& stored, std::vector<float>& values) {
  const SafetensorsEntry& entry = *stored.entry;
  std::vector<uint8_t> bytes(entry.bytes());
  stored.file->Read(entry, bytes.data());
  values.resize(entry.elements());
  stored.file->ReadF32(entry, values.data());
  CheckFinite(stored, values.data(), values.size());
  return Sha256Of(bytes.data(), bytes.size());
}

bool SameBytes(const Stored& a, const Stored& b) {
  if (a.entry->dtype != b.entry->dtype || a.entry->shape != b.entry->shape) return false;
  std::vector<char> left(a.entry->bytes());
  std::vector<char> right(b.entry->bytes());
  a.file->Read(*a.entry, left.data());
  b.file->Read(*b.entry, right.data());
  return left == right;
}

// Whether the head is the embedding. A config may call it tied while the files repeat the embedding
// as a head (then it is), or hold another head (then, as transformers 5 decides, it is not). A
// config that is silent is tied exactly when the files hold no head.
bool HeadIsTied(const ModelConfig& config, const TensorCatalogue& catalogue) {
  const Stored* head = catalogue.Find(kHead);
  if (head == nullptr) return config.declared_tied_head.value_or(true);
  if (!config.declared_tied_head.value_or(false)) return false;
  const Stored* embedding = catalogue.Find(kEmbedding);
  return embedding != nullptr && SameBytes(*head, *embedding);
}

LoadedModel Load(const std::string& folder) {
  LoadedModel model;
  model.config = ReadModelConfig(folder);
  ModelWeights& weights = model.weights;
  const TensorCatalogue catalogue(folder);
  model.config.tied_head = HeadIsTied(model.config, catalogue);
  const auto wanted = WantedTensors(model.config, !model.config.tied_head, weights);
  CheckCatalogue(catalogue, wanted);

  std::vector<TensorIdentity> identities;
  for (const Wanted& tensor : wanted) {
    const Stored& stored = *catalogue.Find(tensor.name);
    const Digest digest = tensor.matrix != nullptr ? ReadMatrix(stored, *tensor.matrix)
                                                   : ReadVector(stored, *tensor.vector);
    identities.push_back({tensor.name, stored.entry->dtype, stored.entry->shape, digest});
    weights.parameter_count += stored.entry->elements();
    weights.bytes += tensor.matrix != nullptr ? tensor.matrix->bytes() : tensor.vector->size() * 4;
  }
  if (model.config.tied_head) weights.head = weights.embedding;
  model.base_digest = BaseDigest(model.config, std::move(identities));
  return model;
}

}  // namespace

LoadedModel LoadModel(const std::string& folder) {
  try {
    return Load(folder);
  } catch (const std::bad_alloc&) {
    throw EngineFault(FaultCode::kOutOfMemory, folder + ": not enough memory for the weights");
  }
}

}  // namespace hotbed
