#include "engine/adapter_state.h"

#include <atomic>
#include <cmath>
#include <cstring>

#include "engine/fault.h"

namespace hotbed {

namespace {

constexpr size_t kAlignFloats = 16;
constexpr int kMaxRank = 256;

size_t RoundUp(size_t n) { return (n + kAlignFloats - 1) / kAlignFloats * kAlignFloats; }

AlignedBuffer<float> CopyBuffer(const AlignedBuffer<float>& source) {
  AlignedBuffer<float> copy(source.size(), Contents::kAnything);
  if (source.size() != 0) std::memcpy(copy.data(), source.data(), source.bytes());
  return copy;
}

}  // namespace

const char* ModuleName(Module module) {
  static const char* const kNames[kModuleCount] = {"q",    "k",  "v",    "o",
                                                   "gate", "up", "down", "lm_head"};
  return kNames[static_cast<int>(module)];
}

const char* ModulePeftName(Module module) {
  static const char* const kNames[kModuleCount] = {
      "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
      "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj",    "lm_head"};
  return kNames[static_cast<int>(module)];
}

float LoraScale(const AdapterSpec& spec) {
  const double rank = spec.rank;
  return static_cast<float>(spec.alpha / (spec.rslora ? std::sqrt(rank) : rank));
}

int ModuleInputSize(const ModelConfig& config, Module module) {
  switch (module) {
    case Module::kO:
      return config.q_size();
    case Module::kDown:
      return config.intermediate_size;
    default:
      return config.hidden_size;
  }
}

int ModuleOutputSize(const ModelConfig& config, Module module) {
  switch (module) {
    case Module::kQ:
      return config.q_size();
    case Module::kK:
    case Module::kV:
      return config.kv_size();
    case Module::kGate:
    case Module::kUp:
      return config.intermediate_size;
    case Module::kLmHead:
      return config.vocab_size;
    default:
      return config.hidden_size;
  }
}

AdapterLayout::AdapterLayout(const ModelConfig& config, const AdapterSpec& spec)
    : index_(static_cast<size_t>(config.num_layers) * kLayerModuleCount + 1, -1) {
  for (Module module : spec.targets) present_[static_cast<int>(module)] = true;
  const auto add_pair = [&](int layer, Module module) {
    if (!has(module)) return;
    index_[IndexOf(layer, module)] = static_cast<int>(tensors_.size());
    for (bool is_b : {false, true}) {
      AdapterTensor tensor;
      tensor.layer = layer;
      tensor.module = module;
      tensor.is_b = is_b;
      tensor.rows = is_b ? ModuleOutputSize(config, module) : spec.rank;
      tensor.cols = is_b ? spec.rank : ModuleInputSize(config, module);
      tensor.offset = buffer_size_;
      buffer_size_ += RoundUp(tensor.size());
      parameter_count_ += tensor.size();
      tensors_.push_back(tensor);
    }
  };
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (int m = 0; m < kLayerModuleCount; ++m) add_pair(layer, static_cast<Module>(m));
  }
  add_pair(config.num_layers, Module::kLmHead);
}

size_t AdapterLayout::IndexOf(int layer, Module module) const {
  if (module == Module::kLmHead) return index_.size() - 1;
  return static_cast<size_t>(layer) * kLayerModuleCount + static_cast<int>(module);
}

const AdapterTensor* AdapterLayout::a(int layer, Module module) const {
  const int i = index_[IndexOf(layer, module)];
  return i < 0 ? nullptr : &tensors_[i];
}

const AdapterTensor* AdapterLayout::b(int layer, Module module) const {
  const int i = index_[IndexOf(layer, module)];
  return i < 0 ? nullptr : &tensors_[i + 1];
}

AdapterWeights::AdapterWeights(std::shared_ptr<const AdapterSpec> the_spec,
                               std::shared_ptr<const AdapterLayout> the_layout)
    : spec(std::move(the_spec)), layout(std::move(the_layout)), values(layout->buffer_size()) {
  RenewIdentity();
}

void AdapterWeights::RenewIdentity() {
  static std::atomic<uint64_t> next{1};
  identity_ = next++;
}

void ValidateSpec(const AdapterSpec& spec) {
  const auto refuse = [](const std::string& message) {
    throw EngineFault(FaultCode::kInvalidArgument, message);
  };
  if (spec.rank < 1 || spec.rank > kMaxRank) {
    refuse("rank: expected 1.." + std::to_string(kMaxRank) + ", got " + std::to_string(spec.rank));
  }
  if (!std::isfinite(spec.alpha) || spec.alpha <= 0) {
    refuse("alpha: expected a finite number above 0, got " + std::to_string(spec.alpha));
  }
  const float scale = LoraScale(spec);
  if (!std::isfinite(scale) || scale == 0) {
    refuse("alpha: alpha over rank leaves the range of float32");
  }
  if (spec.targets.empty()) refuse("targets: expected at least one module");
  int previous = -1;
  for (Module module : spec.targets) {
    const int id = static_cast<int>(module);
    if (id < 0 || id >= kModuleCount) refuse("targets: unknown module " + std::to_string(id));
    if (id == previous) refuse(std::string("targets: ") + ModuleName(module) + " is listed twice");
    if (id < previous) refuse("targets: expected the order q, k, v, o, gate, up, down, lm_head");
    previous = id;
  }
}

std::shared_ptr<AdapterWeights> CloneOf(const AdapterWeights& weights) {
  auto clone = std::make_shared<AdapterWeights>(weights.spec, weights.layout);
  std::memcpy(clone->values.data(), weights.values.data(), clone->values.bytes());
  return clone;
}

std::unique_ptr<AdapterState> CopyOf(const AdapterState& state) {
  auto copy = std::make_unique<AdapterState>();
  copy->spec = state.spec;
  copy->layout = state.layout;
  copy->weights = state.weights;
  copy->m = CopyBuffer(state.m);
  copy->v = CopyBuffer(state.v);
  copy->gradient = CopyBuffer(state.gradient);
  copy->step = state.step;
  copy->weights_changes = state.weights_changes;
  copy->moments_changes = state.moments_changes;
  copy->gradient_changes = state.gradient_changes;
  return copy;
}

std::unique_ptr<AdapterState> ZeroAdapterState(const ModelConfig& config, const AdapterSpec& spec) {
  ValidateSpec(spec);
  auto state = std::make_unique<AdapterState>();
  state->spec = std::make_shared<const AdapterSpec>(spec);
  state->layout = std::make_shared<const AdapterLayout>(config, spec);
  state->weights = std::make_shared<AdapterWeights>(state->spec, state->layout);
  state->m = AlignedBuffer<float>(state->layout->buffer_size());
  state->v = AlignedBuffer<float>(state->layout->buffer_size());
  state->gradient = AlignedBuffer<float>(state->layout->buffer_size());
  return state;
}

}  // namespace hotbed
