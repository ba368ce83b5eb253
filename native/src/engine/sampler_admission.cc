// Who gets pages: admission, preemption and return.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/sampler.h"

namespace hotbed {

namespace {

constexpr size_t kPage = static_cast<size_t>(kPagePositions);

size_t PagesFor(size_t positions) { return (positions + kPage - 1) / kPage; }

BlockTokens BlockOf(const SamplingSequence& sequence, size_t block) {
  BlockTokens tokens;
  for (size_t i = 0; i < kPage; ++i) tokens[i] = sequence.TokenAt(block * kPage + i);
  return tokens;
}

}  // namespace

// Pages of the whole text once it has ended.
size_t Sampler::FinalPages(const Sequence& sequence) const {
  const size_t prompt = sequence.job->prompt().size();
  // The last token drawn is never fed.
  const size_t fed = std::min(prompt + sequence.job->LimitOf(sequence.index) - 1,
                              static_cast<size_t>(config_.max_position) - 1);
  return PagesFor(std::max(fed, prompt));
}

// Rule 3: the text so far and one block more.
size_t Sampler::SoonPages(const Sequence& sequence) const {
  return std::min(FinalPages(sequence), PagesFor(sequence.length() + kPage));
}

// How many of those it does not have yet. One that waits for a sibling will share the prompt's
// blocks.
size_t Sampler::PagesWanted(const Sequence& sequence) const {
  if (sequence.waiting() && sequence.job->LimitOf(sequence.index) == 1) return 0;
  const size_t has =
      sequence.running() ? sequence.pages.size() : (sequence.job->prompt().size() - 1) / kPage;
  const size_t soon = SoonPages(sequence);
  return soon > has ? soon - has : 0;
}

size_t Sampler::PledgedPages() const {
  size_t pages = 0;
  for (const auto& lane : lanes_) {
    for (const auto& job : lane->jobs) {
      const bool prefilling = job->prefilling();
      for (const auto& sequence : job->sequences) {
        const bool follows = sequence->waiting() && sequence->drawn().empty() && prefilling;
        if (sequence->running() || follows) pages += PagesWanted(*sequence);
      }
    }
  }
  return pages;
}

// Those that gave way, in the order of admission. False when one of them has to go on waiting.
bool Sampler::Resume() {
  std::vector<Sequence*> waiting;
  for (const auto& lane : lanes_) {
    for (const auto& job : lane->jobs) {
      for (const auto& sequence : job->sequences) {
        if (sequence->waiting()) waiting.push_back(sequence.get());
      }
    }
  }
  std::sort(waiting.begin(), waiting.end(),
            [](const Sequence* a, const Sequence* b) { return a->ticket < b->ticket; });
  pledged_ = PledgedPages();
  for (Sequence* sequence : waiting) {
    if (!Activate(sequence)) return false;
  }
  return true;
}

// The lane that admits next: of the tenant whose turn it is the one that has waited for longest.
Sampler::Lane* Sampler::NextToAdmit() {
  std::vector<AccountId> waiting;
  for (const auto& lane : lanes_) {
    if (!lane->wants_admission()) continue;
    if (std::find(waiting.begin(), waiting.end(), lane->account) == waiting.end()) {
      waiting.push_back(lane->account);
    }
  }
  const std::optional<AccountId> account = shares_.First(waiting);
  Lane* next = nullptr;
  for (const auto& lane : lanes_) {
    if (!account || lane->account != *account || !lane->wants_admission()) continue;
    if (!next || lane->admission_turn < next->admission_turn) next = lane.get();
  }
  return next;
}

// The lane whose next sequence does not fit keeps its turn.
void Sampler::Admit() {
  while (Lane* lane = NextToAdmit()) {
    if (!AdmitOne(lane)) return;
    lane->admission_turn = ++admission_tick_;
  }
}

// The lane's next sequence. False when pages are short.
bool Sampler::AdmitOne(Lane* lane) {
  const auto next =
      std::find_if(lane->jobs.begin(), lane->jobs.end(),
                   [](const std::unique_ptr<Job>& job) { return job->started < job->count(); });
  Job* job = next->get();
  job->sequences.push_back(std::make_unique<Sequence>());
  Sequence* sequence = job->sequences.back().get();
  sequence->job = job;
  sequence->index = job->started;
  bool fits = Activate(sequence);
  if (fits && sequence->waiting()) {
    const size_t wanted = PagesWanted(*sequence);
    fits = pledged_ + wanted <= cache_.available();
    if (fits) pledged_ += wanted;
  }
  if (!fits) {
    job->sequences.pop_back();
    return false;
  }
  sequence->ticket = next_ticket_++;
  ++job->started;
  return true;
}

// Begins to run, with what a sibling or the cache has of its text; or goes on waiting for a sibling
// that computes the prompt. False when pages are short.
bool Sampler::Activate(Sequence* sequence) {
  if (sequence->drawn().empty() && sequence->job->prefilling()) return true;
  AttachCached(sequence);
  const size_t cached = sequence->fed;
  const bool forked = Fork(sequence);
  sequence->state = Sequence::State::kRunning;
  sequence->prefill = sequence->length();
  const size_t wanted = PagesWanted(*sequence);
  if (pledged_ + wanted > cache_.available()) {
    ReleasePages(sequence);
    sequence->state = Sequence::State::kWaiting;
    return false;
  }
  pledged_ += wanted;
  if (!forked) stats_->prefix_hit_tokens += cached;
  return true;
}

// Takes over the prompt's keys from a running sibling, where that is more than the sequence has:
// whole blocks are shared, the rest is copied before the next step.
bool Sampler::Fork(Sequence* sequence) {
  const Job& job = *sequence->job;
  // A sequence that has drawn nothing yet runs the prompt's last row once more.
  const size_t end = std::min(job.prompt().size(), sequence->length() - 1);
  if (end <= sequence->fed) return false;
  const size_t blocks = end / kPage, rest = end % kPage;
  const auto is_copy = [&](int32_t page) {
    return std::any_of(pending_copies_.begin(), pending_copies_.end(),
                       [page](const PageCopy& copy) { return copy.to == page; });
  };
  const auto source =
      std::find_if(job.sequences.begin(), job.sequences.end(), [&](const auto& sibling) {
        return sibling.get() != sequence && sibling->running() && sibling->fed >= end &&
               (rest == 0 || !is_copy(sibling->pages[blocks]));
      });
  if (source == job.sequences.end()) return false;
  int32_t tail = -1;
  if (rest != 0) {
    tail = cache_.Take();
    if (tail < 0) return false;
  }
  ReleasePages(sequence);
  const std::vector<int32_t>& pages = (*source)->pages;
  sequence->pages.assign(pages.begin(), pages.begin() + static_cast<ptrdiff_t>(blocks));
  for (int32_t page : sequence->pages) cache_.AddUser(page);
  if (rest != 0) {
    sequence->pages.push_back(tail);
    cache_.AddUser(pages[blocks]);
    pending_copies_.push_back({pages[blocks], tail, static_cast<int>(rest)});
  }
  sequence->blocks = blocks;
  sequence->fed = end;
  return true;
}

// Blocks that follow what the sequence has, up to the first row whose logits are wanted.
void Sampler::AttachCached(Sequence* sequence) {
  const Job& job = *sequence->job;
  size_t limit = sequence->length() - 1;
  if (job.scored + 1 < job.prompt().size()) limit = std::min(limit, job.scored);
  while (sequence->fed == sequence->blocks * kPage && sequence->fed + kPage <= limit) {
    const PrefixCache::Serial parent =
        sequence->blocks == 0 ? job.lane->root : cache_.SerialOf(sequence->pages.back());
    const int32_t page = cache_.Find(parent, BlockOf(*sequence, sequence->blocks));
    if (page < 0) return;
    sequence->pages.push_back(page);
    ++sequence->blocks;
    sequence->fed += kPage;
  }
}

// Blocks that this step completed become known to everybody.
void Sampler::KeepBlocks(Sequence* sequence) {
  for (; (sequence->blocks + 1) * kPage <= sequence->fed; ++sequence->blocks) {
    const size_t block = sequence->blocks;
    if ((block + 1) * kPage < sequence->prefill) stats_->prefix_miss_tokens += kPage;
    const PrefixCache::Serial root = sequence->job->lane->root;
    const PrefixCache::Serial parent =
        block == 0 ? root : cache_.SerialOf(sequence->pages[block - 1]);
    int32_t& page = sequence->pages[block];
    page = cache_.Insert(root, parent, BlockOf(*sequence, block), page);
  }
}

// The running sequence with pages that was admitted last, if that was after `ticket`, gives them
// up.
bool Sampler::PreemptAfter(uint64_t ticket) {
  Sequence* latest = nullptr;
  for (const auto& lane : lanes_) {
    for (const auto& job : lane->jobs) {
      for (const auto& sequence : job->sequences) {
        if (!sequence->running() || sequence->pages.empty() || sequence->ticket <= ticket) continue;
        if (!latest || sequence->ticket > latest->ticket) latest = sequence.get();
      }
    }
  }
  if (!latest) return false;
  ReleasePages(latest);
  latest->state = Sequence::State::kWaiting;
  ++stats_->preemptions;
  return true;
}

bool Sampler::PreemptLatest() { return PreemptAfter(0); }

// Children before parents (see prefix_cache.h, rule 4).
void Sampler::ReleasePages(Sequence* sequence) {
  for (auto page = sequence->pages.rbegin(); page != sequence->pages.rend(); ++page) {
    for (size_t i = pending_copies_.size(); i-- > 0;) {
      if (pending_copies_[i].to != *page) continue;
      cache_.Drop(pending_copies_[i].from);
      pending_copies_.erase(pending_copies_.begin() + static_cast<ptrdiff_t>(i));
    }
    cache_.Drop(*page);
  }
  sequence->pages.clear();
  sequence->fed = 0;
  sequence->blocks = 0;
}

}  // namespace hotbed
