#include "engine/cpu_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/fault.h"

namespace hotbed {

namespace {

float WidenBf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// Rows of `matrix` as fp32, exactly.
void Widen(const WeightMatrix& matrix, size_t row_begin, size_t row_count, float* out) {
  const size_t begin = row_begin * static_cast<size_t>(matrix.cols);
  const size_t count = row_count * static_cast<size_t>(matrix.cols);
  if (matrix.type == WeightType::kF32) {
    std::memcpy(out, matrix.f32() + begin, count * sizeof(float));
    return;
  }
  const uint16_t* source = matrix.bf16() + begin;
  for (size_t i = 0; i < count; ++i) out[i] = WidenBf16(source[i]);
}

constexpr size_t kFirstPositions = 256;

}  // namespace

CpuModel::CpuModel(const ModelConfig& config, ModelWeights weights, Numerics numerics,
                   const kernels::KernelTable& kernels, ThreadPool& pool)
    : config_(config), numerics_(numerics), kernels_(kernels), pool_(pool) {
  layers_.resize(weights.layers.size());
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    LayerWeights& from = weights.layers[i];
    CpuLayer& to = layers_[i];
    to.input_norm = std::move(from.input_norm);
    to.post_attention_norm = std::move(from.post_attention_norm);
    to.q_norm = std::move(from.q_norm);
    to.k_norm = std::move(from.k_norm);
    const std::string layer = "layer " + std::to_string(i);
    to.qkv = Pack(layer + ", attention", {&from.q, &from.k, &from.v},
                  {&from.q_bias, &from.k_bias, &from.v_bias}, false);
    to.o = Pack(layer + ", attention", {&from.o}, {&from.o_bias}, false);
    to.gate_up =
        Pack(layer + ", mlp", {&from.gate, &from.up}, {&from.gate_bias, &from.up_bias}, false);
    to.down = Pack(layer + ", mlp", {&from.down}, {&from.down_bias}, false);
    WeightMatrix* const modules[kLayerModuleCount] = {&from.q,    &from.k,  &from.v,   &from.o,
                                                      &from.gate, &from.up, &from.down};
    for (int m = 0; m < kLayerModuleCount; ++m) {
      to.backward[m] = Pack(layer, {modules[m]}, {}, true);
      modules[m]->Release();
    }
  }
  final_norm_ = std::move(weights.final_norm);
  head_ = Pack("the head", {&weights.head}, {}, false);
  head_backward_ = Pack("the head", {&weights.head}, {}, true);
  weights.head.Release();
  embedding_ = std::move(weights.embedding);
  bytes_ += embedding_.bytes();

  const size_t half = static_cast<size_t>(config_.head_dim) / 2;
  inv_freq_.resize(half);
  kernels::RopeFrequencyArgs frequencies;
  frequencies.theta = config_.rope.theta;
  frequencies.headDim = config_.head_dim;
  frequencies.invFreq = inv_freq_.data();
  kernels_.ropeFrequencies(frequencies);
  for (double& f : inv_freq_) f = ScaledInverseFrequency(config_.rope, f);
  EnsurePositions(std::min<size_t>(kFirstPositions, config_.max_position));
}

PackedWeight CpuModel::Pack(const std::string& name, const std::vector<const WeightMatrix*>& parts,
                            const std::vector<const std::vector<float>*>& biases, bool transposed) {
  const size_t cols = parts[0]->cols;
  size_t rows = 0;
  for (const WeightMatrix* part : parts) rows += part->rows;
  AlignedBuffer<float> wide(rows * cols);
  size_t row = 0;
  for (const WeightMatrix* part : parts) {
    const size_t begin = row;
    constexpr size_t kRowsPerTask = 64;
    const size_t part_rows = part->rows;
    pool_.forEach((part_rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task, size_t) {
      const size_t first = task * kRowsPerTask;
      Widen(*part, first, std::min(kRowsPerTask, part_rows - first),
            wide.data() + (begin + first) * cols);
    });
    row += part_rows;
  }
  PackedWeight packed;
  const size_t d_out = transposed ? cols : rows;
  const size_t d_in = transposed ? rows : cols;
  packed.panels = AlignedBuffer<float>(kernels::packedLinearFloats(d_out, d_in));
  kernels::PackLinearArgs args;
  args.w = wide.data();
  args.ldw = cols;
  args.dOut = rows;
  args.dIn = cols;
  args.panels = packed.panels.data();
  (transposed ? kernels_.packLinearTransposed : kernels_.packLinear)(pool_, args);
  for (const std::vector<float>* bias : biases) {
    packed.bias.insert(packed.bias.end(), bias->begin(), bias->end());
  }
  packed.view.dOut = d_out;
  packed.view.dIn = d_in;
  Narrow(name, &packed);
  packed.view.bias = packed.bias.empty() ? nullptr : packed.bias.data();
  bytes_ += packed.panels.bytes() + packed.narrow.bytes() + packed.bias.size() * sizeof(float);
  return packed;
}

// Halves the panels where their contract or their values allow it, and fills the view.
void CpuModel::Narrow(const std::string& name, PackedWeight* packed) {
  const size_t d_out = packed->view.dOut;
  const size_t d_in = packed->view.dIn;
  const float* panels = packed->panels.data();
  if (numerics_ == Numerics::kBf16) {
    packed->narrow = AlignedBuffer<uint32_t>(kernels::pairPanelWords(d_out, d_in));
    if (!kernels_.pairPanels(pool_, panels, d_out, d_in, packed->narrow.data())) {
      throw EngineFault(FaultCode::kUnsupportedModel,
                        "numerics: bf16-1 needs a base whose weights are bf16 numbers; " + name +
                            " holds others (use f32-1, or convert the base to bf16 first)");
    }
    packed->panels = {};
    packed->view.pairPanels = packed->narrow.data();
    return;
  }
  packed->narrow = AlignedBuffer<uint32_t>(kernels::narrowPanelWords(packed->panels.size()));
  if (kernels_.narrowPanels(pool_, panels, packed->panels.size(), packed->narrow.data())) {
    packed->panels = {};
    packed->view.narrowPanels = packed->narrow.data();
  } else {
    packed->narrow = {};
    packed->view.panels = packed->panels.data();
  }
}

void CpuModel::Embed(const int32_t* tokens, size_t rows, float* x) const {
  const size_t d = config_.hidden_size;
  for (size_t i = 0; i < rows; ++i) Widen(embedding_, tokens[i], 1, x + i * d);
}

void CpuModel::EnsurePositions(size_t count) {
  if (count <= positions_) return;
  const size_t half = inv_freq_.size();
  const size_t grown = std::max(count, std::min<size_t>(2 * positions_, config_.max_position));
  AlignedBuffer<float> cos(grown * half), sin(grown * half);
  kernels::RopeTableArgs args;
  args.invFreq = inv_freq_.data();
  args.half = half;
  args.positionBegin = 0;
  args.positionEnd = grown;
  args.cos = cos.data();
  args.sin = sin.data();
  kernels_.ropeTable(pool_, args);
  cos_ = std::move(cos);
  sin_ = std::move(sin);
  positions_ = grown;
}

}  // namespace hotbed
