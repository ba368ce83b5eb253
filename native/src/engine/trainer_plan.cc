// Which datums the next pass takes, and the plan that the executor gets of them.
#include <algorithm>

#include "engine/loss_fields.h"
#include "engine/trainer.h"
#include "engine/trainer_calls.h"

namespace hotbed {

namespace {

size_t RowsOf(const Datum& datum) {
  size_t rows = datum.prompt.size() - 1;
  for (const Branch& branch : datum.branches) rows += branch.tokens.size();
  return rows;
}

}  // namespace

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

}  // namespace hotbed
