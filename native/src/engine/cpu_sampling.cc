// One sampling step: prefill chunks and decode rows of any policies, one forward pass, then the
// head where asked for.
#include <algorithm>
#include <cstring>

#include "engine/cpu_buffers.h"
#include "engine/cpu_executor.h"

namespace hotbed {

namespace {

// Logits of at most this many floats are in memory at a time.
constexpr size_t kHeadFloats = size_t{4} << 20;
constexpr size_t kScoreRows = 512;

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

const std::vector<kernels::HeadLora>& CpuExecutor::SamplingHeadLora(const SamplingPlan& plan,
                                                                    const size_t* rows,
                                                                    size_t count) {
  std::vector<kernels::HeadLora>& lora = sampling_->head_lora;
  lora.clear();
  size_t begin = 0;
  for (const PlanSegment& segment : plan.segments) {
    size_t end = begin;
    while (end < count && rows[end] < segment.row_end) ++end;
    if (segment.weights) AddHeadLora(*segment.weights, begin, end, nullptr, &lora);
    begin = end;
  }
  return lora;
}

void CpuExecutor::SamplingHead(const SamplingPlan& plan, const float* x, SamplingOutput* output) {
  const ModelConfig& config = model_.config();
  const size_t d = config.hidden_size, vocab = config.vocab_size;
  SamplingBuffers& buffers = *sampling_;
  output->score_logprobs.resize(plan.scores.size());
  output->draws.resize(plan.draws.size());
  output->logits.resize(plan.logits_rows.size() * vocab);
  size_t top_entries = 0;
  for (const TopRequest& top : plan.tops) top_entries += top.count;
  output->tops.resize(top_entries);
  buffers.top_tokens.resize(top_entries);
  buffers.top_logprobs.resize(top_entries);

  // Rows whose logits are wanted as a whole.
  std::vector<size_t>& full = buffers.full_rows;
  full.clear();
  for (const DrawRequest& draw : plan.draws) full.push_back(draw.row);
  for (const TopRequest& top : plan.tops) full.push_back(top.row);
  full.insert(full.end(), plan.logits_rows.begin(), plan.logits_rows.end());
  std::sort(full.begin(), full.end());
  full.erase(std::unique(full.begin(), full.end()), full.end());
  buffers.other_scores.clear();
  for (size_t i = 0; i < plan.scores.size(); ++i) {
    if (!std::binary_search(full.begin(), full.end(), plan.scores[i].row)) {
      buffers.other_scores.push_back(i);
    }
  }
  const size_t scores = buffers.other_scores.size();

  const size_t full_chunk = std::max<size_t>(1, std::min(full.size(), kHeadFloats / vocab));
  const size_t score_chunk = std::min(scores, kScoreRows);
  const size_t chunk = std::max(full_chunk, score_chunk);
  const size_t rank = sampling_->rows.max_rank;
  float *gathered = nullptr, *normed = nullptr, *lse = nullptr, *logits = nullptr, *u = nullptr;
  head_arena_.Carve([&](Arena& arena) {
    gathered = arena.Take(chunk * d);
    normed = arena.Take(chunk * d);
    lse = arena.Take(chunk);
    logits = arena.Take(full.empty() ? 0 : full_chunk * vocab);
    u = arena.Take(chunk * rank);
  });

  kernels::HeadArgs head;
  head.x = normed;
  head.ldx = d;
  head.weight = model_.head().view;
  head.lse = lse;
  head.ldlogits = vocab;
  head.u = u;
  head.ldu = rank;
  const auto set_lora = [&](const size_t* rows, size_t count) {
    const std::vector<kernels::HeadLora>& lora = SamplingHeadLora(plan, rows, count);
    head.lora = lora.data();
    head.loraCount = lora.size();
  };

  size_t next_draw = 0, next_logits = 0, next_top = 0, next_entry = 0, next_score = 0;
  for (size_t begin = 0; begin < full.size(); begin += full_chunk) {
    const size_t count = std::min(full_chunk, full.size() - begin);
    GatherFinal(x, full.data() + begin, count, gathered, normed);
    head.rows = count;
    head.logits = logits;
    set_lora(full.data() + begin, count);
    kernels_.head(pool_, head);

    const size_t first_draw = next_draw;
    buffers.requests.clear();
    buffers.tops.clear();
    for (size_t i = 0; i < count; ++i) {
      const size_t row = full[begin + i];
      const float* row_logits = logits + i * vocab;
      for (; next_draw < plan.draws.size() && plan.draws[next_draw].row == row; ++next_draw) {
        const DrawRequest& draw = plan.draws[next_draw];
        kernels::SampleArgs args;
        args.logits = row_logits;
        args.vocab = vocab;
        args.idLimit = config.tokenizer_size;
        args.lse = lse[i];
        args.temperature = static_cast<float>(draw.temperature);
        args.topK = draw.top_k;
        args.topP = draw.top_p;
        args.seed = draw.seed;
        args.drawIndex = draw.draw_index;
        buffers.requests.push_back(args);
      }
      for (; next_top < plan.tops.size() && plan.tops[next_top].row == row; ++next_top) {
        kernels::TopTokensArgs args;
        args.logits = row_logits;
        args.idLimit = config.tokenizer_size;
        args.lse = lse[i];
        args.k = plan.tops[next_top].count;
        args.tokens = buffers.top_tokens.data() + next_entry;
        args.logprobs = buffers.top_logprobs.data() + next_entry;
        next_entry += args.k;
        buffers.tops.push_back(args);
      }
      for (; next_score < plan.scores.size() && plan.scores[next_score].row <= row; ++next_score) {
        if (plan.scores[next_score].row != row) continue;
        output->score_logprobs[next_score] = row_logits[plan.scores[next_score].target] - lse[i];
      }
      for (; next_logits < plan.logits_rows.size() && plan.logits_rows[next_logits] == row;
           ++next_logits) {
        std::memcpy(output->logits.data() + next_logits * vocab, row_logits, vocab * sizeof(float));
      }
    }
    kernels_.topTokens(pool_, buffers.tops.data(), buffers.tops.size());
    if (buffers.requests.empty()) continue;
    buffers.results.resize(buffers.requests.size());
    kernels_.sample(pool_, buffers.requests.data(), buffers.requests.size(),
                    buffers.results.data());
    for (size_t i = 0; i < buffers.results.size(); ++i) {
      const kernels::SampleResult& result = buffers.results[i];
      output->draws[first_draw + i] = {result.token, result.policyLogprob, result.samplingLogprob};
    }
  }

  for (size_t i = 0; i < top_entries; ++i) {
    output->tops[i] = {buffers.top_tokens[i], buffers.top_logprobs[i]};
  }

  head.logits = nullptr;
  buffers.other_logprobs.resize(scores);
  for (size_t begin = 0; begin < scores; begin += score_chunk) {
    const size_t count = std::min(score_chunk, scores - begin);
    buffers.score_rows.clear();
    buffers.targets.clear();
    buffers.offsets.assign(1, 0);
    for (size_t i = 0; i < count; ++i) {
      const ScoreRequest& score = plan.scores[buffers.other_scores[begin + i]];
      buffers.score_rows.push_back(score.row);
      buffers.targets.push_back(score.target);
      buffers.offsets.push_back(i + 1);
    }
    GatherFinal(x, buffers.score_rows.data(), count, gathered, normed);
    head.rows = count;
    set_lora(buffers.score_rows.data(), count);
    head.targetOffsets = buffers.offsets.data();
    head.targets = buffers.targets.data();
    head.logprobs = buffers.other_logprobs.data() + begin;
    kernels_.head(pool_, head);
  }
  for (size_t i = 0; i < scores; ++i) {
    output->score_logprobs[buffers.other_scores[i]] = buffers.other_logprobs[i];
  }
}

}  // namespace hotbed
