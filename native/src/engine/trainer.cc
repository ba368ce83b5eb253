#include "engine/trainer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "engine/fault_of.h"
#include "engine/loss_fields.h"

namespace hotbed {

namespace {

size_t RowsOf(const Datum& datum) {
  size_t rows = datum.prompt.size() - 1;
  for (const Branch& branch : datum.branches) rows += branch.tokens.size();
  return rows;
}

// Every bit: -0 is not the zero that a reset gradient has. In blocks, which the compiler
// vectorizes: creating an adapter waits for it.
bool IsZero(const AlignedBuffer<float>& buffer) {
  constexpr size_t kBlock = 4096;
  for (size_t begin = 0; begin < buffer.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, buffer.size());
    uint32_t any = 0;
    for (size_t i = begin; i < end; ++i) {
      uint32_t bits;
      std::memcpy(&bits, buffer.data() + i, sizeof(bits));
      any |= bits;
    }
    if (any != 0) return false;
  }
  return true;
}

}  // namespace

// One entry of an adapter's queue: a pass call, an optimizer step or a visit.
struct Trainer::Call {
  std::unique_ptr<TrainingCall> training;
  std::function<void(Adapter*)> immediate;
  std::function<void(const Fault&)> reject;

  // Of a training call.
  ForwardBackwardResult result;
  size_t next_datum = 0;
  size_t planned = 0;  // datums from next_datum that are in the plan
  AlignedBuffer<float> saved_gradient;
  bool begun = false;
};

struct Trainer::Adapter {
  AdapterHandle handle = 0;  // 0: the base
  AccountId account = 0;
  std::unique_ptr<AdapterState> state;  // null: the base
  std::deque<Call> calls;
  // No call has added to the gradient since it was last zero.
  bool gradient_is_zero = true;
  bool dropped = false;

  bool wants_pass() const { return !calls.empty() && calls.front().training != nullptr; }
};

Trainer::Trainer(const ModelConfig& config, Executor* executor, int max_train_rows,
                 double max_wait_flops, EngineStats* stats)
    : executor_(executor),
      max_train_rows_(max_train_rows),
      stats_(stats),
      flops_(config),
      shares_(max_wait_flops) {}

Trainer::~Trainer() = default;

void Trainer::Add(AdapterHandle handle, AccountId account, std::unique_ptr<AdapterState> state) {
  auto adapter = std::make_unique<Adapter>();
  adapter->handle = handle;
  adapter->account = account;
  adapter->gradient_is_zero = IsZero(state->gradient);
  adapter->state = std::move(state);
  by_handle_[handle] = adapter.get();
  adapters_.push_back(std::move(adapter));
}

bool Trainer::Has(AdapterHandle handle) const { return by_handle_.count(handle) != 0; }

void Trainer::Drop(AdapterHandle handle) {
  Adapter* adapter = Find(handle);
  const Fault fault{FaultCode::kCancelled, "adapter: dropped while the call was pending"};
  std::deque<Call> calls = std::move(adapter->calls);
  by_handle_.erase(handle);
  const auto at = std::find_if(adapters_.begin(), adapters_.end(),
                               [&](const auto& owned) { return owned.get() == adapter; });
  if (in_pass_) {
    adapter->dropped = true;
    dropped_.push_back(std::move(*at));
  }
  adapters_.erase(at);
  for (const Call& call : calls) call.reject(fault);
}

Trainer::Adapter* Trainer::Find(AdapterHandle handle) { return by_handle_.at(handle); }

Trainer::Call Trainer::CallOf(std::unique_ptr<TrainingCall> training) {
  Call call;
  call.reject = [done = training->done](const Fault& fault) { done(fault); };
  call.result.logprobs.resize(training->datums.size());
  call.training = std::move(training);
  return call;
}

void Trainer::Run(AdapterHandle handle, std::unique_ptr<TrainingCall> training) {
  Find(handle)->calls.push_back(CallOf(std::move(training)));
}

void Trainer::RunBase(AccountId account, std::unique_ptr<TrainingCall> training) {
  Adapter*& base = bases_[account];
  if (!base) {
    adapters_.push_back(std::make_unique<Adapter>());
    base = adapters_.back().get();
    base->account = account;
  }
  base->calls.push_back(CallOf(std::move(training)));
}

void Trainer::OptimStep(AdapterHandle handle, const AdamParams& params,
                        Done<OptimStepResult> done) {
  Call call;
  call.reject = [done](const Fault& fault) { done(fault); };
  call.immediate = [this, params, done](Adapter* adapter) {
    AdapterState& state = *adapter->state;
    if (state.weights.use_count() > 1) {
      state.weights = CloneOf(*state.weights);
    } else {
      state.weights->RenewIdentity();
    }
    // Whoever let go of the weights last, on any thread, has read them before.
    std::atomic_thread_fence(std::memory_order_acquire);
    OptimStepResult result = executor_->RunOptimizer(&state, params);
    ++state.weights_changes;
    ++state.moments_changes;
    ++state.gradient_changes;
    adapter->gradient_is_zero = true;
    done(result);
  };
  Find(handle)->calls.push_back(std::move(call));
}

