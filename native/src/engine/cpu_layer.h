// One decoder layer on the CPU, forward and backward, over the rows of any plan.
//
// Sampling steps and training passes run this same forward function, so a cached decode and a
// training forward agree to the bit. Letters: R rows, d hidden, Q = query heads * head_dim, KV =
// key/value heads * head_dim, ff intermediate.
#ifndef HOTBED_ENGINE_CPU_LAYER_H_
#define HOTBED_ENGINE_CPU_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/adapter_state.h"
#include "engine/cpu_model.h"
#include "kernels/kernel_table.h"
#include "util/thread_pool.h"

namespace hotbed {

// The transposes of an adapter's tensors, [d_in][rank] and [rank][d_out], at the layout's offsets:
// what the forward kernel reads. Kept beside the weights and made again after an update in place.
struct CpuAdapterCopy {
  AlignedBuffer<float> transposed;
};

// Rows [row_begin, row_end) carry an adapter.
struct LoraRows {
  const AdapterWeights* weights = nullptr;
  const CpuAdapterCopy* copy = nullptr;
  float* gradient = nullptr;  // flat gradient buffer; backward only
  size_t row_begin = 0;
  size_t row_end = 0;
  float scale = 0;
};

// What the layers need to know of a plan's rows. Pages are those of the current layer.
struct RowContext {
  size_t rows = 0;
  const int32_t* positions = nullptr;  // [rows]
  std::vector<LoraRows> lora;          // ascending, only rows with an adapter
  size_t max_rank = 0;
  std::vector<kernels::KvWriteRows> writes;
  std::vector<kernels::AttentionRows> attention;
  // Rows of several policies share the plan (only the built-in mutation looks at it).
  bool mixed = false;
};

// Where a layer's values of R rows lie.
struct LayerActivations {
  float* x = nullptr;                // [R, d] the layer's input
  float* qk_raw = nullptr;           // [R, Q + KV] before QK-norm; null where nobody asks for it
  float* qkv = nullptr;              // [R, Q + 2 KV] after QK-norm and RoPE
  float* lse = nullptr;              // [R, query heads]; null where nobody asks for it
  float* attended = nullptr;         // [R, Q]
  float* x_mid = nullptr;            // [R, d] after attention's residual
  float* gate_up = nullptr;          // [R, 2 ff]
  float* u[kLayerModuleCount] = {};  // [R, max_rank]; q, k, v differ, and gate, up
};

// Scratch that no later step reads.
struct LayerScratch {
  float* normed = nullptr;  // [R, d]
  float* hidden = nullptr;  // [R, ff]
};

struct CpuContext {
  const kernels::KernelTable& kernels;
  ThreadPool& pool;
  CpuModel& model;
  bool mutation = false;
  std::vector<kernels::FetchSpan> fetch;                        // reused
  std::vector<kernels::LoraForwardSegment> forward_segments;    // reused
  std::vector<kernels::LoraBackwardSegment> backward_segments;  // reused
};

// output [R, d] may be activations.x itself (nothing else then keeps the layer's input).
void LayerForward(CpuContext& context, int layer, const RowContext& rows,
                  const LayerActivations& activations, const LayerScratch& scratch, float* output);

// Scratch of the backward pass; the first R rows of each.
struct BackwardScratch {
  float* normed = nullptr;      // [R, d]
  float* hidden = nullptr;      // [R, ff]
  float* d_hidden = nullptr;    // [R, ff]
  float* d_gate_up = nullptr;   // [R, 2 ff]
  float* d_normed = nullptr;    // [R, d]
  float* d_part = nullptr;      // [R, d]
  float* d_attended = nullptr;  // [R, Q]
  float* d_qkv = nullptr;       // [R, Q + 2 KV]
  float* du = nullptr;          // [R, max_rank]
};

// One datum's rows for attention's backward pass.
struct BackwardRun {
  size_t row_begin = 0;
  size_t row_count = 0;
  size_t position_begin = 0;
  const float* const* pages = nullptr;
  size_t shared_begin = 0;  // first of the rows at positions [0, shared_count)
  size_t shared_count = 0;
  bool is_shared = false;  // the run is the shared rows themselves
};

struct BackwardGroups {
  std::vector<BackwardRun> runs;    // N15's order within a group
  std::vector<size_t> group_begin;  // [groups + 1] into runs
  // Reused from layer to layer.
  std::vector<kernels::AttentionBackwardArgs> args;
  std::vector<kernels::KvGradientRange> ranges;
  std::vector<kernels::AttentionBackwardGroup> groups;
};

// dx [rows.rows, d]: gradient of the layer's output in, of its input out (layer 0: contents
// undefined, nobody needs it). Gradients of A and B are carried on in rows.lora[i].gradient.
void LayerBackward(CpuContext& context, int layer, const RowContext& rows,
                   const LayerActivations& activations, const BackwardScratch& scratch,
                   BackwardGroups& groups, float* dx);

}  // namespace hotbed

#endif  // HOTBED_ENGINE_CPU_LAYER_H_
