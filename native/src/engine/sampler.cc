#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "engine/fair_share.h"
#include "engine/fault_of.h"

namespace hotbed {

namespace {

size_t PagesFor(size_t positions) { return (positions + kPagePositions - 1) / kPagePositions; }

// Room for so many tokens is taken at once; longer sequences grow.
constexpr int kReserveTokens = 256;

}  // namespace

void SampleCall::Reject(const Fault& fault) const {
  if (logits_done) {
    logits_done(fault);
  } else {
    done(fault);
  }
}

// One of a call's sequences.
struct Sampler::Sequence {
  size_t index = 0;  // of the seed
  std::vector<int32_t>
      pages;  // full prompt pages (shared), then private ones; empty until the tail is taken
  size_t reserved = 0;  // promised pages not taken yet
  size_t fed = 0;       // tokens whose keys are in the cache
  bool ended = false;
};

// One call at work.
struct Sampler::Job {
  std::unique_ptr<SampleCall> call;
  std::vector<int32_t> pages;  // of the prompt, once admitted
  bool admitted = false;
  size_t prefilled = 0;
  size_t started = 0;   // sequences begun, in the order of the seeds
  size_t finished = 0;  // sequences ended
  std::vector<std::unique_ptr<Sequence>> sequences;
  SampleResult result;
  bool over = false;  // delivered or rejected: Reap() removes it

