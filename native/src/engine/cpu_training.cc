// One training pass: forward over the datums of any adapters, losses, then backward for those that
// asked for it.
//
// Rows of a datum stand in N15's order (branches, then shared rows), so every gradient chain is
// plain row order, and a whole layer of all datums can go at once. Keys and values lie in pages for
// attention: full pages of shared positions once, the page in which a branch begins once per
// branch, with the shared keys in it copied.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/cpu_buffers.h"
#include "engine/cpu_executor.h"

namespace hotbed {

namespace {

size_t PagesFor(size_t positions) { return (positions + kPagePositions - 1) / kPagePositions; }

// Pages that a datum takes: those of its shared rows, and those of each branch from the first that
// is not full.
size_t PageCount(const TrainingPlan& plan, const TrainingDatum& datum) {
  const size_t full = datum.shared_count / kPagePositions;
  size_t count = PagesFor(datum.shared_count);
  for (size_t r = datum.run_begin; r < datum.run_end; ++r) {
    count += PagesFor(datum.shared_count + plan.runs[r].row_count) - full;
  }
  return count;
}

kernels::LossKind KindOf(LossName name) {
  switch (name) {
    case LossName::kImportanceSampling:
      return kernels::LossKind::importanceSampling;
    case LossName::kPpo:
      return kernels::LossKind::ppo;
    default:
      return kernels::LossKind::crossEntropy;
  }
}

}  // namespace

// Fills buffers.pages with one page table after another (per datum: shared rows, then each branch),
// and the rows' writes, attention spans and backward runs with pointers into it. `block` holds the
// pages themselves.
void CpuExecutor::LayOutPages(const TrainingPlan& plan, size_t backward_datums, float* block) {
  TrainingBuffers& buffers = *training_;
  // Sizes first: the tables must not move once pointers to them are taken.
  size_t table_entries = 0;
  for (const TrainingDatum& datum : plan.datums) {
    table_entries += PagesFor(datum.shared_count);
    for (size_t r = datum.run_begin; r < datum.run_end; ++r) {
      table_entries += PagesFor(datum.shared_count + plan.runs[r].row_count);
    }
  }
  buffers.pages.resize(table_entries);
  float** table = buffers.pages.data();
  size_t next_page = 0;
  const auto new_page = [&] { return block + next_page++ * layer_page_floats_; };

  RowContext& rows = buffers.rows;
  RowContext& backward = buffers.backward_rows;
  rows.writes.clear();
  rows.attention.clear();
  backward.writes.clear();
  buffers.groups.runs.clear();
  buffers.groups.group_begin.assign(1, 0);
  for (size_t i = 0; i < plan.datums.size(); ++i) {
    const TrainingDatum& datum = plan.datums[i];
    const size_t full = datum.shared_count / kPagePositions;
    const size_t tail = datum.shared_count - full * kPagePositions;
    float** const shared_table = table;
    const size_t shared_pages = PagesFor(datum.shared_count);
    for (size_t p = 0; p < shared_pages; ++p) *table++ = new_page();
    if (datum.shared_count != 0) {
      rows.writes.push_back({datum.shared_begin, datum.shared_count, 0, shared_table});
      rows.attention.push_back({datum.shared_begin, datum.shared_count, 0, shared_table});
    }
    for (size_t r = datum.run_begin; r < datum.run_end; ++r) {
      const TrainingRun& run = plan.runs[r];
      float** const branch_table = table;
      const size_t branch_pages = PagesFor(datum.shared_count + run.row_count);
      for (size_t p = 0; p < branch_pages; ++p) *table++ = p < full ? shared_table[p] : new_page();
      if (tail != 0) {
        rows.writes.push_back({datum.shared_begin + full * kPagePositions, tail,
                               full * kPagePositions, branch_table});
      }
      rows.writes.push_back({run.row_begin, run.row_count, run.position_begin, branch_table});
      rows.attention.push_back({run.row_begin, run.row_count, run.position_begin, branch_table});
      if (i < backward_datums) {
        buffers.groups.runs.push_back({run.row_begin, run.row_count, run.position_begin,
                                       branch_table, datum.shared_begin, datum.shared_count,
                                       false});
      }
    }
    if (i >= backward_datums) continue;
    if (datum.shared_count != 0) {
      buffers.groups.runs.push_back({datum.shared_begin, datum.shared_count, 0, shared_table,
                                     datum.shared_begin, datum.shared_count, true});
    }
    buffers.groups.group_begin.push_back(buffers.groups.runs.size());
    if (i + 1 == backward_datums) {
      backward.writes = rows.writes;
      backward.attention = rows.attention;
    }
  }
}

void CpuExecutor::RunTraining(const TrainingPlan& plan, TrainingOutput* output) {
  const ModelConfig& config = model_.config();
  TrainingBuffers& buffers = *training_;
  const size_t n = plan.rows(), target_count = plan.targets.size();
  const size_t layers = config.num_layers;
  const int32_t last = *std::max_element(plan.positions.begin(), plan.positions.end());
  model_.EnsurePositions(static_cast<size_t>(last) + 1);

  // Segments with a backward pass come first, so its rows, datums and targets are prefixes.
  size_t back = 0, back_datums = 0;
  RowContext& rows = buffers.rows;
  RowContext& backward_rows = buffers.backward_rows;
  rows.lora.clear();
  rows.max_rank = 1;
  const AdapterState* first_adapter = plan.segments.front().adapter;
  rows.mixed = false;
  for (const TrainingSegment& segment : plan.segments) {
    rows.mixed = rows.mixed || segment.adapter != first_adapter;
    if (segment.backward) {
      back = segment.row_end;
      back_datums = segment.datum_end;
    }
    if (!segment.adapter) continue;
    AddLora(segment.adapter->weights.get(), segment.row_begin, segment.row_end,
            segment.backward ? segment.adapter->gradient.data() : nullptr, &rows);
  }
  rows.rows = n;
  rows.positions = plan.positions.data();
  backward_rows.rows = back;
  backward_rows.positions = rows.positions;
  backward_rows.max_rank = rows.max_rank;
  backward_rows.mixed = rows.mixed;
  backward_rows.lora.clear();
  for (const LoraRows& lora : rows.lora) {
    if (lora.gradient) backward_rows.lora.push_back(lora);
  }
  const size_t back_targets = back_datums == 0 ? 0 : plan.datums[back_datums - 1].target_end;

  size_t page_count = 0;
  for (const TrainingDatum& datum : plan.datums) page_count += PageCount(plan, datum);

  const size_t d = config.hidden_size, q = config.q_size(), kv = config.kv_size();
  const size_t ff = config.intermediate_size, rank = rows.max_rank;
  const size_t raw = config.qk_norm ? q + kv : 0;
  const size_t layer_floats =
      n * (d + raw + q + 2 * kv + config.num_heads + q + d + 2 * ff + kLayerModuleCount * rank);
  const bool keep =
      back != 0 && layers * layer_floats * sizeof(float) <= options_.activation_budget_bytes;

  LayerScratch scratch;
  BackwardScratch back_scratch;
  float *final_x = nullptr, *gathered = nullptr, *normed = nullptr, *lse = nullptr;
  float *dx = nullptr, *d_final = nullptr, *pages = nullptr;
  buffers.layers.resize(layers);
  const auto take_layer = [&](Arena& arena, LayerActivations* at) {
    at->qk_raw = raw != 0 && back != 0 ? arena.Take(n * raw) : nullptr;
    at->qkv = arena.Take(n * (q + 2 * kv));
    at->lse = back != 0 ? arena.Take(n * config.num_heads) : nullptr;
    at->attended = arena.Take(n * q);
    at->x_mid = arena.Take(n * d);
    at->gate_up = arena.Take(n * 2 * ff);
    for (float*& u : at->u) u = arena.Take(n * rank);
  };
  arena_.Carve([&](Arena& arena) {
    LayerActivations shared;
    if (!keep) take_layer(arena, &shared);
    final_x = arena.Take(n * d);
    for (LayerActivations& at : buffers.layers) {
      if (keep) {
        take_layer(arena, &at);
      } else {
        at = shared;
      }
      at.x = back != 0 ? arena.Take(n * d) : final_x;  // without a backward pass, in place
    }
    gathered = arena.Take(target_count * d);
    normed = arena.Take(target_count * d);
    lse = arena.Take(target_count);
    pages = arena.Take(page_count * layer_page_floats_);
    scratch.normed = arena.Take(n * d);
    scratch.hidden = arena.Take(n * ff);
    back_scratch.normed = scratch.normed;
    back_scratch.hidden = scratch.hidden;
    back_scratch.d_hidden = arena.Take(back * ff);
    back_scratch.d_gate_up = arena.Take(back * 2 * ff);
    back_scratch.d_normed = arena.Take(back * d);
    back_scratch.d_part = arena.Take(back * d);
    back_scratch.d_attended = arena.Take(back * q);
    back_scratch.d_qkv = arena.Take(back * (q + 2 * kv));
    back_scratch.du = arena.Take(back * rank);
    dx = arena.Take(back * d);
    d_final = arena.Take(back_targets * d);
  });
  LayOutPages(plan, back_datums, pages);

  model_.Embed(plan.tokens.data(), n, buffers.layers[0].x);
  for (size_t layer = 0; layer < layers; ++layer) {
    float* out = layer + 1 < layers ? buffers.layers[layer + 1].x : final_x;
    LayerForward(context_, static_cast<int>(layer), rows, buffers.layers[layer], scratch, out);
  }

  // Head and losses. Each target row has one target.
  output->logprobs.resize(target_count);
  output->datum_loss.resize(plan.datums.size());
  buffers.c.resize(target_count);
  if (buffers.offsets.size() < target_count + 1) {
    for (size_t i = buffers.offsets.size(); i <= target_count; ++i) buffers.offsets.push_back(i);
  }
  GatherFinal(final_x, plan.target_rows.data(), target_count, gathered, normed);
  kernels::HeadArgs head;
  head.x = normed;
  head.ldx = d;
  head.rows = target_count;
  head.weight = model_.head().view;
  head.lse = lse;
  head.targetOffsets = buffers.offsets.data();
  head.targets = plan.targets.data();
  head.logprobs = output->logprobs.data();
  kernels_.head(pool_, head);
  for (const TrainingSegment& segment : plan.segments) {
    for (size_t i = segment.datum_begin; i < segment.datum_end; ++i) {
      const TrainingDatum& datum = plan.datums[i];
      kernels::LossArgs loss;
      loss.kind = KindOf(segment.loss);
      loss.count = datum.target_end - datum.target_begin;
      loss.logprobs = output->logprobs.data() + datum.target_begin;
      loss.recorded = plan.recorded.data() + datum.target_begin;
      loss.weights = plan.weights.data() + datum.target_begin;
      loss.clipLow = segment.clip_low;
      loss.clipHigh = segment.clip_high;
      loss.c = buffers.c.data() + datum.target_begin;
      output->datum_loss[i] = kernels_.loss(loss);
    }
  }
  if (back == 0) return;

  kernels::HeadBackwardArgs head_backward;
  head_backward.x = normed;
  head_backward.ldx = d;
  head_backward.rows = back_targets;
  head_backward.weight = model_.head().view;
  head_backward.weightTransposed = model_.head_backward().view;
  head_backward.lse = lse;
  head_backward.targetOffsets = buffers.offsets.data();
  head_backward.targets = plan.targets.data();
  head_backward.c = buffers.c.data();
  head_backward.dx = d_final;
  head_backward.lddx = d;
  kernels_.headBackward(pool_, head_backward);
  kernels::RmsNormBackwardArgs norm;
  norm.x = gathered;
  norm.ldx = d;
  norm.rows = back_targets;
  norm.n = d;
  norm.w = model_.final_norm().data();
  norm.eps = config.rms_norm_eps;
  norm.dy = d_final;
  norm.lddy = d;
  norm.dx = d_final;
  norm.lddx = d;
  kernels_.rmsNormBackward(pool_, norm);
  std::memset(dx, 0, back * d * sizeof(float));  // shared rows have no target
  for (size_t i = 0; i < back_targets; ++i) {
    std::memcpy(dx + plan.target_rows[i] * d, d_final + i * d, d * sizeof(float));
  }

  for (size_t layer = layers; layer-- > 0;) {
    const LayerActivations& at = buffers.layers[layer];
    if (!keep) {
      // The same function over the same rows gives the same bits; its output is not needed again.
      LayerForward(context_, static_cast<int>(layer), backward_rows, at, scratch, final_x);
    }
    LayerBackward(context_, static_cast<int>(layer), backward_rows, at, back_scratch,
                  buffers.groups, dx);
  }
}

}  // namespace hotbed
