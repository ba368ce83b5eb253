// The head of a sampling step: draws, likeliest tokens, whole logits and log-probs of given tokens.
//
// Rows of which more than single log-probs are wanted have their logits in memory, a chunk of rows
// at a time; log-probs alone need no logits.
#include <algorithm>
#include <cstring>

#include "engine/cpu_buffers.h"
#include "engine/cpu_executor.h"

namespace hotbed {

namespace {

// Logits of at most this many floats are in memory at a time.
constexpr size_t kHeadFloats = size_t{4} << 20;
constexpr size_t kScoreRows = 512;

}  // namespace

// What all chunks of a step share. Chunks of the two kinds use the same memory, one after another.
struct CpuExecutor::SamplingHeadStep {
  const float* x = nullptr;   // [plan rows, d] after the last layer
  size_t full_chunk = 0;      // rows of a chunk with logits
  size_t score_chunk = 0;     // rows of a chunk without
  float* gathered = nullptr;  // [rows of a chunk, d], before the final norm
  float* normed = nullptr;    // [rows of a chunk, d] after it
  float* lse = nullptr;       // [rows of a chunk]
  float* logits = nullptr;    // [full_chunk, vocabulary]
  kernels::HeadArgs head;
  // The next of the plan's requests and of the output's top entries; all ascend by row.
  size_t next_draw = 0, next_top = 0, next_entry = 0, next_score = 0, next_logits = 0;
};

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

// Fills full_rows with the rows whose logits are wanted, other_scores with the scores in the rest.
void CpuExecutor::ListHeadRows(const SamplingPlan& plan) {
  SamplingBuffers& buffers = *sampling_;
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
  ListHeadRows(plan);

  SamplingHeadStep step;
  step.x = x;
  const size_t full = buffers.full_rows.size();
  step.full_chunk = std::max<size_t>(1, std::min(full, kHeadFloats / vocab));
  step.score_chunk = std::min(buffers.other_scores.size(), kScoreRows);
  const size_t chunk = std::max(step.full_chunk, step.score_chunk);
  const size_t rank = buffers.rows.max_rank;
  head_arena_.Carve([&](Arena& arena) {
    step.gathered = arena.Take(chunk * d);
    step.normed = arena.Take(chunk * d);
    step.lse = arena.Take(chunk);
    step.logits = arena.Take(full == 0 ? 0 : step.full_chunk * vocab);
    step.head.u = arena.Take(chunk * rank);
  });
  step.head.x = step.normed;
  step.head.ldx = d;
  step.head.weight = model_.head().view;
  step.head.lse = step.lse;
  step.head.ldlogits = vocab;
  step.head.ldu = rank;

  for (size_t begin = 0; begin < full; begin += step.full_chunk) {
    HeadWithLogits(plan, begin, std::min(step.full_chunk, full - begin), &step, output);
  }
  for (size_t i = 0; i < top_entries; ++i) {
    output->tops[i] = {buffers.top_tokens[i], buffers.top_logprobs[i]};
  }
  HeadOfScores(plan, &step, output);
}

// The head over some rows of the plan, ascending.
void CpuExecutor::RunHead(const SamplingPlan& plan, const size_t* rows, size_t count,
                          SamplingHeadStep* step) {
  GatherFinal(step->x, rows, count, step->gathered, step->normed);
  const std::vector<kernels::HeadLora>& lora = SamplingHeadLora(plan, rows, count);
  step->head.rows = count;
  step->head.lora = lora.data();
  step->head.loraCount = lora.size();
  kernels_.head(pool_, step->head);
}

// All that is wanted of full_rows [begin, begin + count).
void CpuExecutor::HeadWithLogits(const SamplingPlan& plan, size_t begin, size_t count,
                                 SamplingHeadStep* step, SamplingOutput* output) {
  SamplingBuffers& buffers = *sampling_;
  const size_t vocab = model_.config().vocab_size;
  const size_t* rows = buffers.full_rows.data() + begin;
  step->head.logits = step->logits;
  RunHead(plan, rows, count, step);

  const size_t first_draw = step->next_draw;
  buffers.requests.clear();
  buffers.tops.clear();
  for (size_t i = 0; i < count; ++i) {
    TakeRow(plan, rows[i], step->logits + i * vocab, step->lse[i], step, output);
  }
  kernels_.topTokens(pool_, buffers.tops.data(), buffers.tops.size());
  if (buffers.requests.empty()) return;
  buffers.results.resize(buffers.requests.size());
  kernels_.sample(pool_, buffers.requests.data(), buffers.requests.size(), buffers.results.data());
  for (size_t i = 0; i < buffers.results.size(); ++i) {
    const kernels::SampleResult& result = buffers.results[i];
    output->draws[first_draw + i] = {result.token, result.policyLogprob, result.samplingLogprob};
  }
}

// Queues the draws and likeliest tokens of one row for the kernels, and answers what needs none.
void CpuExecutor::TakeRow(const SamplingPlan& plan, size_t row, const float* logits, float lse,
                          SamplingHeadStep* step, SamplingOutput* output) {
  const ModelConfig& config = model_.config();
  const size_t vocab = config.vocab_size;
  SamplingBuffers& buffers = *sampling_;
  size_t& next_draw = step->next_draw;
  for (; next_draw < plan.draws.size() && plan.draws[next_draw].row == row; ++next_draw) {
    const DrawRequest& draw = plan.draws[next_draw];
    kernels::SampleArgs args;
    args.logits = logits;
    args.vocab = vocab;
    args.idLimit = config.tokenizer_size;
    args.lse = lse;
    args.temperature = static_cast<float>(draw.temperature);
    args.topK = draw.top_k;
    args.topP = draw.top_p;
    args.seed = draw.seed;
    args.drawIndex = draw.draw_index;
    buffers.requests.push_back(args);
  }
  size_t& next_top = step->next_top;
  for (; next_top < plan.tops.size() && plan.tops[next_top].row == row; ++next_top) {
    kernels::TopTokensArgs args;
    args.logits = logits;
    args.idLimit = config.tokenizer_size;
    args.lse = lse;
    args.k = plan.tops[next_top].count;
    args.tokens = buffers.top_tokens.data() + step->next_entry;
    args.logprobs = buffers.top_logprobs.data() + step->next_entry;
    step->next_entry += args.k;
    buffers.tops.push_back(args);
  }
  size_t& next_score = step->next_score;
  for (; next_score < plan.scores.size() && plan.scores[next_score].row <= row; ++next_score) {
    if (plan.scores[next_score].row != row) continue;
    output->score_logprobs[next_score] = logits[plan.scores[next_score].target] - lse;
  }
  size_t& next_logits = step->next_logits;
  for (; next_logits < plan.logits_rows.size() && plan.logits_rows[next_logits] == row;
       ++next_logits) {
    std::memcpy(output->logits.data() + next_logits * vocab, logits, vocab * sizeof(float));
  }
}

// The scores in rows of which nothing else is wanted.
void CpuExecutor::HeadOfScores(const SamplingPlan& plan, SamplingHeadStep* step,
                               SamplingOutput* output) {
  SamplingBuffers& buffers = *sampling_;
  const size_t scores = buffers.other_scores.size();
  step->head.logits = nullptr;
  buffers.other_logprobs.resize(scores);
  for (size_t begin = 0; begin < scores; begin += step->score_chunk) {
    const size_t count = std::min(step->score_chunk, scores - begin);
    buffers.score_rows.clear();
    buffers.targets.clear();
    buffers.offsets.assign(1, 0);
    for (size_t i = 0; i < count; ++i) {
      const ScoreRequest& score = plan.scores[buffers.other_scores[begin + i]];
      buffers.score_rows.push_back(score.row);
      buffers.targets.push_back(score.target);
      buffers.offsets.push_back(i + 1);
    }
    step->head.targetOffsets = buffers.offsets.data();
    step->head.targets = buffers.targets.data();
    step->head.logprobs = buffers.other_logprobs.data() + begin;
    RunHead(plan, buffers.score_rows.data(), count, step);
  }
  for (size_t i = 0; i < scores; ++i) {
    output->score_logprobs[buffers.other_scores[i]] = buffers.other_logprobs[i];
  }
}

}  // namespace hotbed