  const std::vector<int32_t>& prompt() const { return call->request.prompt; }
  size_t seeds() const { return call->request.seeds.size(); }
  bool prefilling() const { return admitted && !over && prefilled < prompt().size(); }
  bool decodes(const Sequence& sequence) const {
    return !sequence.ended && !sequence.pages.empty();
  }
};

// Calls of one policy.
struct Sampler::Lane {
  std::shared_ptr<const AdapterWeights> weights;
  std::deque<std::unique_ptr<Job>> jobs;  // admitted ones first, in order of arrival
  size_t decode_turn = 0;
};

Sampler::Sampler(const ModelConfig& config, Executor* executor, size_t page_count,
                 int max_step_rows, EngineStats* stats)
    : config_(config),
      executor_(executor),
      max_step_rows_(max_step_rows),
      stats_(stats),
      pages_(page_count) {}

Sampler::~Sampler() = default;

size_t Sampler::PromptPages(const Job& job) const { return PagesFor(job.prompt().size()); }

// Pages of one sequence beyond the full ones that it shares: from the one in which the prompt ends
// to its last.
size_t Sampler::PrivatePages(const Job& job) const {
  const size_t prompt = job.prompt().size();
  // The last token drawn is never fed.
  const size_t fed =
      std::min<size_t>(prompt + static_cast<size_t>(job.call->request.params.max_tokens) - 1,
                       static_cast<size_t>(config_.max_position) - 1);
  return PagesFor(std::max(fed, prompt)) - (prompt - 1) / kPagePositions;
}

void Sampler::Submit(std::unique_ptr<SampleCall> call) {
  auto job = std::make_unique<Job>();
  job->call = std::move(call);
  const size_t seeds = job->seeds();
  size_t needed = PromptPages(*job);
  if (seeds != 0) needed += PrivatePages(*job) - (seeds == 1 ? 1 : 0);
  if (needed > pages_.count()) {
    job->call->Reject({FaultCode::kOutOfMemory,
                       "kvCacheMiB: one sequence of this call needs " + std::to_string(needed) +
                           " key/value pages, the engine has " + std::to_string(pages_.count()) +
                           "; shorten prompt or params.maxTokens, or raise kvCacheMiB"});
    return;
  }
  job->result.sequences.resize(seeds);
  if (job->call->request.prompt_logprobs) {
    job->result.prompt_logprobs.emplace(job->prompt().size(), std::nanf(""));
  }
  LaneOf(job->call->weights)->jobs.push_back(std::move(job));
}

Sampler::Lane* Sampler::LaneOf(const std::shared_ptr<const AdapterWeights>& weights) {
  for (const auto& lane : lanes_) {
    if (lane->weights == weights) return lane.get();
  }
  lanes_.push_back(std::make_unique<Lane>());
  lanes_.back()->weights = weights;
  return lanes_.back().get();
}

void Sampler::Cancel(RequestId id) {
  for (const auto& lane : lanes_) {
    for (const auto& job : lane->jobs) {
      if (job->call->id != id || job->over) continue;
      Fail(job.get(), {FaultCode::kCancelled, "the sampling call was cancelled"});
    }
  }
  Reap();
}

void Sampler::RejectAll(const Fault& fault) {
  for (const auto& lane : lanes_) {
    for (const auto& job : lane->jobs) {
      if (!job->over) Fail(job.get(), fault);
    }
  }
  Reap();
}

size_t Sampler::active_sequences() const {
  size_t count = 0;
  for (const auto& lane : lanes_) {
    for (const auto& job : lane->jobs) count += job->started - job->finished;
  }
  return count;
}

// Policies in turn; the one whose next sequence does not fit keeps its turn.
void Sampler::Admit() {
  size_t idle = 0;
  while (idle < lanes_.size()) {
    Lane* lane = lanes_[admission_turn_ % lanes_.size()].get();
    const Job* waiting = nullptr;
    for (const auto& job : lane->jobs) {
      if (!job->admitted || job->started < job->seeds()) {
        waiting = job.get();
        break;
      }
    }
    if (waiting) {
      if (!AdmitOne(lane)) return;
      idle = 0;
    } else {
      ++idle;
    }
    admission_turn_ = (admission_turn_ + 1) % lanes_.size();
  }
}

// The next sequence of the lane, or its next call with a first sequence. False when pages are
// short.
bool Sampler::AdmitOne(Lane* lane) {
  for (const auto& owned : lane->jobs) {
    Job* job = owned.get();
    if (job->admitted) {
      if (job->started == job->seeds()) continue;
      return StartSequence(job);
    }
    const size_t prompt_pages = PromptPages(*job);
    if (!pages_.Reserve(prompt_pages)) return false;
    if (job->seeds() != 0 && !StartSequence(job)) {
      pages_.Unreserve(prompt_pages);
      return false;
    }
    for (size_t i = 0; i < prompt_pages; ++i) job->pages.push_back(pages_.Take());
    job->admitted = true;
    return true;
  }
  return true;
}

bool Sampler::StartSequence(Job* job) {
  const bool last = job->started + 1 == job->seeds();
  // The last to start takes over the page in which the prompt ends.
  const size_t needed = PrivatePages(*job) - (last ? 1 : 0);
  if (!pages_.Reserve(needed)) return false;
  auto sequence = std::make_unique<Sequence>();
  sequence->index = job->started++;
  sequence->reserved = needed;
  job->result.sequences[sequence->index].tokens.reserve(
      std::min(job->call->request.params.max_tokens, kReserveTokens));
  Sequence* started = sequence.get();
  job->sequences.push_back(std::move(sequence));
  if (job->admitted && !job->prefilling()) {
    // The prompt is in the cache already: its last row runs once more, for this sequence.
    TakeTail(job, started);
    started->fed = job->prompt().size() - 1;
  }
  return true;
}

void Sampler::TakeTail(Job* job, Sequence* sequence) {
  const size_t prompt = job->prompt().size();
  const size_t shared = (prompt - 1) / kPagePositions;
  for (size_t i = 0; i < shared; ++i) {
    pages_.AddReference(job->pages[i]);
    sequence->pages.push_back(job->pages[i]);
  }
  const int32_t tail = job->pages[shared];
  if (sequence->index + 1 == job->seeds()) {
    sequence->pages.push_back(tail);
    job->pages.pop_back();
  } else {
    const int32_t own = pages_.Take();
    --sequence->reserved;
    sequence->pages.push_back(own);
    pending_copies_.push_back({tail, own, static_cast<int>(prompt - shared * kPagePositions)});
  }
}

size_t Sampler::Step() {
  Admit();
  BuildPlan();
  if (plan_.rows() == 0) return 0;
  try {
    executor_->RunSampling(plan_, &output_);
  } catch (...) {
    const Fault fault = FaultOf(std::current_exception());
    for (const auto& lane : lanes_) {
      for (const auto& job : lane->jobs) {
        if (job->admitted && !job->over) Fail(job.get(), fault);
      }
    }
    Reap();
    return plan_.rows();
  }
  ++stats_->decode_steps;
  stats_->decode_rows += plan_.rows();
  if (plan_.segments.size() > 1) ++stats_->mixed_decode_steps;
  Deliver();
  Reap();
  return plan_.rows();
}

void Sampler::AddRow(int32_t token, size_t position) {
  plan_.tokens.push_back(token);
  plan_.positions.push_back(static_cast<int32_t>(position));
}

// Prefill gets up to half of the rows while both kinds wait, and whatever the other leaves; inside
// each, policies share equally.
void Sampler::BuildPlan() {
  plan_.Clear();
  draw_owners_.clear();
  score_owners_.clear();
  logits_owners_.clear();
  std::swap(plan_.copies, pending_copies_);

  prefill_demand_.assign(lanes_.size(), 0);
  decode_demand_.assign(lanes_.size(), 0);
  size_t prefill = 0, decode = 0;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    for (const auto& job : lanes_[i]->jobs) {
      if (!job->admitted) break;
      if (job->prefilling()) {
        prefill_demand_[i] += job->prompt().size() - job->prefilled;
        continue;
      }
      for (const auto& sequence : job->sequences) decode_demand_[i] += job->decodes(*sequence);
    }
    prefill += prefill_demand_[i];
    decode += decode_demand_[i];
  }
  const size_t decode_budget =
      std::min(decode, max_step_rows_ - std::min(prefill, max_step_rows_ / 2));
  FairShare(decode_demand_, decode_budget, step_turn_, &decode_share_);
  FairShare(prefill_demand_, max_step_rows_ - decode_budget, step_turn_, &prefill_share_);
  ++step_turn_;

