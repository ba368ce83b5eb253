// What the scheduler asks an executor to do: plain data, at the level of rows and segments, never
// of a matrix product.
//
// 1. A row is one token of one sequence at one absolute position. Rows that use one policy are
// contiguous: a segment.
// 2. Nothing in a plan but the rows, their segment's weights and their own sequence's keys decides
// a row's bits; tests cut, merge and reorder plans.
// 3. Buffers are reused from plan to plan: Clear() keeps the capacity.
#ifndef HOTBED_ENGINE_PLAN_H_
#define HOTBED_ENGINE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/adapter_state.h"
#include "engine/engine.h"

namespace hotbed {

// Positions of one key/value page (N3's key block).
constexpr int kPagePositions = 64;

// Rows [row_begin, row_end) run with `weights`; null = the plain base.
struct PlanSegment {
  const AdapterWeights* weights = nullptr;
  size_t row_begin = 0;
  size_t row_end = 0;
};

// Before the step: the first `positions` positions of page `from` are copied to page `to`, all
// layers.
struct PageCopy {
  int32_t from = 0;
  int32_t to = 0;
  int positions = 0;
};

// Consecutive positions of one sequence. Its page of position p is page_ids[page_begin + p / 64].
struct SamplingSpan {
  size_t row_begin = 0;
  size_t row_count = 0;
  size_t position_begin = 0;
  size_t page_begin = 0;
};

// The log-prob of `target` after row `row`.
struct ScoreRequest {
  size_t row = 0;
  int32_t target = 0;
};

// The `count` highest of the logits after row `row` among the ids that the tokenizer defines.
struct TopRequest {
  size_t row = 0;
  size_t count = 0;  // 1..number of those ids
};

struct TopEntry {
  int32_t token = 0;
  float logprob = 0;
};

// One draw from the distribution after row `row`; several draws may share a row. Ascending by row.
struct DrawRequest {
  size_t row = 0;
  uint64_t seed = 0;
  uint32_t draw_index = 0;
  double temperature = 1;
  int top_k = 0;
  double top_p = 1;
};

struct Draw {
  int32_t token = -1;  // -1: no id can be drawn (NaN)
  float policy_logprob = 0;
  float sampling_logprob = 0;
};

struct SamplingPlan {
  std::vector<int32_t> tokens;     // [rows]
  std::vector<int32_t> positions;  // [rows]
  std::vector<PlanSegment> segments;
  std::vector<PageCopy> copies;
  std::vector<SamplingSpan> spans;
  std::vector<int32_t> page_ids;
  std::vector<ScoreRequest> scores;  // ascending by row
  std::vector<DrawRequest> draws;    // ascending by row
  std::vector<TopRequest> tops;      // ascending by row, one per row
  std::vector<size_t> logits_rows;   // rows whose whole logits are wanted, ascending

  size_t rows() const { return tokens.size(); }
  void Clear();
};

struct SamplingOutput {
  std::vector<float> score_logprobs;  // as plan.scores
  std::vector<Draw> draws;            // as plan.draws
  std::vector<TopEntry> tops;         // as plan.tops, `count` each: logit descending, id ascending
  std::vector<float> logits;          // [plan.logits_rows][vocabulary]
};

// A branch: rows at consecutive positions from position_begin. Each is a target row, from
// target_row_begin of the plan's.
struct TrainingRun {
  size_t row_begin = 0;
  size_t row_count = 0;
  size_t position_begin = 0;
  size_t target_row_begin = 0;
};

// Rows of a datum stand in N15's order: branch 0, branch 1, ..., then the shared rows (positions
// 0..shared_count). Every branch row is a target row; target rows stand in row order.
struct TrainingDatum {
  size_t run_begin = 0;
  size_t run_end = 0;
  size_t shared_begin = 0;
  size_t shared_count = 0;
  size_t target_row_begin = 0;
  size_t target_row_end = 0;
};

// Datums of one adapter (null = base), with one loss.
struct TrainingSegment {
  AdapterState* adapter = nullptr;
  bool backward = false;
  LossName loss = LossName::kCrossEntropy;
  float clip_low = 0;
  float clip_high = 0;
  float beta = 0;
  size_t row_begin = 0;
  size_t row_end = 0;
  size_t datum_begin = 0;
  size_t datum_end = 0;
};

// Segments with backward stand before those without.
struct TrainingPlan {
  std::vector<int32_t> tokens;     // [rows]
  std::vector<int32_t> positions;  // [rows]
  std::vector<TrainingSegment> segments;
  std::vector<TrainingDatum> datums;
  std::vector<TrainingRun> runs;
  std::vector<size_t> target_rows;  // [target rows] ascending
  // [target rows + 1] into the arrays below: target row t has entries [offsets[t], offsets[t + 1]).
  std::vector<size_t> target_offsets{0};
  std::vector<int32_t> targets;  // [targets]
  std::vector<float> recorded;   // [targets] recorded log-prob; 0 where the loss has none
  std::vector<float> weights;    // [targets] weight, advantage or given gradient
  std::vector<float> mask;       // [targets] gspo's; 0 elsewhere

  size_t rows() const { return tokens.size(); }
  void Clear();
};

struct TrainingOutput {
  std::vector<float> logprobs;     // as plan.targets
  std::vector<double> datum_loss;  // as plan.datums
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_PLAN_H_
