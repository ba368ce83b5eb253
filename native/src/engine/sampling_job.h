// What the sampler knows of the calls it is working on: lanes of policies, their calls, the calls'
// sequences.
#ifndef HOTBED_ENGINE_SAMPLING_JOB_H_
#define HOTBED_ENGINE_SAMPLING_JOB_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/prefix_cache.h"
#include "engine/tenant_shares.h"

namespace hotbed {

// One accepted call. With `logits_done` set it asks for the logits after the prompt and has no
// seeds.
struct SampleCall {
  RequestId id = 0;
  AccountId account = 0;
  std::shared_ptr<const AdapterWeights> weights;  // null = base
  SampleRequest request;
  Done<SampleResult> done;
  Done<std::vector<float>> logits_done;
  TokensListener on_tokens;  // null = nobody listens

  void Reject(const Fault& fault) const;
};

struct SamplingJob;

// One text that grows: the prompt, then what was drawn. `text` below is both together.
struct SamplingSequence {
  enum class State {
    kWaiting,  // admitted, without pages: for a sibling that computes the prompt, or for room
    kRunning,  // its pages hold positions [0, fed)
    kEnded,
  };

  SamplingJob* job = nullptr;
  size_t index = 0;     // of the seed
  uint64_t ticket = 0;  // order of admission to pages, kept for life; no Ticket of tenant_desk.h
  State state = State::kWaiting;
  std::vector<int32_t> pages;
  size_t fed = 0;
  size_t blocks = 0;     // leading pages that the prefix cache knows
  size_t prefill = 0;    // length of the text when the sequence last began to run
  bool drawing = false;  // a draw for it is in the plan
  bool ending = false;   // that draw was its last

  bool running() const { return state == State::kRunning; }
  bool waiting() const { return state == State::kWaiting; }
  const std::vector<int32_t>& drawn() const;
  size_t length() const;  // of the text
  int32_t TokenAt(size_t position) const;
  // Positions that still have to run before the next token can be drawn: at least one.
  size_t remaining() const { return length() - fed; }
};

struct SamplingLane;

struct SamplingJob {
  SamplingLane* lane = nullptr;
  std::unique_ptr<SampleCall> call;
  size_t started = 0;   // sequences admitted, in the order of the seeds
  size_t finished = 0;  // sequences ended
  std::vector<std::unique_ptr<SamplingSequence>> sequences;  // admitted and not ended
  std::vector<size_t> stops;  // tokens after which each sequence was told to end; 0 = it was not
  // Leading rows of the prompt whose scores are not wanted or have been asked for: these need not
  // be computed to be scored.
  size_t scored = 0;
  SampleResult result;
  std::vector<SampledToken> news;  // drawn in this step, for a listener
  bool over = false;               // delivered or rejected: Reap() removes it

  const std::vector<int32_t>& prompt() const { return call->request.prompt; }
  // The logits call has one sequence, which draws nothing.
  bool draws() const { return !call->logits_done; }
  size_t count() const { return draws() ? call->request.seeds.size() : 1; }
  bool admitted() const { return started > 0; }
  // Most tokens of a sequence.
  size_t LimitOf(size_t index) const {
    if (!draws()) return 1;
    const size_t most = static_cast<size_t>(call->request.params.max_tokens);
    return stops[index] == 0 ? most : std::min(most, stops[index]);
  }
  // Somebody is computing the prompt's last row, from which every sequence makes its first draw.
  bool prefilling() const {
    return std::any_of(sequences.begin(), sequences.end(), [&](const auto& sequence) {
      return sequence->running() && sequence->fed < prompt().size();
    });
  }
};

// Calls of one tenant with one policy.
struct SamplingLane {
  std::shared_ptr<const AdapterWeights> weights;
  AccountId account = 0;
  uint64_t admission_turn = 0;  // the lowest of a tenant's lanes admits next
  PrefixCache::Serial root = 0;
  std::deque<std::unique_ptr<SamplingJob>> jobs;  // in order of arrival, admitted ones first
  size_t decode_turn = 0;

  // Whether a sequence is not admitted yet.
  bool wants_admission() const {
    return std::any_of(jobs.begin(), jobs.end(),
                       [](const auto& job) { return job->started < job->count(); });
  }
  size_t parameters() const { return weights ? weights->layout->parameter_count() : 0; }
};

inline const std::vector<int32_t>& SamplingSequence::drawn() const {
  static const std::vector<int32_t> none;
  return job->draws() ? job->result.sequences[index].tokens : none;
}

inline size_t SamplingSequence::length() const { return job->prompt().size() + drawn().size(); }

inline int32_t SamplingSequence::TokenAt(size_t position) const {
  const std::vector<int32_t>& prompt = job->prompt();
  return position < prompt.size() ? prompt[position] : drawn()[position - prompt.size()];
}

}  // namespace hotbed

#endif  // HOTBED_ENGINE_SAMPLING_JOB_H_