  for (size_t i = 0; i < lanes_.size(); ++i) {
    const size_t begin = plan_.rows();
    PlanPrefill(lanes_[i].get(), prefill_share_[i]);
    PlanDecode(lanes_[i].get(), decode_share_[i]);
    if (plan_.rows() != begin) {
      plan_.segments.push_back({lanes_[i]->weights.get(), begin, plan_.rows()});
    }
  }
}

void Sampler::PlanPrefill(Lane* lane, size_t budget) {
  for (const auto& owned : lane->jobs) {
    if (budget == 0) return;
    Job* job = owned.get();
    if (!job->prefilling()) continue;
    const std::vector<int32_t>& prompt = job->prompt();
    const size_t begin = job->prefilled;
    const size_t count = std::min(budget, prompt.size() - begin);
    budget -= count;
    plan_.spans.push_back({plan_.rows(), count, begin, plan_.page_ids.size()});
    plan_.page_ids.insert(plan_.page_ids.end(), job->pages.begin(),
                          job->pages.begin() + PagesFor(begin + count));
    for (size_t position = begin; position < begin + count; ++position) {
      if (job->result.prompt_logprobs && position + 1 < prompt.size()) {
        plan_.scores.push_back({plan_.rows(), prompt[position + 1]});
        score_owners_.push_back({job, position + 1});
      }
      AddRow(prompt[position], position);
    }
    job->prefilled += count;
    stats_->tokens_prefilled += count;
    if (job->prefilled < prompt.size()) continue;
    const size_t last_row = plan_.rows() - 1;
    if (job->call->logits_done) {
      plan_.logits_rows.push_back(last_row);
      logits_owners_.push_back(job);
    }
    const SamplingParams& params = job->call->request.params;
    for (const auto& sequence : job->sequences) {
      plan_.draws.push_back({last_row, job->call->request.seeds[sequence->index], 0,
                             params.temperature, params.top_k, params.top_p});
      draw_owners_.push_back({job, sequence.get()});
    }
  }
}

void Sampler::PlanDecode(Lane* lane, size_t budget) {
  if (budget == 0) return;
  // Sequences of the lane in order; `skip` of them wait for the next step, so that all move on in
  // turn.
  size_t ready = 0;
  for (const auto& job : lane->jobs) {
    if (!job->admitted || job->prefilling()) continue;
    for (const auto& sequence : job->sequences) ready += job->decodes(*sequence);
  }
  if (ready == 0) return;
  const size_t first = budget >= ready ? 0 : lane->decode_turn % ready;
  lane->decode_turn = first + budget;
  size_t at = 0;
  for (const auto& owned : lane->jobs) {
    Job* job = owned.get();
    // A call whose prefill ended in this very plan has sequences without pages: they do not decode
    // yet.
    if (!job->admitted || job->prefilling()) continue;
    const std::vector<int32_t>& prompt = job->prompt();
    const SamplingParams& params = job->call->request.params;
    for (const auto& sequence : job->sequences) {
      if (!job->decodes(*sequence)) continue;
      const size_t offset = (at++ + ready - first) % ready;
      if (offset >= budget) continue;
      const std::vector<int32_t>& drawn = job->result.sequences[sequence->index].tokens;
      const size_t position = sequence->fed;
      while (sequence->pages.size() < PagesFor(position + 1)) {
        sequence->pages.push_back(pages_.Take());
        --sequence->reserved;
      }
      plan_.spans.push_back({plan_.rows(), 1, position, plan_.page_ids.size()});
      plan_.page_ids.insert(plan_.page_ids.end(), sequence->pages.begin(), sequence->pages.end());
      plan_.draws.push_back({plan_.rows(), job->call->request.seeds[sequence->index],
                             static_cast<uint32_t>(drawn.size()), params.temperature, params.top_k,
                             params.top_p});
      draw_owners_.push_back({job, sequence.get()});
      AddRow(position < prompt.size() ? prompt[position] : drawn[position - prompt.size()],
             position);
      ++sequence->fed;
    }
  }
}

