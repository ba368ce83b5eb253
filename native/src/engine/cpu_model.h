// The base as the CPU kernels read it: weights packed once, in both directions, as its numerics
// contract multiplies with them.
#ifndef HOTBED_ENGINE_CPU_MODEL_H_
#define HOTBED_ENGINE_CPU_MODEL_H_

#include <string>
#include <vector>

#include "engine/adapter_state.h"
#include "engine/model_config.h"
#include "engine/model_weights.h"
#include "engine/numerics.h"
#include "kernels/kernel_table.h"
#include "util/aligned_buffer.h"
#include "util/thread_pool.h"

namespace hotbed {

// Owns one packed matrix and its bias.
struct PackedWeight {
  AlignedBuffer<float> panels;     // or, where every weight is a bf16 number,
  AlignedBuffer<uint32_t> narrow;  // half the bytes for the same bits, or bf16-1's pairs
  std::vector<float> bias;
  kernels::PackedLinear view;
};

// Forward products of one input are one matrix (q|k|v, gate|up): the same chains, fewer calls.
// Input gradients are chains of their own per module.
struct CpuLayer {
  std::vector<float> input_norm, post_attention_norm, q_norm, k_norm;
  PackedWeight qkv, o, gate_up, down;
  PackedWeight backward[kLayerModuleCount];  // by module
};

class CpuModel {
 public:
  // Consumes `weights` matrix by matrix, so that stored and packed form of one matrix coexist
  // briefly. Throws EngineFault unsupported_model where bf16-1 meets a weight that is not a bf16
  // number: it never rounds a weight.
  CpuModel(const ModelConfig& config, ModelWeights weights, Numerics numerics,
           const kernels::KernelTable& kernels, ThreadPool& pool);

  const ModelConfig& config() const { return config_; }
  const CpuLayer& layer(int i) const { return layers_[i]; }
  const std::vector<float>& final_norm() const { return final_norm_; }
  const PackedWeight& head() const { return head_; }
  const PackedWeight& head_backward() const { return head_backward_; }
  size_t bytes() const { return bytes_; }

  // x[row] = embedding of tokens[row], widened; x is [rows, hidden].
  void Embed(const int32_t* tokens, size_t rows, float* x) const;

  // Grows the rotary tables to hold positions [0, count).
  void EnsurePositions(size_t count);
  const float* cos() const { return cos_.data(); }
  const float* sin() const { return sin_.data(); }

 private:
  PackedWeight Pack(const std::string& name, const std::vector<const WeightMatrix*>& parts,
                    const std::vector<const std::vector<float>*>& biases, bool transposed);

  void Narrow(const std::string& name, PackedWeight* packed);

  ModelConfig config_;
  Numerics numerics_;
  const kernels::KernelTable& kernels_;
  ThreadPool& pool_;
  WeightMatrix embedding_;
  std::vector<CpuLayer> layers_;
  std::vector<float> final_norm_;
  PackedWeight head_, head_backward_;
  std::vector<double> inv_freq_;
  AlignedBuffer<float> cos_, sin_;
  size_t positions_ = 0;
  size_t bytes_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_CPU_MODEL_H_
