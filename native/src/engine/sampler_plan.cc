// What runs in the next step: rows for sequences, pages for rows, one plan.
#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/sampler.h"

namespace hotbed {

// Prefill gets up to half of the rows while both kinds wait, and whatever the other leaves; inside
// each, tenants share by weight and a tenant's policies equally.
void Sampler::ShareRows() {
  prefill_demand_.clear();
  decode_demand_.clear();
  size_t prefill = 0, decode = 0;
  for (const auto& lane : lanes_) {
    const double row_flops = flops_.Forward(0, 1, lane->parameters(), 0);
    LaneDemand to_prefill{lane->account, 0, row_flops};
    LaneDemand to_decode{lane->account, 0, row_flops + flops_.head()};
    for (const auto& job : lane->jobs) {
      for (const auto& sequence : job->sequences) {
        if (!sequence->running()) continue;
        if (sequence->remaining() > 1) {  // somebody may have computed the next blocks meanwhile
          const size_t fed = sequence->fed;
          AttachCached(sequence.get());
          stats_->prefix_hit_tokens += sequence->fed - fed;
        }
        if (sequence->remaining() > 1) {
          to_prefill.rows += sequence->remaining();
        } else {
          ++to_decode.rows;
        }
      }
    }
    prefill += to_prefill.rows;
    decode += to_decode.rows;
    prefill_demand_.push_back(to_prefill);
    decode_demand_.push_back(to_decode);
  }
  dealt_.assign(seen_.size(), 0);
  exact_.assign(seen_.size(), 0);
  const size_t decode_budget =
      std::min(decode, max_step_rows_ - std::min(prefill, max_step_rows_ / 2));
  DealRows(decode_demand_, decode_budget, step_turn_, &shares_, &dealt_, &decode_share_);
  DealRows(prefill_demand_, max_step_rows_ - decode_budget, step_turn_, &shares_, &dealt_,
           &prefill_share_);
  ++step_turn_;
}

void Sampler::BuildPlan() {
  plan_.Clear();
  grants_.clear();
  draw_owners_.clear();
  score_owners_.clear();
  logits_owners_.clear();
  next_top_ = 0;

  ShareRows();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    WantPrefill(i, prefill_share_[i]);
    WantDecode(i, decode_share_[i]);
  }
  GrantPages();
  for (size_t i = 0, next = 0; i < lanes_.size(); ++i) {
    const size_t begin = plan_.rows();
    for (; next < grants_.size() && grants_[next].lane == i; ++next) EmitRows(grants_[next]);
    if (plan_.rows() == begin) continue;
    const AdapterWeights* weights = lanes_[i]->weights.get();
    if (begin != 0 && plan_.segments.back().weights == weights) {
      plan_.segments.back().row_end = plan_.rows();
    } else {
      plan_.segments.push_back({weights, begin, plan_.rows()});
    }
  }
  plan_.copies = pending_copies_;
  Settle();
}

// What was planned is what is charged; who got less than it could have used stays behind.
void Sampler::Settle() {
  for (AccountId account : accounts_) shares_.Correct(account, exact_[account] - dealt_[account]);
  unmet_.clear();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const auto waits = [](const auto& job) {
      return std::any_of(job->sequences.begin(), job->sequences.end(),
                         [](const auto& sequence) { return sequence->waiting(); });
    };
    const std::deque<std::unique_ptr<Job>>& jobs = lanes_[i]->jobs;
    const bool unmet = prefill_share_[i] < prefill_demand_[i].rows ||
                       decode_share_[i] < decode_demand_[i].rows || lanes_[i]->wants_admission() ||
                       std::any_of(jobs.begin(), jobs.end(), waits);
    if (!unmet || seen_[lanes_[i]->account]) continue;
    seen_[lanes_[i]->account] = true;
    unmet_.push_back(lanes_[i]->account);
  }
  for (AccountId account : unmet_) seen_[account] = false;
  shares_.Close(unmet_);
}

void Sampler::WantPrefill(size_t lane, size_t budget) {
  for (const auto& job : lanes_[lane]->jobs) {
    for (const auto& sequence : job->sequences) {
      if (budget == 0) return;
      if (!sequence->running() || sequence->remaining() == 1) continue;
      const size_t rows = std::min(budget, sequence->remaining());
      grants_.push_back({sequence.get(), lane, rows});
      budget -= rows;
    }
  }
}