void Trainer::Visit(AdapterHandle handle, std::function<void(const AdapterState&)> visit,
                    std::function<void(const Fault&)> reject) {
  Call call;
  call.reject = std::move(reject);
  call.immediate = [visit = std::move(visit)](Adapter* adapter) { visit(*adapter->state); };
  Find(handle)->calls.push_back(std::move(call));
}

void Trainer::RejectAll(const Fault& fault) {
  for (const auto& adapter : adapters_) {
    std::deque<Call> calls = std::move(adapter->calls);
    adapter->calls.clear();
    for (const Call& call : calls) call.reject(fault);
  }
}

void Trainer::RunImmediate() {
  for (const auto& adapter : adapters_) Advance(adapter.get());
}

void Trainer::Advance(Adapter* adapter) {
  if (adapter->calls.empty()) return;
  while (!adapter->calls.empty() && adapter->calls.front().immediate) {
    const Call call = std::move(adapter->calls.front());
    adapter->calls.pop_front();
    try {
      call.immediate(adapter);
    } catch (...) {
      call.reject(FaultOf(std::current_exception()));
    }
  }
  // An adapter at rest costs its own bytes and no more.
  if (adapter->calls.empty() && adapter->state) adapter->state->weights->executor_copy.reset();
}

bool Trainer::has_pass() const {
  if (in_pass_) return true;
  for (const auto& adapter : adapters_) {
    if (adapter->wants_pass()) return true;
  }
  return false;
}

double Trainer::waiting_weight() const {
  std::vector<AccountId> seen;
  double weight = 0;
  const auto add = [&](AccountId account) {
    if (std::find(seen.begin(), seen.end(), account) != seen.end()) return;
    seen.push_back(account);
    weight += shares_.weight(account);
  };
  if (in_pass_) {
    for (const Adapter* owner : owners_) add(owner->account);
  }
  for (const auto& adapter : adapters_) {
    if (adapter->wants_pass()) add(adapter->account);
  }
  return weight;
}

void Trainer::ForEach(
    const std::function<void(AdapterHandle, AccountId, const AdapterState&, size_t)>& visit) const {
  for (const auto& adapter : adapters_) {
    if (!adapter->state) continue;
    const size_t copies =
        adapter->calls.empty() ? 0 : adapter->calls.front().saved_gradient.bytes();
    visit(adapter->handle, adapter->account, *adapter->state, copies);
  }
}

double Trainer::Work(double clock) {
  const double before = in_pass_ ? pass_done_ : 0;
  try {
    if (!in_pass_) BeginPass(clock);
    pass_done_ = executor_->AdvanceTraining();
  } catch (...) {
    in_pass_ = false;
    FailPlan(FaultOf(std::current_exception()));
    dropped_.clear();
    return pass_cost_;
  }
  if (pass_done_ == 1) EndPass();
  return (pass_done_ - before) * pass_cost_;
}

void Trainer::BeginPass(double clock) {
  pass_cost_ = 0;
  pass_done_ = 0;
  BuildPlan(clock);
  for (Adapter* adapter : owners_) BeginCall(adapter, &adapter->calls.front());
  executor_->BeginTraining(plan_, &output_);
  in_pass_ = true;
}

void Trainer::EndPass() {
  in_pass_ = false;
  size_t adapters = 0;
  for (const TrainingSegment& segment : plan_.segments) {
    adapters += segment.adapter != nullptr;
    if (segment.backward) stats_->tokens_trained += segment.row_end - segment.row_begin;
  }
  ++stats_->train_passes;
  if (adapters > 1) ++stats_->mixed_train_passes;
  stats_->train_pass_adapters += adapters;
  Deliver();
  dropped_.clear();
}

double Trainer::FlopsOf(const Adapter& adapter, const Datum& datum, bool backward) const {
  const size_t parameters = adapter.state ? adapter.state->layout->parameter_count() : 0;
  const size_t shared = datum.prompt.size() - 1;
  double flops = 0;
  const auto add = [&](size_t begin, size_t rows, size_t targets) {
    flops += flops_.Forward(begin, rows, parameters, targets);
    if (backward) flops += flops_.Backward(begin, rows, parameters, targets);
  };
  add(0, shared, 0);
  for (const Branch& branch : datum.branches) {
    add(shared, branch.tokens.size(), branch.tokens.size());
  }
  return flops;
}

