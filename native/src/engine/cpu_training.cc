// One training pass, in slices: forward over the datums of any adapters, losses, then backward for
// those that asked for it.
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
#include "engine/flops.h"

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

// Of one row through one layer in one direction; attention and adapters are left out.
double LayerFlops(const ModelConfig& config) { return FlopsModel(config).layer(); }

double HeadFlops(const ModelConfig& config) { return FlopsModel(config).head(); }

}  // namespace

// Fills pass.pages with one page table after another (per datum: shared rows, then each branch),
// and the rows' writes, attention spans and backward runs with pointers into it. `page_block` holds
// the pages themselves.
void CpuExecutor::LayOutPages(TrainingPass* pass) {
  TrainingPass& buffers = *pass;
  const TrainingPlan& plan = *pass->plan;
  const size_t backward_datums = pass->backward_datums;
  float* const block = pass->page_block;
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

void CpuExecutor::LayOutRows(TrainingPass* pass) {
  const TrainingPlan& plan = *pass->plan;
  size_t backward_rows = 0;
  pass->backward_datums = 0;
  RowContext& rows = pass->rows;
  RowContext& backward = pass->backward_rows;
  rows.lora.clear();
  rows.max_rank = 1;
  rows.mixed = false;
  pass->held.clear();
  for (const TrainingSegment& segment : plan.segments) {
    rows.mixed = rows.mixed || segment.adapter != plan.segments.front().adapter;
    if (segment.backward) {
      backward_rows = segment.row_end;
      pass->backward_datums = segment.datum_end;
    }
    if (!segment.adapter) continue;
    const AdapterWeights* weights = segment.adapter->weights.get();
    AddLora(weights, segment.row_begin, segment.row_end,
            segment.backward ? segment.adapter->gradient.data() : nullptr, &rows);
    pass->held.push_back(weights->executor_copy);
  }
  rows.rows = plan.rows();
  rows.positions = plan.positions.data();
  backward.rows = backward_rows;
  backward.positions = rows.positions;
  backward.max_rank = rows.max_rank;
  backward.mixed = rows.mixed;
  backward.lora.clear();
  for (const LoraRows& lora : rows.lora) {
    if (lora.gradient) backward.lora.push_back(lora);
  }
  pass->backward_targets =
      pass->backward_datums == 0 ? 0 : plan.datums[pass->backward_datums - 1].target_row_end;
  LayOutHead(pass);
}

// The head's adapters over target rows. Segments stand in row order, so do their target rows.
void CpuExecutor::LayOutHead(TrainingPass* pass) {
  const TrainingPlan& plan = *pass->plan;
  pass->head_lora.clear();
  pass->head_rank = 0;
  for (const TrainingSegment& segment : plan.segments) {
    if (!segment.adapter || segment.datum_begin == segment.datum_end) continue;
    AddHeadLora(*segment.adapter->weights, plan.datums[segment.datum_begin].target_row_begin,
                plan.datums[segment.datum_end - 1].target_row_end,
                segment.backward ? segment.adapter->gradient.data() : nullptr, &pass->head_lora);
  }
  for (const kernels::HeadLora& lora : pass->head_lora) {
    pass->head_rank = std::max(pass->head_rank, lora.rank);
  }
}

size_t CpuExecutor::rows_kept(size_t rank) const {
  const ModelConfig& config = model_.config();
  const size_t q = config.q_size(), kv = config.kv_size();
  const size_t raw = config.qk_norm ? q + kv : 0;
  const size_t layer_floats = 2 * config.hidden_size + raw + 2 * q + 2 * kv + config.num_heads +
                              2 * config.intermediate_size + kLayerModuleCount * rank;
  return options_.activation_budget_bytes / (config.num_layers * layer_floats * sizeof(float));
}

void CpuExecutor::LayOutMemory(TrainingPass* pass) {
  const ModelConfig& config = model_.config();
  const TrainingPlan& plan = *pass->plan;
  const size_t n = plan.rows(), back = pass->backward_rows.rows;
  const size_t targets = plan.target_rows.size();
  const size_t layers = config.num_layers;
  size_t page_count = 0;
  for (const TrainingDatum& datum : plan.datums) page_count += PageCount(plan, datum);

  const size_t d = config.hidden_size, q = config.q_size(), kv = config.kv_size();
  const size_t ff = config.intermediate_size, rank = pass->rows.max_rank;
  const size_t raw = config.qk_norm ? q + kv : 0;
  pass->keeps_activations = back != 0 && n <= rows_kept(rank);

  pass->keeps_logits = KeepsLogits(*pass);
  pass->layers.resize(layers);
  const auto take_layer = [&](Arena& arena, LayerActivations* at) {
    at->qk_raw = raw != 0 && back != 0 ? arena.Take(n * raw) : nullptr;
    at->qkv = arena.Take(n * (q + 2 * kv));
    at->lse = back != 0 ? arena.Take(n * config.num_heads) : nullptr;
    at->attended = arena.Take(n * q);
    at->x_mid = arena.Take(n * d);
    at->gate_up = arena.Take(n * 2 * ff);
    for (float*& u : at->u) u = arena.Take(n * rank);
  };
  pass_arena_.Carve([&](Arena& arena) {
    LayerActivations shared;
    if (!pass->keeps_activations) take_layer(arena, &shared);
    pass->final_x = arena.Take(n * d);
    for (LayerActivations& at : pass->layers) {
      if (pass->keeps_activations) {
        take_layer(arena, &at);
      } else {
        at = shared;
      }
      at.x = back != 0 ? arena.Take(n * d) : pass->final_x;  // without a backward pass, in place
    }
    pass->gathered = arena.Take(targets * d);
    pass->normed = arena.Take(targets * d);
    pass->lse = arena.Take(targets);
    pass->head_u = arena.Take(targets * pass->head_rank);
    pass->head_du = arena.Take(std::min(kHeadSlice, pass->backward_targets) * pass->head_rank);
    pass->head_logits = pass->keeps_logits ? arena.Take(HeadSliceFloats()) : nullptr;
    pass->page_block = arena.Take(page_count * layer_page_floats_);
    pass->scratch.normed = arena.Take(n * d);
    pass->scratch.hidden = arena.Take(n * ff);
    BackwardScratch& scratch = pass->back_scratch;
    scratch.normed = pass->scratch.normed;
    scratch.hidden = pass->scratch.hidden;
    scratch.d_hidden = arena.Take(back * ff);
    scratch.d_gate_up = arena.Take(back * 2 * ff);
    scratch.d_normed = arena.Take(back * d);
    scratch.d_part = arena.Take(back * d);
    scratch.d_attended = arena.Take(back * q);
    scratch.d_qkv = arena.Take(back * (q + 2 * kv));
    scratch.du = arena.Take(back * rank);
    pass->dx = arena.Take(back * d);
    pass->d_final = arena.Take(pass->backward_targets * d);
  });
}

void CpuExecutor::BeginTraining(const TrainingPlan& plan, TrainingOutput* output) {
  TrainingPass* pass = pass_.get();
  pass->plan = &plan;
  pass->output = output;
  pass->phase = TrainingPass::Phase::kOver;  // until everything below has succeeded
  const int32_t last = *std::max_element(plan.positions.begin(), plan.positions.end());
  model_.EnsurePositions(static_cast<size_t>(last) + 1);
  LayOutRows(pass);
  LayOutMemory(pass);
  LayOutPages(pass);
  output->logprobs.resize(plan.targets.size());
  output->datum_loss.assign(plan.datums.size(), 0);
  pass->c.resize(plan.targets.size());
  model_.Embed(plan.tokens.data(), plan.rows(), pass->layers[0].x);

  const ModelConfig& config = model_.config();
  const double layer = LayerFlops(config), head = HeadFlops(config), layers = config.num_layers;
  const double rows = plan.rows(), back = pass->backward_rows.rows;
  pass->flops_total =
      layers * layer * (rows + back * (pass->keeps_activations ? 1 : 2)) +
      head * (plan.target_rows.size() + (pass->keeps_logits ? 1.0 : 2.0) * pass->backward_targets);
  pass->flops_done = 0;
  pass->next = 0;
  pass->phase = TrainingPass::Phase::kForward;
}

double CpuExecutor::AdvanceTraining() {
  TrainingPass* pass = pass_.get();
  try {
    double spent = 0;
    do {
      spent += TrainingSlice(pass);
    } while (pass->phase != TrainingPass::Phase::kOver && spent < options_.slice_flops);
    pass->flops_done += spent;
  } catch (...) {
    pass->phase = TrainingPass::Phase::kOver;
    pass->held.clear();
    throw;
  }
  if (pass->phase != TrainingPass::Phase::kOver) {
    return std::min(pass->flops_done / pass->flops_total, 0.999);
  }
  pass->held.clear();
  return 1;
}

double CpuExecutor::TrainingSlice(TrainingPass* pass) {
  using Phase = TrainingPass::Phase;
  const ModelConfig& config = model_.config();
  const size_t layers = config.num_layers;
  switch (pass->phase) {
    case Phase::kForward: {
      const size_t layer = pass->next++;
      float* out = layer + 1 < layers ? pass->layers[layer + 1].x : pass->final_x;
      LayerForward(context_, static_cast<int>(layer), pass->rows, pass->layers[layer],
                   pass->scratch, out);
      if (pass->next == layers) {
        pass->phase = Phase::kHead;
        pass->next = 0;
      }
      return LayerFlops(config) * pass->rows.rows;
    }
    case Phase::kHead:
    case Phase::kHeadBackward:
      return HeadFlops(config) * AdvanceHead(pass);
    case Phase::kBackward: {
      const size_t layer = --pass->next;
      const LayerActivations& at = pass->layers[layer];
      if (!pass->keeps_activations) {
        // The same function over the same rows gives the same bits; its output is not needed again.
        LayerForward(context_, static_cast<int>(layer), pass->backward_rows, at, pass->scratch,
                     pass->final_x);
      }
      LayerBackward(context_, static_cast<int>(layer), pass->backward_rows, at, pass->back_scratch,
                    pass->groups, pass->dx);
      if (layer == 0) pass->phase = Phase::kOver;
      return LayerFlops(config) * pass->backward_rows.rows * (pass->keeps_activations ? 1 : 2);
    }
    case Phase::kOver:
      break;
  }
  return 0;
}

}  // namespace hotbed