void Sampler::Deliver() {
  for (size_t i = 0; i < score_owners_.size(); ++i) {
    Job* job = score_owners_[i].job;
    if (job->over) continue;
    const float logprob = output_.score_logprobs[i];
    if (std::isfinite(logprob)) {
      (*job->result.prompt_logprobs)[score_owners_[i].index] = logprob;
    } else {
      Fail(job,
           {FaultCode::kNotFinite, "prompt: the model's log-prob of token " +
                                       std::to_string(score_owners_[i].index) + " is not finite"});
    }
  }
  for (size_t i = 0; i < logits_owners_.size(); ++i) {
    Job* job = logits_owners_[i];
    const auto begin = output_.logits.begin() + static_cast<ptrdiff_t>(i * config_.vocab_size);
    FreeJobPages(job);
    job->over = true;
    job->call->logits_done(std::vector<float>(begin, begin + config_.vocab_size));
  }
  for (size_t i = 0; i < draw_owners_.size(); ++i) {
    if (!draw_owners_[i].job->over) {
      Accept(draw_owners_[i].job, draw_owners_[i].sequence, output_.draws[i]);
    }
  }
}

void Sampler::Accept(Job* job, Sequence* sequence, const Draw& draw) {
  if (draw.token < 0 || !std::isfinite(draw.policy_logprob)) {
    Fail(job,
         {FaultCode::kNotFinite, "logits: the model's output is not finite; nothing can be drawn"});
    return;
  }
  SampledSequence& result = job->result.sequences[sequence->index];
  const SamplingParams& params = job->call->request.params;
  result.tokens.push_back(draw.token);
  result.policy_logprobs.push_back(draw.policy_logprob);
  result.sampling_logprobs.push_back(draw.sampling_logprob);
  ++stats_->tokens_sampled;
  const auto& stops = params.stop_token_ids;
  if (std::find(stops.begin(), stops.end(), draw.token) != stops.end()) {
    FinishSequence(job, sequence, StopReason::kStop);
    return;
  }
  const size_t length = job->prompt().size() + result.tokens.size();
  if (result.tokens.size() == static_cast<size_t>(params.max_tokens) ||
      length == static_cast<size_t>(config_.max_position)) {
    FinishSequence(job, sequence, StopReason::kLength);
    return;
  }
  if (sequence->pages.empty()) {  // the first draw, from the prompt's own last row
    TakeTail(job, sequence);
    sequence->fed = job->prompt().size();
  }
}

void Sampler::FinishSequence(Job* job, Sequence* sequence, StopReason reason) {
  job->result.sequences[sequence->index].stop_reason = reason;
  FreeSequencePages(sequence);
  sequence->ended = true;
  ++job->finished;
  if (job->finished == job->seeds()) {
    FreeJobPages(job);
    job->over = true;
    job->call->done(std::move(job->result));
    return;
  }
  // Rule 2: what it freed was enough for it, so it is for the next.
  if (job->started < job->seeds()) StartSequence(job);
}

void Sampler::FreeSequencePages(Sequence* sequence) {
  if (!sequence->pages.empty() && !pending_copies_.empty()) {
    const auto begins_here = [&](const PageCopy& copy) {
      return std::find(sequence->pages.begin(), sequence->pages.end(), copy.to) !=
             sequence->pages.end();
    };
    pending_copies_.erase(
        std::remove_if(pending_copies_.begin(), pending_copies_.end(), begins_here),
        pending_copies_.end());
  }
  for (int32_t page : sequence->pages) pages_.Drop(page);
  sequence->pages.clear();
  pages_.Unreserve(sequence->reserved);
  sequence->reserved = 0;
}

void Sampler::FreeJobPages(Job* job) {
  for (int32_t page : job->pages) pages_.Drop(page);
  job->pages.clear();
}

void Sampler::Fail(Job* job, const Fault& fault) {
  for (const auto& sequence : job->sequences) {
    if (!sequence->ended) FreeSequencePages(sequence.get());
    sequence->ended = true;
  }
  FreeJobPages(job);
  job->over = true;
  job->call->Reject(fault);
}

void Sampler::Reap() {
  for (const auto& lane : lanes_) {
    auto& jobs = lane->jobs;
    jobs.erase(std::remove_if(jobs.begin(), jobs.end(),
                              [](const std::unique_ptr<Job>& job) { return job->over; }),
               jobs.end());
    // A policy that nobody samples from costs its own bytes and no more.
    if (jobs.empty() && lane->weights) lane->weights->executor_copy.reset();
  }
  lanes_.erase(std::remove_if(lanes_.begin(), lanes_.end(),
                              [](const std::unique_ptr<Lane>& lane) { return lane->jobs.empty(); }),
               lanes_.end());
}

}  // namespace hotbed