// The next datum that still fits of the tenant's adapters in turn; nullopt when none does.
std::optional<double> Trainer::PlanOne(Line* line, size_t* rows) {
  for (size_t tried = 0; tried < line->adapters.size(); ++tried) {
    Adapter* adapter = line->adapters[line->next++ % line->adapters.size()];
    Call& call = adapter->calls.front();
    const size_t next = call.next_datum + call.planned;
    if (next == call.training->datums.size()) {
      // What follows it could be in the next pass.
      if (adapter->calls.size() > 1 && adapter->calls[1].training) line->unmet = true;
      continue;
    }
    const Datum& datum = call.training->datums[next];
    const size_t more = RowsOf(datum);
    if (*rows != 0 && *rows + more > pass_rows_) {
      line->unmet = true;
      continue;
    }
    ++call.planned;
    *rows += more;
    const double flops = FlopsOf(*adapter, datum, call.training->backward);
    pass_cost_ += flops;
    return flops;
  }
  return std::nullopt;
}

// A pass whose activations can be kept does a quarter less work than a larger one; but few rows
// would not keep the kernels busy.
size_t Trainer::PassRows(const std::vector<Adapter*>& waiting) const {
  constexpr size_t kFewRows = 128;
  size_t rank = 1;
  for (const Adapter* adapter : waiting) {
    if (adapter->state) rank = std::max<size_t>(rank, adapter->state->spec->rank);
  }
  const size_t kept = executor_->rows_kept(rank);
  return kept < kFewRows ? max_train_rows_ : std::min(kept, max_train_rows_);
}

// Datums are dealt one by one until no further one fits.
std::vector<Trainer::Adapter*> Trainer::Pick(double clock) {
  std::vector<Adapter*> waiting;
  std::vector<Line> lines;
  std::vector<AccountId> accounts;
  const auto line_of = [&](AccountId account) {
    return std::find_if(lines.begin(), lines.end(),
                        [&](const Line& line) { return line.account == account; });
  };
  for (size_t i = 0; i < adapters_.size(); ++i) {
    Adapter* adapter = adapters_[(turn_ + i) % adapters_.size()].get();
    if (!adapter->wants_pass()) continue;
    adapter->calls.front().planned = 0;
    waiting.push_back(adapter);
    auto line = line_of(adapter->account);
    if (line == lines.end()) {
      line = lines.insert(line, Line{adapter->account, {}, 0, false});
      accounts.push_back(adapter->account);
    }
    line->adapters.push_back(adapter);
  }
  ++turn_;
  pass_rows_ = PassRows(waiting);
  shares_.Open(accounts, clock);
  size_t rows = 0;
  shares_.Deal(accounts, [&](AccountId account) { return PlanOne(&*line_of(account), &rows); });
  std::vector<AccountId> unmet;
  for (const Line& line : lines) {
    if (line.unmet) unmet.push_back(line.account);
  }
  shares_.Close(unmet);
  return waiting;
}

void Trainer::BuildPlan(double clock) {
  plan_.Clear();
  owners_.clear();
  const std::vector<Adapter*> waiting = Pick(clock);
  for (bool backward : {true, false}) {
    for (Adapter* adapter : waiting) {
      const Call& call = adapter->calls.front();
      const TrainingCall& training = *call.training;
      if (training.backward != backward || call.planned == 0) continue;
      TrainingSegment segment;
      segment.adapter = adapter->state.get();
      segment.backward = backward;
      segment.loss = training.loss.name;
      segment.clip_low = static_cast<float>(training.loss.clip_low.value_or(0));
      segment.clip_high = static_cast<float>(training.loss.clip_high.value_or(0));
      segment.beta = static_cast<float>(training.loss.beta.value_or(0));
      segment.row_begin = plan_.rows();
      segment.datum_begin = plan_.datums.size();
      for (size_t i = 0; i < call.planned; ++i) {
        AddDatum(training.datums[call.next_datum + i], training.loss.name);
      }
      segment.row_end = plan_.rows();
      segment.datum_end = plan_.datums.size();
      plan_.segments.push_back(segment);
      owners_.push_back(adapter);
    }
  }
}

void Trainer::AddDatum(const Datum& datum, LossName loss) {
  const std::vector<int32_t>& prompt = datum.prompt;
  const size_t shared = prompt.size() - 1;
  TrainingDatum entry;
  entry.run_begin = plan_.runs.size();
  entry.target_row_begin = plan_.target_rows.size();
  const auto add_row = [&](int32_t token, size_t position) {
    plan_.tokens.push_back(token);
    plan_.positions.push_back(static_cast<int32_t>(position));
  };
  for (const Branch& branch : datum.branches) {
    plan_.runs.push_back({plan_.rows(), branch.tokens.size(), shared, plan_.target_rows.size()});
    AddTargets(branch, loss);
    for (size_t i = 0; i < branch.tokens.size(); ++i) {
      plan_.target_rows.push_back(plan_.rows());
      add_row(i == 0 ? prompt.back() : branch.tokens[i - 1], shared + i);
    }
  }
  entry.run_end = plan_.runs.size();
  entry.target_row_end = plan_.target_rows.size();
  entry.shared_begin = plan_.rows();
  entry.shared_count = shared;
  for (size_t i = 0; i < shared; ++i) add_row(prompt[i], i);
  plan_.datums.push_back(entry);
}

