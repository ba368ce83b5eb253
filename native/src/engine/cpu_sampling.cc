// One sampling step: prefill chunks and decode rows of any policies, one forward pass, then the
// head where asked for.
#include <algorithm>

#include "engine/cpu_buffers.h"
#include "engine/cpu_executor.h"

namespace hotbed {

namespace {

struct StepArena {
  LayerActivations at;
  LayerScratch scratch;
};

}  // namespace

void CpuExecutor::RunSampling(const SamplingPlan& plan, SamplingOutput* output) {
  const ModelConfig& config = model_.config();
  const size_t n = plan.rows();
  SamplingBuffers& buffers = *sampling_;

  const int32_t last = n == 0 ? 0 : *std::max_element(plan.positions.begin(), plan.positions.end());
  model_.EnsurePositions(static_cast<size_t>(last) + 1);
  for (const PageCopy& copy : plan.copies) Page(copy.to);
  pool_.forEach(plan.copies.size(), [&](size_t i, size_t) { CopyPage(plan.copies[i]); });

  RowContext& rows = buffers.rows;
  rows.rows = n;
  rows.positions = plan.positions.data();
  rows.lora.clear();
  rows.max_rank = 1;
  rows.mixed = plan.segments.size() > 1;
  for (const PlanSegment& segment : plan.segments) {
    AddLora(segment.weights, segment.row_begin, segment.row_end, nullptr, &rows);
  }
  buffers.pages.resize(plan.page_ids.size());
  for (size_t i = 0; i < plan.page_ids.size(); ++i) buffers.pages[i] = Page(plan.page_ids[i]);
  rows.writes.resize(plan.spans.size());
  rows.attention.resize(plan.spans.size());
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const SamplingSpan& span = plan.spans[i];
    float** pages = buffers.pages.data() + span.page_begin;
    rows.writes[i] = {span.row_begin, span.row_count, span.position_begin, pages};
    rows.attention[i] = {span.row_begin, span.row_count, span.position_begin, pages};
  }

  const size_t d = config.hidden_size, q = config.q_size(), kv = config.kv_size();
  const size_t ff = config.intermediate_size;
  StepArena step;
  step_arena_.Carve([&](Arena& arena) {
    step.at.x = arena.Take(n * d);
    step.at.x_mid = step.at.x;
    step.at.qkv = arena.Take(n * (q + 2 * kv));
    step.at.attended = arena.Take(n * q);
    step.at.gate_up = arena.Take(n * 2 * ff);
    // At most three modules read one input.
    for (int i = 0; i < 3; ++i) step.at.u[i] = arena.Take(n * rows.max_rank);
    for (int i = 3; i < kLayerModuleCount; ++i) step.at.u[i] = step.at.u[i % 3];
    step.scratch.normed = arena.Take(n * d);
    step.scratch.hidden = arena.Take(n * ff);
  });

  model_.Embed(plan.tokens.data(), n, step.at.x);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    LayerForward(context_, layer, rows, step.at, step.scratch, step.at.x);
    for (float*& page : buffers.pages) page += layer_page_floats_;
  }
  SamplingHead(plan, step.at.x, output);
}

}  // namespace hotbed
