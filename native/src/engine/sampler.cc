#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "engine/fault_of.h"

namespace hotbed {

namespace {

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

Sampler::Sampler(const ModelConfig& config, Executor* executor, size_t page_count,
                 int max_step_rows, double max_wait_flops, EngineStats* stats)
    : config_(config),
      executor_(executor),
      max_step_rows_(max_step_rows),
      stats_(stats),
      flops_(config),
      shares_(max_wait_flops),
      cache_(page_count) {}

Sampler::~Sampler() = default;

void Sampler::Submit(std::unique_ptr<SampleCall> call) {
  auto job = std::make_unique<Job>();
  job->call = std::move(call);
  SampleRequest& request = job->call->request;
  job->stops.assign(request.seeds.size(), 0);
  Sequence one;
  one.job = job.get();
  const size_t pages = cache_.pages().count();
  if (FinalPages(one) > pages) {
    job->call->Reject(
        {FaultCode::kOutOfMemory, "kvCacheMiB: one sequence of this call needs " +
                                      std::to_string(FinalPages(one)) +
                                      " key/value pages, the engine has " + std::to_string(pages) +
                                      "; shorten prompt or params.maxTokens, or raise kvCacheMiB"});
    return;
  }
  request.prompt_top_k = std::min(request.prompt_top_k, config_.tokenizer_size);
  request.top_logprobs = std::min(request.top_logprobs, config_.tokenizer_size);
  const size_t prompt = request.prompt.size();
  job->scored = request.prompt_logprobs || request.prompt_top_k > 0 ? 0 : prompt;
  if (request.prompt_logprobs) job->result.prompt_logprobs.emplace(prompt, std::nanf(""));
  if (request.prompt_top_k > 0) {
    const size_t entries = (prompt - 1) * static_cast<size_t>(request.prompt_top_k);
    job->result.prompt_top.emplace();
    job->result.prompt_top->tokens.reserve(entries);
    job->result.prompt_top->logprobs.reserve(entries);
  }
  job->result.sequences.resize(request.seeds.size());
  for (SampledSequence& sequence : job->result.sequences) {
    if (request.top_logprobs > 0) sequence.top.emplace();
  }
  Lane* lane = LaneOf(job->call->weights, job->call->account);
  job->lane = lane;
  lane->jobs.push_back(std::move(job));
}

// Lanes of one policy stand side by side, so that its rows are one segment.
Sampler::Lane* Sampler::LaneOf(const std::shared_ptr<const AdapterWeights>& weights,
                               AccountId account) {
  auto at = lanes_.end();
  for (auto lane = lanes_.begin(); lane != lanes_.end(); ++lane) {
    if ((*lane)->weights != weights) continue;
    if ((*lane)->account == account) return lane->get();
    at = lane + 1;
  }
  auto lane = std::make_unique<Lane>();
  lane->weights = weights;
  lane->account = account;
  lane->root = cache_.RootOf(weights);
  lane->admission_turn = ++admission_tick_;
  ++lane_changes_;
  return lanes_.insert(at, std::move(lane))->get();
}

const std::vector<AccountId>& Sampler::Accounts() {
  accounts_.clear();
  for (const auto& lane : lanes_) {
    if (lane->account >= seen_.size()) seen_.resize(lane->account + 1);
    if (!seen_[lane->account]) accounts_.push_back(lane->account);
    seen_[lane->account] = true;
  }
  for (AccountId account : accounts_) seen_[account] = false;
  return accounts_;
}

double Sampler::waiting_weight() {
  double weight = 0;
  for (AccountId account : Accounts()) weight += shares_.weight(account);
  return weight;
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

void Sampler::StopSequence(RequestId id, size_t index, size_t length) {
  for (const auto& lane : lanes_) {
    for (const auto& job : lane->jobs) {
      if (job->call->id != id || job->over || index >= job->stops.size()) continue;
      size_t& stop = job->stops[index];
      stop = std::max<size_t>(1, stop == 0 ? length : std::min(stop, length));
      SampledSequence& result = job->result.sequences[index];
      if (result.tokens.size() < stop) continue;
      result.tokens.resize(stop);
      result.policy_logprobs.resize(stop);
      result.sampling_logprobs.resize(stop);
      if (result.top) {
        const size_t entries = stop * static_cast<size_t>(job->call->request.top_logprobs);
        result.top->tokens.resize(entries);
        result.top->logprobs.resize(entries);
      }
      result.stop_reason = StopReason::kStop;
      for (const auto& sequence : job->sequences) {
        if (sequence->index == index) End(sequence.get(), StopReason::kStop);
      }
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

double Sampler::Step(double clock) {
  shares_.Open(Accounts(), clock);
  if (Resume()) Admit();
  BuildPlan();
  if (plan_.rows() == 0) return 0;
  double cost = 0;
  for (AccountId account : accounts_) cost += exact_[account];
  try {
    executor_->RunSampling(plan_, &output_);
  } catch (...) {
    const Fault fault = FaultOf(std::current_exception());
    for (const auto& lane : lanes_) {
      for (const auto& job : lane->jobs) {
        if (job->admitted() && !job->over) Fail(job.get(), fault);
      }
    }
    Reap();
    return cost;
  }
  for (const PageCopy& copy : pending_copies_) cache_.Drop(copy.from);
  pending_copies_.clear();
  ++stats_->decode_steps;
  stats_->decode_rows += plan_.rows();
  if (plan_.segments.size() > 1) ++stats_->mixed_decode_steps;
  Deliver();
  Reap();
  return cost;
}

void Sampler::Deliver() {
  for (const Grant& grant : grants_) {
    if (grant.rows > 0) KeepBlocks(grant.sequence);
  }
  for (size_t i = 0; i < score_owners_.size(); ++i) {
    if (!score_owners_[i].job->over) DeliverScore(score_owners_[i], output_.score_logprobs[i]);
  }
  for (size_t i = 0; i < logits_owners_.size(); ++i) {
    Job* job = logits_owners_[i];
    const auto begin = output_.logits.begin() + static_cast<ptrdiff_t>(i * config_.vocab_size);
    End(job->sequences.front().get(), StopReason::kLength);
    job->call->logits_done(std::vector<float>(begin, begin + config_.vocab_size));
  }
  for (size_t i = 0; i < draw_owners_.size(); ++i) {
    if (!draw_owners_[i].sequence->job->over) Accept(draw_owners_[i], output_.draws[i]);
  }
  TellListeners();
  // Before the sequence that computed the prompt gives its pages up.
  for (const DrawOwner& owner : draw_owners_) {
    Sequence* sequence = owner.sequence;
    if (!sequence->waiting() || sequence->ending || !Fork(sequence)) continue;
    sequence->state = Sequence::State::kRunning;
    sequence->prefill = sequence->length();
  }
  for (const DrawOwner& owner : draw_owners_) {
    Sequence* sequence = owner.sequence;
    if (sequence->ending && !sequence->job->over) {
      End(sequence, sequence->job->result.sequences[sequence->index].stop_reason);
    }
  }
}

void Sampler::DeliverScore(const ScoreOwner& owner, float logprob) {
  Job* job = owner.job;
  SampleResult& result = job->result;
  bool finite = std::isfinite(logprob);
  if (result.prompt_logprobs) (*result.prompt_logprobs)[owner.index] = logprob;
  if (result.prompt_top) {
    const int count = job->call->request.prompt_top_k;
    CopyTop(owner.top, count, &*result.prompt_top);
    finite = finite && std::isfinite(result.prompt_top->logprobs.back());
  }
  if (finite) return;
  Fail(job, {FaultCode::kNotFinite, "prompt: the model's log-prob of token " +
                                        std::to_string(owner.index) + " is not finite"});
}

void Sampler::CopyTop(size_t from, int count, TopTokens* top) const {
  const auto begin = output_.tops.begin() + static_cast<ptrdiff_t>(from);
  for (auto entry = begin; entry != begin + count; ++entry) {
    top->tokens.push_back(entry->token);
    top->logprobs.push_back(entry->logprob);
  }
}

void Sampler::Accept(const DrawOwner& owner, const Draw& draw) {
  Sequence* sequence = owner.sequence;
  Job* job = sequence->job;
  sequence->drawing = false;
  if (draw.token < 0 || !std::isfinite(draw.policy_logprob)) {
    Fail(job,
         {FaultCode::kNotFinite, "logits: the model's output is not finite; nothing can be drawn"});
    return;
  }
  SampledSequence& result = job->result.sequences[sequence->index];
  const SampleRequest& request = job->call->request;
  if (result.tokens.empty()) {
    result.tokens.reserve(std::min(request.params.max_tokens, kReserveTokens));
  }
  result.tokens.push_back(draw.token);
  result.policy_logprobs.push_back(draw.policy_logprob);
  result.sampling_logprobs.push_back(draw.sampling_logprob);
  if (result.top) CopyTop(owner.top, request.top_logprobs, &*result.top);
  ++stats_->tokens_sampled;
  const size_t count = result.tokens.size();
  if (job->call->on_tokens) {
    job->news.push_back(
        {sequence->index, count - 1, draw.token, draw.policy_logprob, draw.sampling_logprob});
  }
  const auto& stops = request.params.stop_token_ids;
  const bool stopped = std::find(stops.begin(), stops.end(), draw.token) != stops.end() ||
                       count == job->stops[sequence->index];
  if (stopped || count == static_cast<size_t>(request.params.max_tokens) ||
      sequence->length() == static_cast<size_t>(config_.max_position)) {
    result.stop_reason = stopped ? StopReason::kStop : StopReason::kLength;
    sequence->ending = true;
  }
}

// One call to each listener a step, before the result of its call.
void Sampler::TellListeners() {
  for (const DrawOwner& owner : draw_owners_) {
    Job* job = owner.sequence->job;
    if (job->over || job->news.empty()) continue;
    job->call->on_tokens(job->news);
    job->news.clear();
  }
}

void Sampler::End(Sequence* sequence, StopReason reason) {
  Job* job = sequence->job;
  ReleasePages(sequence);
  sequence->state = Sequence::State::kEnded;
  ++job->finished;
  if (job->draws()) job->result.sequences[sequence->index].stop_reason = reason;
  if (job->finished < job->count()) return;
  job->over = true;
  if (job->draws()) job->call->done(std::move(job->result));
}

void Sampler::Fail(Job* job, const Fault& fault) {
  for (const auto& sequence : job->sequences) {
    ReleasePages(sequence.get());
    sequence->state = Sequence::State::kEnded;
  }
  job->over = true;
  job->call->Reject(fault);
}

void Sampler::Reap() {
  for (const auto& lane : lanes_) {
    auto& jobs = lane->jobs;
    jobs.erase(std::remove_if(jobs.begin(), jobs.end(),
                              [](const std::unique_ptr<Job>& job) { return job->over; }),
               jobs.end());
    for (const auto& job : jobs) {
      auto& sequences = job->sequences;
      sequences.erase(std::remove_if(sequences.begin(), sequences.end(),
                                     [](const std::unique_ptr<Sequence>& sequence) {
                                       return sequence->state == Sequence::State::kEnded;
                                     }),
                      sequences.end());
    }
    // A policy that nobody samples from costs its own bytes and no more.
    if (jobs.empty() && lane->weights) lane->weights->executor_copy.reset();
    lane_changes_ += jobs.empty();
  }
  lanes_.erase(std::remove_if(lanes_.begin(), lanes_.end(),
                              [](const std::unique_ptr<Lane>& lane) { return lane->jobs.empty(); }),
               lanes_.end());
}

}  // namespace hotbed