// Sequences of the lane in order; those for whom the budget is too small wait for the next step, so
// that all move on in turn.
void Sampler::WantDecode(size_t lane, size_t budget) {
  if (budget == 0) return;
  const size_t ready = decode_demand_[lane].rows;
  size_t& turn = lanes_[lane]->decode_turn;
  const size_t first = budget >= ready ? 0 : turn % ready;
  turn = first + budget;
  size_t at = 0;
  for (const auto& job : lanes_[lane]->jobs) {
    for (const auto& sequence : job->sequences) {
      if (!sequence->running() || sequence->remaining() != 1) continue;
      const size_t offset = (at++ + ready - first) % ready;
      if (offset < budget) grants_.push_back({sequence.get(), lane, 1});
    }
  }
}

// In the order of admission, so that who gives way has been given nothing in this step.
void Sampler::GrantPages() {
  std::vector<size_t> order(grants_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return grants_[a].sequence->ticket < grants_[b].sequence->ticket;
  });
  for (size_t i : order) {
    Grant& grant = grants_[i];
    Sequence* sequence = grant.sequence;
    if (!sequence->running()) {
      grant.rows = 0;
      continue;
    }
    while (sequence->pages.size() * kPagePositions < sequence->fed + grant.rows) {
      const int32_t page = cache_.Take();
      if (page >= 0) {
        sequence->pages.push_back(page);
      } else if (!PreemptAfter(sequence->ticket)) {
        break;
      }
    }
    grant.rows = std::min(grant.rows, sequence->pages.size() * kPagePositions - sequence->fed);
  }
}

void Sampler::EmitRows(const Grant& grant) {
  if (grant.rows == 0) return;
  Sequence* sequence = grant.sequence;
  plan_.spans.push_back({plan_.rows(), grant.rows, sequence->fed, plan_.page_ids.size()});
  plan_.page_ids.insert(plan_.page_ids.end(), sequence->pages.begin(), sequence->pages.end());
  const size_t begin = sequence->fed, end = begin + grant.rows;
  const auto asked = [&] {
    return plan_.scores.size() + plan_.draws.size() + plan_.logits_rows.size();
  };
  size_t heads = 0;
  for (; sequence->fed < end; ++sequence->fed) {
    const size_t before = asked();
    AddRow(sequence, sequence->fed);
    heads += asked() != before;
  }
  const Lane& lane = *lanes_[grant.lane];
  exact_[lane.account] += flops_.Forward(begin, grant.rows, lane.parameters(), heads);
}

void Sampler::AddRow(Sequence* sequence, size_t position) {
  Job* job = sequence->job;
  const std::vector<int32_t>& prompt = job->prompt();
  const size_t length = sequence->length();
  plan_.tokens.push_back(sequence->TokenAt(position));
  plan_.positions.push_back(static_cast<int32_t>(position));
  if (position < prompt.size() || position + 1 < length) ++stats_->tokens_prefilled;
  if (position >= job->scored && position + 1 < prompt.size()) {
    plan_.scores.push_back({plan_.rows() - 1, prompt[position + 1]});
    score_owners_.push_back({job, position + 1, AddTop(job->call->request.prompt_top_k)});
    job->scored = position + 1;
  }
  if (position + 1 == prompt.size()) {
    if (!job->draws()) {
      plan_.logits_rows.push_back(plan_.rows() - 1);
      logits_owners_.push_back(job);
      return;
    }
    for (const auto& sibling : job->sequences) {
      const bool draws = sibling.get() == sequence || sibling->waiting();
      if (draws && sibling->drawn().empty() && !sibling->drawing) AddDraw(sibling.get());
    }
  } else if (position + 1 == length) {
    AddDraw(sequence);
  }
}

// From the plan's last row.
void Sampler::AddDraw(Sequence* sequence) {
  const SampleRequest& request = sequence->job->call->request;
  const SamplingParams& params = request.params;
  plan_.draws.push_back({plan_.rows() - 1, request.seeds[sequence->index],
                         static_cast<uint32_t>(sequence->drawn().size()), params.temperature,
                         params.top_k, params.top_p});
  draw_owners_.push_back({sequence, AddTop(request.top_logprobs)});
  sequence->drawing = true;
}

// Where the highest `count` of the plan's last row will stand in the output.
size_t Sampler::AddTop(int count) {
  if (count == 0) return 0;
  const size_t row = plan_.rows() - 1;
  const size_t k = static_cast<size_t>(count);
  // Draws of one row share them.
  if (!plan_.tops.empty() && plan_.tops.back().row == row) return next_top_ - k;
  plan_.tops.push_back({row, k});
  next_top_ += k;
  return next_top_ - k;
}

}  // namespace hotbed