// The branch's targets with their numbers, K per position.
void Trainer::AddTargets(const Branch& branch, LossName loss) {
  const std::vector<int32_t>& targets = branch.targets ? *branch.targets : branch.tokens;
  const size_t n = branch.tokens.size(), k = targets.size() / n;
  const std::vector<float>& weights = TargetWeights(branch, loss);
  const std::vector<float>* recorded = RecordedLogprobs(branch, loss);
  for (size_t i = 0; i < targets.size(); ++i) {
    plan_.targets.push_back(targets[i]);
    plan_.weights.push_back(weights[i]);
    plan_.recorded.push_back(recorded ? (*recorded)[i] : 0.0f);
    plan_.mask.push_back(branch.mask ? (*branch.mask)[i / k] : 0.0f);
    if (i % k == k - 1) plan_.target_offsets.push_back(plan_.targets.size());
  }
}

void Trainer::BeginCall(Adapter* adapter, Call* call) {
  if (call->begun || !call->training->backward) return;
  if (!adapter->gradient_is_zero) {
    const AlignedBuffer<float>& gradient = adapter->state->gradient;
    call->saved_gradient = AlignedBuffer<float>(gradient.size(), Contents::kAnything);
    std::memcpy(call->saved_gradient.data(), gradient.data(), gradient.bytes());
  }
  call->begun = true;
  ++adapter->state->gradient_changes;
  adapter->gradient_is_zero = false;
}

void Trainer::RestoreGradient(Adapter* adapter, Call* call) {
  if (!call->begun) return;
  AlignedBuffer<float>& gradient = adapter->state->gradient;
  if (call->saved_gradient.size() != 0) {
    std::memcpy(gradient.data(), call->saved_gradient.data(), gradient.bytes());
  } else {
    std::memset(gradient.data(), 0, gradient.bytes());
    adapter->gradient_is_zero = true;
  }
}

void Trainer::FailPlan(const Fault& fault) {
  for (Adapter* adapter : owners_) {
    if (adapter->dropped) continue;
    Call call = std::move(adapter->calls.front());
    adapter->calls.pop_front();
    RestoreGradient(adapter, &call);
    call.reject(fault);
  }
}

void Trainer::Deliver() {
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const TrainingSegment& segment = plan_.segments[s];
    Adapter* adapter = owners_[s];
    if (adapter->dropped) continue;
    Call& call = adapter->calls.front();
    std::string not_finite;
    for (size_t i = segment.datum_begin; i < segment.datum_end && not_finite.empty(); ++i) {
      const TrainingDatum& datum = plan_.datums[i];
      const size_t index = call.next_datum + (i - segment.datum_begin);
      auto& branches = call.result.logprobs[index];
      branches.clear();
      for (size_t r = datum.run_begin; r < datum.run_end; ++r) {
        const TrainingRun& run = plan_.runs[r];
        const size_t* offsets = plan_.target_offsets.data() + run.target_row_begin;
        branches.emplace_back(output_.logprobs.begin() + offsets[0],
                              output_.logprobs.begin() + offsets[run.row_count]);
        const std::vector<float>& logprobs = branches.back();
        for (size_t t = 0; t < logprobs.size() && not_finite.empty(); ++t) {
          if (std::isfinite(logprobs[t])) continue;
          not_finite = "datums[" + std::to_string(index) + "].branches[" +
                       std::to_string(r - datum.run_begin) + "].tokens[" +
                       std::to_string(t / (logprobs.size() / run.row_count)) +
                       "]: the model's log-prob is not finite";
        }
      }
      call.result.loss_sum += output_.datum_loss[i];
      call.result.tokens += datum.target_row_end - datum.target_row_begin;
      if (not_finite.empty() && !std::isfinite(output_.datum_loss[i])) {
        not_finite = "datums[" + std::to_string(index) + "]: its loss is not finite";
      }
    }
    if (!not_finite.empty()) {
      Call failed = std::move(call);
      adapter->calls.pop_front();
      RestoreGradient(adapter, &failed);
      failed.reject({FaultCode::kNotFinite, not_finite});
      continue;
    }
    call.next_datum += call.planned;
    if (call.next_datum < call.training->datums.size()) continue;
    Call finished = std::move(call);
    adapter->calls.pop_front();
    if (adapter->calls.empty() && adapter->state) adapter->state->weights->executor_copy.reset();
    finished.training->done(std::move(finished.result));
  }
}

}  // namespace hotbed
