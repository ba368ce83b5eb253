// The head of a training pass, in slices of target rows: log-probs, losses, and dx of the last
// layer's output.
//
// Where every loss with a backward pass is token-wise, a slice goes all the way at once and its
// logits are kept in between, which saves a third of the head's work. A loss over whole sequences
// needs all log-probs first: then the logits are computed again.
#include <algorithm>
#include <cstring>

#include "engine/cpu_buffers.h"
#include "engine/cpu_executor.h"

namespace hotbed {

namespace {

// Beyond so many bytes of logits they are computed again: vocabularies up to about 290,000 ids fit.
constexpr size_t kMostLogitBytes = size_t{128} << 20;

kernels::LossKind KindOf(LossName name) {
  switch (name) {
    case LossName::kCrossEntropy:
      break;
    case LossName::kImportanceSampling:
      return kernels::LossKind::importanceSampling;
    case LossName::kPpo:
      return kernels::LossKind::ppo;
    case LossName::kCispo:
      return kernels::LossKind::cispo;
    case LossName::kDro:
      return kernels::LossKind::dro;
    case LossName::kGspo:
      return kernels::LossKind::gspo;
    case LossName::kGivenGradient:
      return kernels::LossKind::givenGradient;
  }
  return kernels::LossKind::crossEntropy;
}

}  // namespace

// Floats between rows of kept logits: 16 off a multiple of 4 KiB, or a register tile's rows would
// all fall into one set of the L1 cache.
size_t CpuExecutor::HeadSliceStride() const {
  return (model_.config().vocab_size + 1023) / 1024 * 1024 + 16;
}

size_t CpuExecutor::HeadSliceFloats() const { return kHeadSlice * HeadSliceStride(); }

bool CpuExecutor::KeepsLogits(const TrainingPass& pass) const {
  if (pass.backward_targets == 0) return false;
  if (HeadSliceFloats() * sizeof(float) > kMostLogitBytes) return false;
  for (const TrainingSegment& segment : pass.plan->segments) {
    if (segment.backward && !kernels::isTokenWise(KindOf(segment.loss))) return false;
  }
  return true;
}

// The next slice of the pass's head. Returns its cost in rows through the head.
double CpuExecutor::AdvanceHead(TrainingPass* pass) {
  using Phase = TrainingPass::Phase;
  const size_t targets = pass->plan->target_rows.size(), back = pass->backward_targets;
  const size_t begin = pass->next;
  if (pass->phase == Phase::kHeadBackward) {
    const size_t end = std::min(begin + kHeadSlice, back);
    HeadGradient(pass, begin, end - begin);
    pass->next = end;
    if (end == back) BeginLayersBackward(pass);
    return 2.0 * (end - begin);
  }
  if (begin == 0 && back != 0) {  // shared rows have no target
    std::memset(pass->dx, 0,
                pass->backward_rows.rows * model_.config().hidden_size * sizeof(float));
  }
  // A slice with a gradient does not run on into rows without one.
  const size_t limit = pass->keeps_logits && begin < back ? back : targets;
  const size_t end = std::min(begin + kHeadSlice, limit);
  ScoreTargets(pass, begin, end - begin);
  const bool whole = pass->keeps_logits && end <= back;
  if (whole) {
    ComputeLosses(pass, begin, end);
    HeadGradient(pass, begin, end - begin);
  }
  pass->next = end;
  if (end == targets) {
    ComputeLosses(pass, pass->keeps_logits ? back : 0, targets);
    if (back == 0) {
      pass->phase = Phase::kOver;
    } else if (pass->keeps_logits) {
      BeginLayersBackward(pass);
    } else {
      pass->phase = Phase::kHeadBackward;
      pass->next = 0;
    }
  }
  return (whole ? 2.0 : 1.0) * (end - begin);
}

void CpuExecutor::BeginLayersBackward(TrainingPass* pass) {
  pass->phase = TrainingPass::Phase::kBackward;
  pass->next = model_.config().num_layers;
}

// Adapters of target rows [begin, begin + count), counted from `begin`.
const std::vector<kernels::HeadLora>& CpuExecutor::LoraOfSlice(TrainingPass* pass, size_t begin,
                                                               size_t count) {
  pass->head_slice.clear();
  for (kernels::HeadLora lora : pass->head_lora) {
    if (lora.rowEnd <= begin || lora.rowBegin >= begin + count) continue;
    lora.rowBegin = std::max(lora.rowBegin, begin) - begin;
    lora.rowEnd = std::min(lora.rowEnd, begin + count) - begin;
    pass->head_slice.push_back(lora);
  }
  return pass->head_slice;
}

// Log-probs of the targets of target rows [begin, begin + count).
void CpuExecutor::ScoreTargets(TrainingPass* pass, size_t begin, size_t count) {
  const size_t d = model_.config().hidden_size;
  GatherFinal(pass->final_x, pass->plan->target_rows.data() + begin, count,
              pass->gathered + begin * d, pass->normed + begin * d);
  kernels::HeadArgs head;
  head.x = pass->normed + begin * d;
  head.ldx = d;
  head.rows = count;
  head.weight = model_.head().view;
  head.lse = pass->lse + begin;
  head.targetOffsets = pass->plan->target_offsets.data() + begin;
  head.targets = pass->plan->targets.data();
  head.logprobs = pass->output->logprobs.data();
  const std::vector<kernels::HeadLora>& lora = LoraOfSlice(pass, begin, count);
  head.lora = lora.data();
  head.loraCount = lora.size();
  head.u = pass->head_u + begin * pass->head_rank;
  head.ldu = pass->head_rank;
  if (pass->keeps_logits && begin < pass->backward_targets) {
    head.logits = pass->head_logits;
    head.ldlogits = HeadSliceStride();
  }
  kernels_.head(pool_, head);
}

// Losses of the targets of target rows [begin, end), which hold whole branches or have losses that
// may be cut anywhere; each datum's sum is carried on.
void CpuExecutor::ComputeLosses(TrainingPass* pass, size_t begin, size_t end) {
  const TrainingPlan& plan = *pass->plan;
  for (const TrainingSegment& segment : plan.segments) {
    for (size_t i = segment.datum_begin; i < segment.datum_end; ++i) {
      const TrainingDatum& datum = plan.datums[i];
      for (size_t r = datum.run_begin; r < datum.run_end; ++r) {
        const TrainingRun& run = plan.runs[r];
        const size_t from = std::max<size_t>(begin, run.target_row_begin);
        const size_t to = std::min<size_t>(end, run.target_row_begin + run.row_count);
        if (from >= to) continue;
        const size_t first = plan.target_offsets[from];
        kernels::LossArgs loss;
        loss.kind = KindOf(segment.loss);
        loss.count = plan.target_offsets[to] - first;
        loss.logprobs = pass->output->logprobs.data() + first;
        loss.recorded = plan.recorded.data() + first;
        loss.weights = plan.weights.data() + first;
        loss.mask = plan.mask.data() + first;
        loss.clipLow = segment.clip_low;
        loss.clipHigh = segment.clip_high;
        loss.beta = segment.beta;
        loss.c = pass->c.data() + first;
        loss.sum = pass->output->datum_loss[i];
        pass->output->datum_loss[i] = kernels_.loss(loss);
      }
    }
  }
}

// dx of the last layer's output at target rows [begin, begin + count), and the gradients of the
// head's adapters carried over them.
void CpuExecutor::HeadGradient(TrainingPass* pass, size_t begin, size_t count) {
  const ModelConfig& config = model_.config();
  const size_t d = config.hidden_size;
  float* d_final = pass->d_final + begin * d;
  kernels::HeadBackwardArgs head;
  head.x = pass->normed + begin * d;
  head.ldx = d;
  head.rows = count;
  head.weight = model_.head().view;
  head.weightTransposed = model_.head_backward().view;
  head.lse = pass->lse + begin;
  head.logits = pass->head_logits;
  head.ldlogits = HeadSliceStride();
  head.targetOffsets = pass->plan->target_offsets.data() + begin;
  head.targets = pass->plan->targets.data();
  head.c = pass->c.data();
  head.dx = d_final;
  head.lddx = d;
  const std::vector<kernels::HeadLora>& lora = LoraOfSlice(pass, begin, count);
  head.lora = lora.data();
  head.loraCount = lora.size();
  head.u = pass->head_u + begin * pass->head_rank;
  head.ldu = pass->head_rank;
  head.du = pass->head_du;
  head.lddu = pass->head_rank;
  kernels_.headBackward(pool_, head);
  kernels::RmsNormBackwardArgs norm;
  norm.x = pass->gathered + begin * d;
  norm.ldx = d;
  norm.rows = count;
  norm.n = d;
  norm.w = model_.final_norm().data();
  norm.eps = config.rms_norm_eps;
  norm.dy = d_final;
  norm.lddy = d;
  norm.dx = d_final;
  norm.lddx = d;
  kernels_.rmsNormBackward(pool_, norm);
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(pass->dx + pass->plan->target_rows[begin + i] * d, d_final + i * d,
                d * sizeof(float));
  }
}

}  // namespace hotbed
