#include "engine/adapter_files.h"

#include <charconv>
#include <string_view>
#include <vector>

#include "engine/fault.h"
#include "engine/file_io.h"
#include "engine/json.h"
#include "engine/peft.h"
#include "engine/safetensors.h"

namespace hotbed {
namespace {

constexpr char kFormat[] = "hotbed.snapshot.1";
constexpr char kHeaderTensor[] = "hotbed.snapshot";

[[noreturn]] void Invalid(const std::string& path, const std::string& problem) {
  throw EngineFault(FaultCode::kInvalidFile, path + ": " + problem);
}

std::string_view BytesOf(const float* values, const AdapterTensor& tensor) {
  return {reinterpret_cast<const char*>(values + tensor.offset), tensor.size() * sizeof(float)};
}

AdapterFile Write(const std::string& path, const std::vector<std::string_view>& parts) {
  Sha256 hash;
  AdapterFile file;
  file.path = path;
  ReplaceFile(path, parts, [&] {
    for (const std::string_view part : parts) {
      hash.Update(part);
      file.bytes += part.size();
    }
  });
  file.digest = ToHex(hash.Finish());
  return file;
}

std::string PadToEight(std::string text) {
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

// Prefixes of the tensor names of a state's four buffers; ascending, with the header tensor's place
// between the first and the second.
constexpr const char* kSections[] = {"gradient.", "m.", "v.", "weight."};

// The members of one object that must be exactly these.
class Members {
 public:
  Members(const std::string& path, const Json& object, size_t count)
      : path_(path), object_(object) {
    if (!object.is_object() || object.members.size() != count) {
      Invalid(path, "the snapshot's header does not have the expected members");
    }
  }
  const Json& Get(const std::string& key, Json::Kind kind) const {
    const Json* value = object_.Find(key);
    if (value == nullptr || value->kind != kind) {
      Invalid(path_, "the snapshot's header lacks \"" + key + "\"");
    }
    return *value;
  }
  std::string Text(const std::string& key) const { return Get(key, Json::Kind::kString).text; }
  uint64_t Decimal(const std::string& key) const {
    const std::string text = Text(key);
    uint64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end || text != std::to_string(number)) {
      Invalid(path_, "the snapshot's \"" + key + "\" is not an unsigned 64-bit decimal");
    }
    return number;
  }

 private:
  const std::string& path_;
  const Json& object_;
};

AdapterSpec ReadSpec(const std::string& path, const Members& members) {
  AdapterSpec spec;
  const auto rank = members.Get("rank", Json::Kind::kNumber).AsUnsigned();
  const auto alpha = members.Get("alpha", Json::Kind::kNumber).AsDouble();
  if (!rank || *rank > 256 || !alpha) Invalid(path, "the snapshot's spec is out of range");
  spec.rank = static_cast<int>(*rank);
  spec.alpha = *alpha;
  spec.rslora = members.Get("rslora", Json::Kind::kBool).boolean;
  spec.seed = members.Decimal("seed");
  for (const Json& target : members.Get("targets", Json::Kind::kArray).items) {
    int module = 0;
    while (module < kModuleCount && target.text != ModuleName(static_cast<Module>(module))) {
      ++module;
    }
    if (module == kModuleCount) {
      Invalid(path, "the snapshot's target " + QuoteJson(target.text) + " is unknown");
    }
    spec.targets.push_back(static_cast<Module>(module));
  }
  return spec;
}

const SafetensorsEntry& EntryOf(const SafetensorsFile& file, const std::string& name,
                                const AdapterTensor& tensor) {
  const SafetensorsEntry* entry = file.Find(name);
  if (entry == nullptr) Invalid(file.path(), "tensor \"" + name + "\" is missing");
  const std::vector<int64_t> expected = {tensor.rows, tensor.cols};
  if (entry->dtype != "F32" || entry->shape != expected) {
    Invalid(file.path(), "tensor \"" + name + "\": " + entry->dtype + " " +
                             ShapeText(entry->shape) + ", expected F32 " + ShapeText(expected));
  }
  return *entry;
}

}  // namespace

AdapterFile WriteSnapshot(const std::string& path, const AdapterState& state,
                          const StateIdentity& identity, TensorDigests& cache) {
  const std::string digest = StateDigest(state, identity, cache);
  const std::string json = PadToEight(
      "{\"format\":" + QuoteJson(kFormat) + ",\"opIndex\":\"" + std::to_string(identity.op_index) +
      "\",\"spec\":" + SpecJson(*state.spec, identity.base_digest, identity.numerics_id) +
      ",\"stateDigest\":\"" + digest + "\",\"step\":\"" + std::to_string(state.step) + "\"}");

  const auto order = PeftOrder(*state.layout);
  std::string header = "{";
  uint64_t at = 0;
  const auto add = [&](const std::string& name, const char* dtype, const std::string& shape,
                       uint64_t bytes) {
    if (header.size() > 1) header += ",";
    header += QuoteJson(name) + ":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
              ",\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + bytes) + "]}";
    at += bytes;
  };
  std::vector<std::string_view> parts(1);
  const auto add_section = [&](const char* prefix, const AlignedBuffer<float>& values) {
    for (const AdapterTensor* tensor : order) {
      const std::string_view bytes = BytesOf(values.data(), *tensor);
      add(prefix + PeftTensorName(*tensor), "F32", ShapeText({tensor->rows, tensor->cols}),
          bytes.size());
      parts.push_back(bytes);
    }
  };
  add_section("gradient.", state.gradient);
  add(kHeaderTensor, "U8", ShapeText({static_cast<int64_t>(json.size())}), json.size());
  parts.push_back(json);
  add_section("m.", state.m);
  add_section("v.", state.v);
  add_section("weight.", state.weights->values);
  header = PadToEight(header + "}");

  std::string opening(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    opening[i] = static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i));
  }
  opening += header;
  parts[0] = opening;
  return Write(path, parts);
}

