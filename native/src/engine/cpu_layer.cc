#include "engine/cpu_layer.h"

#include <cstring>
#include <initializer_list>

#include "engine/mutation.h"

namespace hotbed {

namespace {

struct Widths {
  explicit Widths(const ModelConfig& config)
      : d(config.hidden_size),
        q(config.q_size()),
        kv(config.kv_size()),
        ff(config.intermediate_size),
        qkv(q + 2 * kv) {}
  size_t d, q, kv, ff, qkv;
};

kernels::AttentionShape ShapeOf(const ModelConfig& config) {
  kernels::AttentionShape shape;
  shape.queryHeads = config.num_heads;
  shape.kvHeads = config.num_kv_heads;
  shape.headDim = config.head_dim;
  return shape;
}

void Linear(CpuContext& context, const PackedWeight& weight, const float* x, size_t ldx,
            size_t rows, float* y, size_t ldy, const std::vector<kernels::FetchSpan>& fetch) {
  kernels::LinearArgs args;
  args.x = x;
  args.ldx = ldx;
  args.rows = rows;
  args.weight = weight.view;
  args.y = y;
  args.ldy = ldy;
  args.fetch = fetch.data();
  args.fetchCount = fetch.size();
  context.kernels.linear(context.pool, args);
}

// An adapter's tensors of modules [first, last] of a layer, which lie one after another.
kernels::FetchSpan SpanOf(const AdapterLayout& layout, const float* buffer, int layer, Module first,
                          Module last) {
  const float* begin = nullptr;
  const float* end = nullptr;
  for (int m = static_cast<int>(first); m <= static_cast<int>(last); ++m) {
    const AdapterTensor* a = layout.a(layer, static_cast<Module>(m));
    if (!a) continue;
    const AdapterTensor* b = layout.b(layer, static_cast<Module>(m));
    if (!begin) begin = buffer + a->offset;
    end = buffer + b->offset + b->size();
  }
  return {begin, static_cast<size_t>(end - begin) * sizeof(float)};
}

// What LoraForward reads of the adapters.
const std::vector<kernels::FetchSpan>& ForwardSpans(CpuContext& context, const RowContext& rows,
                                                    int layer, Module first, Module last) {
  context.fetch.clear();
  for (const LoraRows& lora : rows.lora) {
    context.fetch.push_back(
        SpanOf(*lora.weights->layout, lora.copy->transposed.data(), layer, first, last));
  }
  return context.fetch;
}

// What the backward pass of one module reads and writes of the adapters.
const std::vector<kernels::FetchSpan>& BackwardSpans(CpuContext& context, const RowContext& rows,
                                                     int layer, Module module) {
  context.fetch.clear();
  for (const LoraRows& lora : rows.lora) {
    const AdapterLayout& layout = *lora.weights->layout;
    context.fetch.push_back(SpanOf(layout, lora.weights->values.data(), layer, module, module));
    context.fetch.push_back(SpanOf(layout, lora.gradient, layer, module, module));
  }
  return context.fetch;
}

// One module of several that read the same input.
struct LoraPart {
  Module module;
  float* y;  // the module's base output, [rows, ldy]
  float* u;  // [rows, max_rank], kept for the backward pass
};

// y += scale * B A x on the rows whose adapter has the module (N5).
void LoraForward(CpuContext& context, int layer, const RowContext& rows, const float* x, size_t ldx,
                 size_t ldy, std::initializer_list<LoraPart> parts) {
  if (rows.lora.empty()) return;
  auto& segments = context.forward_segments;
  segments.clear();
  segments.reserve(parts.size() * rows.lora.size());  // calls point into it
  kernels::LoraForwardArgs calls[3];
  size_t count = 0;
  for (const LoraPart& part : parts) {
    const size_t first = segments.size();
    for (const LoraRows& lora : rows.lora) {
      const AdapterTensor* a = lora.weights->layout->a(layer, part.module);
      if (!a) continue;
      const AdapterTensor* b = lora.weights->layout->b(layer, part.module);
      kernels::LoraForwardSegment segment;
      segment.rowBegin = lora.row_begin;
      segment.rowEnd = lora.row_end;
      segment.at = lora.copy->transposed.data() + a->offset;
      segment.bt = lora.copy->transposed.data() + b->offset;
      segment.rank = a->rows;
      segment.scale = lora.scale;
      segments.push_back(segment);
    }
    if (segments.size() == first) continue;
    kernels::LoraForwardArgs& call = calls[count++];
    call.x = x;
    call.ldx = ldx;
    call.dIn = ModuleInputSize(context.model.config(), part.module);
    call.y = part.y;
    call.ldy = ldy;
    call.dOut = ModuleOutputSize(context.model.config(), part.module);
    call.u = part.u;
    call.ldu = rows.max_rank;
    call.segments = segments.data() + first;
    call.segmentCount = segments.size() - first;
  }
  context.kernels.loraForwardMany(context.pool, calls, count);
}

void RmsNorm(CpuContext& context, const float* x, size_t ldx, size_t rows, size_t groups, size_t n,
             const std::vector<float>& w, float* y, size_t ldy) {
  kernels::RmsNormArgs args;
  args.x = x;
  args.ldx = ldx;
  args.rows = rows;
  args.groups = groups;
  args.n = n;
  args.w = w.data();
  args.eps = context.model.config().rms_norm_eps;
  args.y = y;
  args.ldy = ldy;
  context.kernels.rmsNorm(context.pool, args);
}

void RmsNormBackward(CpuContext& context, const float* x, size_t ldx, size_t rows, size_t groups,
                     size_t n, const std::vector<float>& w, float* d, size_t ldd) {
  kernels::RmsNormBackwardArgs args;
  args.x = x;
  args.ldx = ldx;
  args.rows = rows;
  args.groups = groups;
  args.n = n;
  args.w = w.data();
  args.eps = context.model.config().rms_norm_eps;
  args.dy = d;
  args.lddy = ldd;
  args.dx = d;
  args.lddx = ldd;
  context.kernels.rmsNormBackward(context.pool, args);
}

// y = a + b, all [rows, n] without gaps.
void Add(CpuContext& context, const float* a, const float* b, float* y, size_t rows, size_t n) {
  kernels::AddArgs args;
  args.a = a;
  args.lda = n;
  args.b = b;
  args.ldb = n;
  args.y = y;
  args.ldy = n;
  args.rows = rows;
  args.n = n;
  context.kernels.add(context.pool, args);
}

// Query and key heads stand side by side, so one call turns both.
void Rope(CpuContext& context, const RowContext& rows, float* qkv, bool backward) {
  const ModelConfig& config = context.model.config();
  kernels::RopeArgs args;
  args.x = qkv;
  args.ldx = config.q_size() + 2 * config.kv_size();
  args.rows = rows.rows;
  args.heads = config.num_heads + config.num_kv_heads;
  args.headDim = config.head_dim;
  args.positions = rows.positions;
  args.cos = context.model.cos();
  args.sin = context.model.sin();
  args.backward = backward;
  context.kernels.rope(context.pool, args);
}

// The input gradient of one module in two strides: the base chain into `dx`, then each adapter's
// own term and its gradients. dx = null: only the gradients.
void ModuleBackward(CpuContext& context, int layer, Module module, const RowContext& rows,
                    const float* x, size_t ldx, const float* u, const float* dy, size_t lddy,
                    float* dx, float* du) {
  const ModelConfig& config = context.model.config();
  const size_t d_in = ModuleInputSize(config, module);
  if (dx) {
    Linear(context, context.model.layer(layer).backward[static_cast<int>(module)], dy, lddy,
           rows.rows, dx, d_in, BackwardSpans(context, rows, layer, module));
  }
  auto& segments = context.backward_segments;
  segments.clear();
  for (const LoraRows& lora : rows.lora) {
    const AdapterTensor* a = lora.weights->layout->a(layer, module);
    if (!a) continue;
    const AdapterTensor* b = lora.weights->layout->b(layer, module);
    kernels::LoraBackwardSegment segment;
    segment.rowBegin = lora.row_begin;
    segment.rowEnd = lora.row_end;
    segment.a = lora.weights->at(*a);
    segment.b = lora.weights->at(*b);
    segment.rank = a->rows;
    segment.scale = lora.scale;
    segment.gradA = lora.gradient + a->offset;
    segment.gradB = lora.gradient + b->offset;
    segments.push_back(segment);
  }
  if (segments.empty()) return;
  kernels::LoraBackwardArgs args;
  args.x = x;
  args.ldx = ldx;
  args.dIn = d_in;
  args.u = u;
  args.ldu = rows.max_rank;
  args.dy = dy;
  args.lddy = lddy;
  args.dOut = ModuleOutputSize(config, module);
  args.du = du;
  args.lddu = rows.max_rank;
  args.dx = dx;
  args.lddx = d_in;
  args.segments = segments.data();
  args.segmentCount = segments.size();
  context.kernels.loraBackward(context.pool, args);
}

void Swiglu(CpuContext& context, const float* gate_up, size_t rows, size_t ff, float* hidden) {
  kernels::SwigluArgs args;
  args.gate = gate_up;
  args.up = gate_up + ff;
  args.ldin = 2 * ff;
  args.rows = rows;
  args.n = ff;
  args.h = hidden;
  args.ldh = ff;
  context.kernels.swiglu(context.pool, args);
}

}  // namespace

void LayerForward(CpuContext& context, int layer, const RowContext& rows,
                  const LayerActivations& at, const LayerScratch& scratch, float* output) {
  const ModelConfig& config = context.model.config();
  const CpuLayer& weights = context.model.layer(layer);
  const Widths w(config);
  const size_t n = rows.rows;

  RmsNorm(context, at.x, w.d, n, 1, w.d, weights.input_norm, scratch.normed, w.d);
  Linear(context, weights.qkv, scratch.normed, w.d, n, at.qkv, w.qkv,
         ForwardSpans(context, rows, layer, Module::kQ, Module::kV));
  LoraForward(context, layer, rows, scratch.normed, w.d, w.qkv,
              {{Module::kQ, at.qkv, at.u[0]},
               {Module::kK, at.qkv + w.q, at.u[1]},
               {Module::kV, at.qkv + w.q + w.kv, at.u[2]}});
  if (config.qk_norm) {
    if (at.qk_raw) {
      for (size_t i = 0; i < n; ++i) {
        std::memcpy(at.qk_raw + i * (w.q + w.kv), at.qkv + i * w.qkv, (w.q + w.kv) * sizeof(float));
      }
    }
    RmsNorm(context, at.qkv, w.qkv, n, config.num_heads, config.head_dim, weights.q_norm, at.qkv,
            w.qkv);
    RmsNorm(context, at.qkv + w.q, w.qkv, n, config.num_kv_heads, config.head_dim, weights.k_norm,
            at.qkv + w.q, w.qkv);
  }
  Rope(context, rows, at.qkv, false);

  kernels::KvWriteArgs write;
  write.shape = ShapeOf(config);
  write.k = at.qkv + w.q;
  write.ldk = w.qkv;
  write.v = at.qkv + w.q + w.kv;
  write.ldv = w.qkv;
  write.sequences = rows.writes.data();
  write.sequenceCount = rows.writes.size();
  context.kernels.writeKv(context.pool, write);

  kernels::AttentionArgs attention;
  attention.shape = ShapeOf(config);
  attention.q = at.qkv;
  attention.ldq = w.qkv;
  attention.o = at.attended;
  attention.ldo = w.q;
  attention.lse = at.lse;
  attention.sequences = rows.attention.data();
  attention.sequenceCount = rows.attention.size();
  context.kernels.attention(context.pool, attention);

  Linear(context, weights.o, at.attended, w.q, n, scratch.normed, w.d,
         ForwardSpans(context, rows, layer, Module::kO, Module::kO));
  LoraForward(context, layer, rows, at.attended, w.q, w.d, {{Module::kO, scratch.normed, at.u[3]}});
  Add(context, at.x, scratch.normed, at.x_mid, n, w.d);

  RmsNorm(context, at.x_mid, w.d, n, 1, w.d, weights.post_attention_norm, scratch.normed, w.d);
  Linear(context, weights.gate_up, scratch.normed, w.d, n, at.gate_up, 2 * w.ff,
         ForwardSpans(context, rows, layer, Module::kGate, Module::kUp));
  LoraForward(context, layer, rows, scratch.normed, w.d, 2 * w.ff,
              {{Module::kGate, at.gate_up, at.u[4]}, {Module::kUp, at.gate_up + w.ff, at.u[5]}});
  Swiglu(context, at.gate_up, n, w.ff, scratch.hidden);
  if (context.mutation && rows.mixed && layer == 0) {
    MutatedLinear(context.kernels, context.pool, weights.down.view, scratch.hidden, n,
                  scratch.normed);
  } else {
    Linear(context, weights.down, scratch.hidden, w.ff, n, scratch.normed, w.d,
           ForwardSpans(context, rows, layer, Module::kDown, Module::kDown));
  }
  LoraForward(context, layer, rows, scratch.hidden, w.ff, w.d,
              {{Module::kDown, scratch.normed, at.u[6]}});
  Add(context, at.x_mid, scratch.normed, output, n, w.d);
}

namespace {

void AttentionBackward(CpuContext& context, const RowContext& rows, const LayerActivations& at,
                       const float* d_attended, float* d_qkv, BackwardGroups& groups) {
  const ModelConfig& config = context.model.config();
  const Widths w(config);
  for (size_t i = 0; i < rows.rows; ++i) {
    std::memset(d_qkv + i * w.qkv + w.q, 0, 2 * w.kv * sizeof(float));
  }
  const size_t count = groups.runs.size();
  groups.args.resize(count);
  groups.ranges.resize(2 * count);
  for (size_t i = 0; i < count; ++i) {
    const BackwardRun& run = groups.runs[i];
    kernels::KvGradientRange* range = &groups.ranges[2 * i];
    const auto add_range = [&](size_t position, size_t length, size_t row) {
      range->positionBegin = position;
      range->positionEnd = position + length;
      range->dk = d_qkv + row * w.qkv + w.q;
      range->lddk = w.qkv;
      range->dv = d_qkv + row * w.qkv + w.q + w.kv;
      range->lddv = w.qkv;
      ++range;
    };
    if (run.shared_count != 0) add_range(0, run.shared_count, run.shared_begin);
    if (!run.is_shared) add_range(run.position_begin, run.row_count, run.row_begin);

    kernels::AttentionBackwardArgs& args = groups.args[i];
    args.shape = ShapeOf(config);
    args.rowCount = run.row_count;
    args.positionBegin = run.position_begin;
    args.pages = run.pages;
    args.q = at.qkv + run.row_begin * w.qkv;
    args.ldq = w.qkv;
    args.o = at.attended + run.row_begin * w.q;
    args.ldo = w.q;
    args.lse = at.lse + run.row_begin * config.num_heads;
    args.dout = d_attended + run.row_begin * w.q;
    args.lddout = w.q;
    args.dq = d_qkv + run.row_begin * w.qkv;
    args.lddq = w.qkv;
    args.ranges = &groups.ranges[2 * i];
    args.rangeCount = range - &groups.ranges[2 * i];
  }
  const size_t group_count = groups.group_begin.size() - 1;
  groups.groups.resize(group_count);
  for (size_t g = 0; g < group_count; ++g) {
    groups.groups[g].runs = &groups.args[groups.group_begin[g]];
    groups.groups[g].runCount = groups.group_begin[g + 1] - groups.group_begin[g];
  }
  context.kernels.attentionBackwardGroups(context.pool, groups.groups.data(), group_count);
}

}  // namespace

void LayerBackward(CpuContext& context, int layer, const RowContext& rows,
                   const LayerActivations& at, const BackwardScratch& s, BackwardGroups& groups,
                   float* dx) {
  const ModelConfig& config = context.model.config();
  const CpuLayer& weights = context.model.layer(layer);
  const Widths w(config);
  const size_t n = rows.rows;

  // MLP. dx is the gradient of the layer's output and, by the residual, a part of that of x_mid.
  Swiglu(context, at.gate_up, n, w.ff, s.hidden);
  ModuleBackward(context, layer, Module::kDown, rows, s.hidden, w.ff, at.u[6], dx, w.d, s.d_hidden,
                 s.du);
  kernels::SwigluBackwardArgs swiglu;
  swiglu.gate = at.gate_up;
  swiglu.up = at.gate_up + w.ff;
  swiglu.ldin = 2 * w.ff;
  swiglu.rows = n;
  swiglu.n = w.ff;
  swiglu.dh = s.d_hidden;
  swiglu.lddh = w.ff;
  swiglu.dgate = s.d_gate_up;
  swiglu.dup = s.d_gate_up + w.ff;
  swiglu.ldout = 2 * w.ff;
  context.kernels.swigluBackward(context.pool, swiglu);
  RmsNorm(context, at.x_mid, w.d, n, 1, w.d, weights.post_attention_norm, s.normed, w.d);
  ModuleBackward(context, layer, Module::kGate, rows, s.normed, w.d, at.u[4], s.d_gate_up, 2 * w.ff,
                 s.d_normed, s.du);
  ModuleBackward(context, layer, Module::kUp, rows, s.normed, w.d, at.u[5], s.d_gate_up + w.ff,
                 2 * w.ff, s.d_part, s.du);
  Add(context, s.d_normed, s.d_part, s.d_normed, n, w.d);
  RmsNormBackward(context, at.x_mid, w.d, n, 1, w.d, weights.post_attention_norm, s.d_normed, w.d);
  Add(context, s.d_normed, dx, dx, n, w.d);

  // Attention. The pages hold this layer's keys again.
  ModuleBackward(context, layer, Module::kO, rows, at.attended, w.q, at.u[3], dx, w.d, s.d_attended,
                 s.du);
  kernels::KvWriteArgs write;
  write.shape = ShapeOf(config);
  write.k = at.qkv + w.q;
  write.ldk = w.qkv;
  write.v = at.qkv + w.q + w.kv;
  write.ldv = w.qkv;
  write.sequences = rows.writes.data();
  write.sequenceCount = rows.writes.size();
  context.kernels.writeKv(context.pool, write);
  AttentionBackward(context, rows, at, s.d_attended, s.d_qkv, groups);
  Rope(context, rows, s.d_qkv, true);
  if (config.qk_norm) {
    RmsNormBackward(context, at.qk_raw, w.q + w.kv, n, config.num_heads, config.head_dim,
                    weights.q_norm, s.d_qkv, w.qkv);
    RmsNormBackward(context, at.qk_raw + w.q, w.q + w.kv, n, config.num_kv_heads, config.head_dim,
                    weights.k_norm, s.d_qkv + w.q, w.qkv);
  }
  RmsNorm(context, at.x, w.d, n, 1, w.d, weights.input_norm, s.normed, w.d);
  const bool first = layer == 0;  // nobody needs the gradient of the embeddings
  ModuleBackward(context, layer, Module::kQ, rows, s.normed, w.d, at.u[0], s.d_qkv, w.qkv,
                 first ? nullptr : s.d_normed, s.du);
  ModuleBackward(context, layer, Module::kK, rows, s.normed, w.d, at.u[1], s.d_qkv + w.q, w.qkv,
                 first ? nullptr : s.d_part, s.du);
  if (!first) Add(context, s.d_normed, s.d_part, s.d_normed, n, w.d);
  ModuleBackward(context, layer, Module::kV, rows, s.normed, w.d, at.u[2], s.d_qkv + w.q + w.kv,
                 w.qkv, first ? nullptr : s.d_part, s.du);
  if (first) return;
  Add(context, s.d_normed, s.d_part, s.d_normed, n, w.d);
  RmsNormBackward(context, at.x, w.d, n, 1, w.d, weights.input_norm, s.d_normed, w.d);
  Add(context, s.d_normed, dx, dx, n, w.d);
}

}  // namespace hotbed
