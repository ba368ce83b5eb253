// The state of one LoRA adapter: spec, tensors in one fixed order, step. Plain data; the engine
// thread owns live ones.
//
// 1. Tensors stand in N8's order (layer; q, k, v, o, gate, up, down; A, then B; after the last
// layer lm_head) in flat buffers with one common layout, so weights, moments and gradient of a
// tensor are found at the same offset.
// 2. A published weight buffer (`shared_ptr<const ...>`) is immutable for life; an optimizer step
// writes into a fresh one while anybody else still holds the old one (copy-on-write), and in place
// when nobody does.
// 3. A is [rank][d_in], B is [d_out][rank], both row-major fp32: PEFT's layout.
#ifndef HOTBED_ENGINE_ADAPTER_STATE_H_
#define HOTBED_ENGINE_ADAPTER_STATE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model_config.h"
#include "util/aligned_buffer.h"

namespace hotbed {

// The value is the module id of the initialisation rule (N13).
enum class Module : int { kQ = 0, kK, kV, kO, kGate, kUp, kDown, kLmHead };
constexpr int kModuleCount = 8;
// Modules that live in a decoder layer: all but lm_head.
constexpr int kLayerModuleCount = 7;

// "q", "k", ... "lm_head".
const char* ModuleName(Module module);
// The weight's name in a Hugging Face layer: "self_attn.q_proj", ... "mlp.down_proj"; "lm_head".
const char* ModulePeftName(Module module);

struct AdapterSpec {
  int rank = 0;  // 1..256
  double alpha = 0;
  bool rslora = false;
  std::vector<Module> targets;  // ascending, no duplicates
  uint64_t seed = 0;
};

// N5: float(alpha / r), with rsLoRA float(alpha / sqrt(double r)).
float LoraScale(const AdapterSpec& spec);

// Widths of a module on a base.
int ModuleInputSize(const ModelConfig& config, Module module);
int ModuleOutputSize(const ModelConfig& config, Module module);

// One tensor of the layout: A [rank][d_in] or B [d_out][rank].
struct AdapterTensor {
  int layer;
  Module module;
  bool is_b;
  int rows;
  int cols;
  size_t offset;  // floats from the start of the flat buffer; a multiple of 16
  size_t size() const { return static_cast<size_t>(rows) * cols; }
};

// Where each tensor of an adapter lies. Depends on (config, rank, targets) only.
class AdapterLayout {
 public:
  AdapterLayout(const ModelConfig& config, const AdapterSpec& spec);

  const std::vector<AdapterTensor>& tensors() const { return tensors_; }  // N8's order
  // Floats of one flat buffer, padding between tensors included (the padding stays +0).
  size_t buffer_size() const { return buffer_size_; }
  // Floats of all tensors, without padding.
  size_t parameter_count() const { return parameter_count_; }
  bool has(Module module) const { return present_[static_cast<int>(module)]; }
  // Null when the module is not targeted. The layer of lm_head is the number of layers.
  const AdapterTensor* a(int layer, Module module) const;
  const AdapterTensor* b(int layer, Module module) const;

 private:
  size_t IndexOf(int layer, Module module) const;

  std::vector<AdapterTensor> tensors_;
  std::vector<int> index_;  // [layer][module], then lm_head -> index of A in tensors_, or -1
  std::array<bool, kModuleCount> present_{};
  size_t buffer_size_ = 0;
  size_t parameter_count_ = 0;
};

// A and B at one operation index: what a sequence pins (N10).
struct AdapterWeights {
  AdapterWeights(std::shared_ptr<const AdapterSpec> spec,
                 std::shared_ptr<const AdapterLayout> layout);

  std::shared_ptr<const AdapterSpec> spec;
  std::shared_ptr<const AdapterLayout> layout;
  AlignedBuffer<float> values;  // [layout->buffer_size()]

  const float* at(const AdapterTensor& tensor) const { return values.data() + tensor.offset; }
  float* at(const AdapterTensor& tensor) { return values.data() + tensor.offset; }

  // Names these very numbers: never 0, never used twice in a process. What was computed from them
  // is kept under it, so whoever writes into published weights in place takes a new one first.
  uint64_t identity() const { return identity_; }
  void RenewIdentity();

  // The executor's own form of the same numbers, made when first needed and dropped when work ends;
  // touched by the engine thread alone.
  mutable std::shared_ptr<void> executor_copy;

 private:
  uint64_t identity_;
};

// A whole training state.
struct AdapterState {
  std::shared_ptr<const AdapterSpec> spec;
  std::shared_ptr<const AdapterLayout> layout;
  std::shared_ptr<AdapterWeights> weights;
  AlignedBuffer<float> m;         // [buffer_size]
  AlignedBuffer<float> v;         // [buffer_size]
  AlignedBuffer<float> gradient;  // [buffer_size]
  uint64_t step = 0;              // optimizer steps taken

  // Whoever changes a buffer counts it here; a digest rehashes only what has counted on since (see
  // StateDigester).
  uint64_t weights_changes = 0;
  uint64_t moments_changes = 0;
  uint64_t gradient_changes = 0;
};

// Throws EngineFault invalid_argument naming the field.
void ValidateSpec(const AdapterSpec& spec);

// The same numbers in an own buffer.
std::shared_ptr<AdapterWeights> CloneOf(const AdapterWeights& weights);

// An own copy of moments and gradient; the weights are shared.
std::unique_ptr<AdapterState> CopyOf(const AdapterState& state);

// The shapes of `spec` on a base, every value +0, step 0: what the initialiser and readers of files
// fill in.
std::unique_ptr<AdapterState> ZeroAdapterState(const ModelConfig& config, const AdapterSpec& spec);

}  // namespace hotbed

#endif  // HOTBED_ENGINE_ADAPTER_STATE_H_