AdapterFile ExportWeights(const std::string& path, const AdapterWeights& weights) {
  const std::string header = PeftHeader(*weights.layout);
  std::vector<std::string_view> parts = {header};
  for (const AdapterTensor* tensor : PeftOrder(*weights.layout)) {
    parts.push_back(BytesOf(weights.values.data(), *tensor));
  }
  return Write(path, parts);
}

Snapshot ReadSnapshot(const std::string& path, const ModelConfig& config,
                      const std::string& base_digest, const std::string& numerics_id) {
  const SafetensorsFile file(path);
  const SafetensorsEntry* entry = file.Find(kHeaderTensor);
  if (entry == nullptr || entry->dtype != "U8") Invalid(path, "not a snapshot of an adapter");
  std::string text(entry->bytes(), '\0');
  file.Read(*entry, text.data());
  const Json document = ParseJson(text, path + ": " + kHeaderTensor);
  const Members members(path, document, 5);
  if (members.Text("format") != kFormat) {
    Invalid(path, "snapshot format " + QuoteJson(members.Text("format")) + " is not supported");
  }
  const Members spec_members(path, members.Get("spec", Json::Kind::kObject), 7);
  for (const auto& [key, ours] :
       {std::pair("baseDigest", base_digest), std::pair("numericsId", numerics_id)}) {
    const std::string theirs = spec_members.Text(key);
    if (theirs != ours) {
      throw EngineFault(FaultCode::kBaseMismatch, path + ": made with " + key + " " + theirs +
                                                      ", but this engine runs " + ours);
    }
  }
  const AdapterSpec spec = ReadSpec(path, spec_members);
  try {
    ValidateSpec(spec);
  } catch (const EngineFault& fault) {
    if (fault.code() != FaultCode::kInvalidArgument) throw;
    Invalid(path, std::string("the snapshot's spec is refused: ") + fault.what());
  }
  // Everything about names and shapes, before memory is taken for a state.
  const AdapterLayout layout(config, spec);
  for (const char* const prefix : kSections) {
    for (const AdapterTensor& tensor : layout.tensors()) {
      EntryOf(file, prefix + PeftTensorName(tensor), tensor);
    }
  }
  const size_t expected = 4 * layout.tensors().size() + 1;
  if (file.entries().size() != expected) {
    Invalid(path, std::to_string(file.entries().size()) + " tensors, expected " +
                      std::to_string(expected));
  }
  Snapshot snapshot;
  snapshot.state = ZeroAdapterState(config, spec);
  AdapterState& state = *snapshot.state;
  snapshot.op_index = members.Decimal("opIndex");
  state.step = members.Decimal("step");
  float* const sections[] = {state.gradient.data(), state.m.data(), state.v.data(),
                             state.weights->values.data()};
  for (size_t i = 0; i < std::size(kSections); ++i) {
    for (const AdapterTensor& tensor : state.layout->tensors()) {
      const std::string name = kSections[i] + PeftTensorName(tensor);
      file.Read(EntryOf(file, name, tensor), sections[i] + tensor.offset);
    }
  }
  TensorDigests digests;
  if (StateDigest(state, {base_digest, numerics_id, snapshot.op_index}, digests) !=
      members.Text("stateDigest")) {
    Invalid(path, "the tensors are not those that its stateDigest names (damaged file?)");
  }
  return snapshot;
}

}  // namespace hotbed
