// Training through the engine: cuts, groups, recomputation, faults, optimizer, and finite
// differences.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine_support.h"
#include "kernels/kernel_table.h"

namespace hotbed::test {
namespace {

AdapterSpec FullSpec(uint64_t seed = 17) {
  AdapterSpec spec;
  spec.rank = 5;
  spec.alpha = 9;
  for (int m = 0; m < kModuleCount; ++m) spec.targets.push_back(static_cast<Module>(m));
  spec.seed = seed;
  return spec;
}

// A state with B, moments and gradient that are not zero.
std::unique_ptr<AdapterState> BusyState(const ModelConfig& config, const AdapterSpec& spec,
                                        unsigned seed = 23) {
  auto state = ZeroAdapterState(config, spec);
  Inputs inputs(seed);
  for (const AdapterTensor& tensor : state->layout->tensors()) {
    for (size_t i = tensor.offset; i < tensor.offset + tensor.size(); ++i) {
      state->weights->values[i] = inputs.Float(-0.2f, 0.2f);
      state->m[i] = inputs.Float(-0.1f, 0.1f);
      state->v[i] = inputs.Float(0.0f, 0.1f);
      state->gradient[i] = inputs.Float(-0.5f, 0.5f);
    }
  }
  state->step = 3;
  return state;
}

std::shared_ptr<const AdapterState> TrainOnce(const TinyBase& base, const EngineOptions& options,
                                              const Loss& loss, const std::vector<Datum>& datums,
                                              ForwardBackwardResult* result = nullptr) {
  TestEngine engine(base, options);
  const AdapterHandle adapter = engine.Adopt(BusyState(engine.raw().config(), FullSpec()));
  const ForwardBackwardResult trained = engine.Train(adapter, loss, datums).Get();
  if (result) *result = trained;
  return engine.State(adapter);
}

TEST(trainer_calls_may_be_cut_at_any_datum) {
  Inputs inputs(31);
  for (const TinyBase& base : AllBases()) {
    const Loss loss = inputs.AnyLoss();
    const std::vector<Datum> datums = inputs.Datums(loss, 7);
    ForwardBackwardResult whole;
    const auto expected = TrainOnce(base, SmallOptions(), loss, datums, &whole);
    for (size_t cut = 1; cut < datums.size(); ++cut) {
      TestEngine engine(base);
      const AdapterHandle adapter = engine.Adopt(BusyState(engine.raw().config(), FullSpec()));
      auto head = engine.Train(adapter, loss, {datums.begin(), datums.begin() + cut});
      auto tail = engine.Train(adapter, loss, {datums.begin() + cut, datums.end()});
      const ForwardBackwardResult first = head.Get(), second = tail.Get();
      CHECK_EQ(first.tokens + second.tokens, whole.tokens);
      SAME_STATE(engine.State(adapter), expected);
    }
  }
}

TEST(trainer_pass_size_changes_nothing) {
  Inputs inputs(32);
  for (const TinyBase& base : AllBases()) {
    const Loss loss = inputs.AnyLoss();
    const std::vector<Datum> datums = inputs.Datums(loss, 9);
    ForwardBackwardResult expected_result;
    const auto expected = TrainOnce(base, SmallOptions(), loss, datums, &expected_result);
    for (int rows : {1, 50, 100000}) {
      EngineOptions options = SmallOptions();
      options.max_train_rows = rows;
      ForwardBackwardResult result;
      SAME_STATE(TrainOnce(base, options, loss, datums, &result), expected);
      SAME_RESULT(result, expected_result);
    }
  }
}

TEST(trainer_recomputation_changes_nothing) {
  Inputs inputs(33);
  for (const TinyBase& base : AllBases()) {
    const Loss loss = inputs.AnyLoss();
    const std::vector<Datum> datums = inputs.Datums(loss, 6);
    EngineOptions options = SmallOptions();
    options.max_train_rows = 400;
    const auto expected = TrainOnce(base, options, loss, datums);
    options.activation_budget_mib = 0;
    SAME_STATE(TrainOnce(base, options, loss, datums), expected);
  }
}

TEST(trainer_kernel_paths_and_threads_change_nothing) {
  Inputs inputs(34);
  for (const TinyBase& base : AllBases()) {
    const Loss loss =
        Inputs::LossNamed(base.tied ? LossName::kGspo : LossName::kImportanceSampling);
    const std::vector<Datum> datums = inputs.Datums(loss, 5);
    EngineOptions options = SmallOptions();
    options.kernels = "reference";
    const auto expected = TrainOnce(base, options, loss, datums);
    for (const char* path : {"scalar", "avx2", "avx512", "avx512bf16"}) {
      if (!kernels::supports(kernels::parsePath(path))) continue;
      for (int threads : {1, 2, 3}) {
        options.kernels = path;
        options.threads = threads;
        SAME_STATE(TrainOnce(base, options, loss, datums), expected);
      }
    }
  }
}

// N15: values of a group equal those of its separate sequences, wherever its branches begin in a
// page.
TEST(trainer_group_values_equal_separate_sequences) {
  Inputs inputs(35);
  for (const TinyBase& base : AllBases()) {
    TestEngine engine(base);
    const AdapterHandle adapter = engine.Adopt(BusyState(engine.raw().config(), FullSpec()));
    for (int prompt : {1, 2, 63, 64, 65, 66, 128, 129, 150}) {
      Loss loss;
      loss.name = LossName::kImportanceSampling;
      const Datum group = inputs.OneDatum(loss, prompt, {3, 1, 70, 12}, 1);
      std::vector<Datum> separate;
      for (const Branch& branch : group.branches) separate.push_back({group.prompt, {branch}});
      const ForwardBackwardResult grouped = engine.Forward(adapter, loss, {group}).Get();
      const ForwardBackwardResult alone = engine.Forward(adapter, loss, separate).Get();
      CHECK_EQ(grouped.tokens, alone.tokens);
      for (size_t b = 0; b < group.branches.size(); ++b) {
        SAME_BITS(grouped.logprobs[0][b], alone.logprobs[b][0]);
      }
      // The shared rows of one branch are the rows of one longer sequence.
      Datum plain;
      plain.prompt = {group.prompt[0]};
      Branch rest;
      rest.tokens.assign(group.prompt.begin() + 1, group.prompt.end());
      rest.tokens.insert(rest.tokens.end(), group.branches[2].tokens.begin(),
                         group.branches[2].tokens.end());
      rest.advantages = std::vector<float>(rest.tokens.size(), 1.0f);
      rest.logprobs = std::vector<float>(rest.tokens.size(), -2.0f);
      plain.branches = {rest};
      const std::vector<float> row = engine.Forward(adapter, loss, {plain}).Get().logprobs[0][0];
      SAME_BITS(std::vector<float>(row.begin() + (prompt - 1), row.end()), grouped.logprobs[0][2]);
    }
  }
}

// Gradients of a group and of its separate sequences are the same numbers, summed in another order.
TEST(trainer_group_gradient_is_that_of_separate_sequences) {
  Inputs inputs(36);
  TestEngine engine;
  Loss loss;
  const Datum group = inputs.OneDatum(loss, 70, {9, 4, 20});
  std::vector<Datum> separate;
  for (const Branch& branch : group.branches) separate.push_back({group.prompt, {branch}});
  const AdapterHandle a = engine.Create(FullSpec()), b = engine.Create(FullSpec());
  engine.Train(a, loss, {group}).Get();
  engine.Train(b, loss, separate).Get();
  const auto grouped = engine.State(a), alone = engine.State(b);
  double difference = 0, size = 0;
  for (size_t i = 0; i < grouped->gradient.size(); ++i) {
    difference += std::pow(static_cast<double>(grouped->gradient[i]) - alone->gradient[i], 2);
    size += std::pow(static_cast<double>(alone->gradient[i]), 2);
  }
  // About 100 rounded sums of 2^-24 each, with room.
  CHECK_MESSAGE(std::sqrt(difference) <= 1e-4 * std::sqrt(size),
                "distance " << std::sqrt(difference) << " of " << std::sqrt(size));
}

// The gradient of every tensor against a central difference along it.
TEST(trainer_gradients_match_finite_differences) {
  Inputs inputs(37);
  for (const TinyBase& base : {LlamaBase(), QwenBase()}) {
    for (const LossName name : {LossName::kCrossEntropy, LossName::kImportanceSampling}) {
      Loss loss;
      loss.name = name;
      TestEngine engine(base);
      const ModelConfig& config = engine.raw().config();
      std::vector<Datum> datums = {inputs.OneDatum(loss, 70, {6, 11}),
                                   inputs.OneDatum(loss, 3, {8})};
      auto state = BusyState(config, FullSpec());
      for (float& g : state->gradient) g = 0;
      const auto start = CopyOf(*state);
      const AdapterHandle adapter = engine.Adopt(std::move(state));
      if (name == LossName::kImportanceSampling) {
        // Recorded log-probs near the policy's, so that no ratio explodes.
        const ForwardBackwardResult now = engine.Forward(adapter, loss, datums).Get();
        for (size_t i = 0; i < datums.size(); ++i) {
          for (size_t b = 0; b < datums[i].branches.size(); ++b) {
            std::vector<float> recorded = now.logprobs[i][b];
            for (float& q : recorded) q += inputs.Float(-0.2f, 0.2f);
            datums[i].branches[b].logprobs = recorded;
          }
        }
      }
      engine.Train(adapter, loss, datums).Get();
      const auto trained = engine.State(adapter);
      const auto loss_at = [&](const AdapterTensor& tensor, double step) {
        auto moved = CopyOf(*start);
        moved->weights = std::make_shared<AdapterWeights>(start->spec, start->layout);
        std::memcpy(moved->weights->values.data(), start->weights->values.data(),
                    start->weights->values.bytes());
        double length = 0;
        const float* gradient = trained->gradient.data() + tensor.offset;
        for (size_t i = 0; i < tensor.size(); ++i) length += double(gradient[i]) * gradient[i];
        length = std::sqrt(length);
        for (size_t i = 0; i < tensor.size(); ++i) {
          moved->weights->at(tensor)[i] += static_cast<float>(step * gradient[i] / length);
        }
        const AdapterHandle probe = engine.Adopt(std::move(moved));
        const double sum = engine.Forward(probe, loss, datums).Get().loss_sum;
        engine.Drop(probe);
        return std::make_pair(sum, length);
      };
      for (const AdapterTensor& tensor : trained->layout->tensors()) {
        // Rounding of the loss divided by the step, and the cubic term times its square, are both
        // far below 2 %.
        const double step = 2e-3;
        const auto up = loss_at(tensor, step), down = loss_at(tensor, -step);
        const double numeric = (up.first - down.first) / (2 * step);
        CHECK_MESSAGE(up.second > 0, "gradient of tensor at " << tensor.offset << " is zero");
        CHECK_MESSAGE(std::fabs(numeric - up.second) <= 0.02 * up.second + 2e-3,
                      ModuleName(tensor.module)
                          << (tensor.is_b ? ".B" : ".A") << " of layer " << tensor.layer
                          << ": numeric " << numeric << ", computed " << up.second);
      }
    }
  }
}

TEST(trainer_first_step_moves_the_adapter) {
  TestEngine engine;
  Inputs inputs(38);
  Loss loss;
  const AdapterHandle adapter = engine.Create(FullSpec());
  const auto before = engine.State(adapter);
  engine.Train(adapter, loss, inputs.Datums(loss, 3)).Get();
  CHECK(engine.Step(adapter, Adam()).Get().grad_norm > 0);
  const auto after = engine.State(adapter);
  CHECK(std::memcmp(before->weights->values.data(), after->weights->values.data(),
                    after->weights->values.bytes()) != 0);
  for (float g : after->gradient) {
    CHECK(g == 0 && !std::signbit(g));
  }
}

// Every hyper-parameter takes part; a formula written down here is the judge.
TEST(trainer_optimizer_follows_adamw) {
  TestEngine engine;
  const ModelConfig& config = engine.raw().config();
  const auto start = BusyState(config, FullSpec());
  std::vector<AdamParams> variants(6, Adam());
  variants[1].learning_rate = 0.05;
  variants[2].beta1 = 0.5;
  variants[3].beta2 = 0.5;
  variants[4].weight_decay = 0.3;
  variants[5].grad_clip_norm = 0;
  double norm = 0;
  for (size_t i = 0; i < start->gradient.size(); ++i) {
    norm += static_cast<double>(start->gradient[i]) * start->gradient[i];
  }
  norm = std::sqrt(norm);
  for (const AdamParams& p : variants) {
    const AdapterHandle adapter = engine.Adopt(CopyOf(*start));
    const OptimStepResult result = engine.Step(adapter, p).Get();
    CHECK_EQ(result.step, uint64_t{4});
    CHECK(std::fabs(result.grad_norm - norm) < 1e-9 * norm);
    const auto state = engine.State(adapter);
    const double clip =
        p.grad_clip_norm > 0 ? std::min(1.0, p.grad_clip_norm / (norm + 1e-6)) : 1.0;
    for (size_t i = 0; i < start->gradient.size(); ++i) {
      const double g = clip * start->gradient[i];
      const double m = p.beta1 * start->m[i] + (1 - p.beta1) * g;
      const double v = p.beta2 * start->v[i] + (1 - p.beta2) * g * g;
      const double mhat = m / (1 - std::pow(p.beta1, 4)), vhat = v / (1 - std::pow(p.beta2, 4));
      const double decayed = start->weights->values[i] * (1 - p.learning_rate * p.weight_decay);
      const double theta = decayed - p.learning_rate * mhat / (std::sqrt(vhat) + p.eps);
      // A few float32 roundings of values below 1.
      CHECK_MESSAGE(std::fabs(state->weights->values[i] - theta) < 2e-6,
                    "[" << i << "] expected " << theta << ", actual " << state->weights->values[i]);
      CHECK(std::fabs(state->m[i] - m) < 1e-6 && std::fabs(state->v[i] - v) < 1e-6);
    }
    engine.Drop(adapter);
  }
}

TEST(trainer_step_of_one_adapter_leaves_another_alone) {
  TestEngine engine;
  Inputs inputs(39);
  Loss loss;
  const AdapterHandle a = engine.Create(FullSpec(1)), b = engine.Create(FullSpec(2));
  engine.Train(b, loss, inputs.Datums(loss, 2)).Get();
  const auto before = engine.State(b);
  engine.Train(a, loss, inputs.Datums(loss, 2)).Get();
  engine.Step(a, Adam()).Get();
  SAME_STATE(engine.State(b), before);
}

TEST(trainer_windows_of_any_size_give_one_gradient) {
  Inputs inputs(40);
  Loss loss;
  const std::vector<Datum> datums = inputs.Datums(loss, 6);
  const auto run = [&](const std::vector<std::vector<size_t>>& windows) {
    TestEngine engine;
    const AdapterHandle adapter = engine.Create(FullSpec());
    size_t at = 0;
    for (const auto& window : windows) {
      for (size_t count : window) {
        engine.Train(adapter, loss, {datums.begin() + at, datums.begin() + at + count});
        at += count;
      }
      engine.Step(adapter, Adam());
    }
    return engine.State(adapter);
  };
  SAME_STATE(run({{2}, {1}, {3}}), run({{1, 1}, {1}, {1, 1, 1}}));
}

TEST(trainer_fault_restores_the_gradient_it_started_from) {
  Inputs inputs(41);
  Loss loss;
  loss.name = LossName::kImportanceSampling;
  for (const bool from_zero : {false, true}) {
    EngineOptions options = SmallOptions();
    options.max_train_rows = 64;  // the good datums' gradient is in before the bad one is met
    TestEngine engine(LlamaBase(), options);
    auto state = BusyState(engine.raw().config(), FullSpec());
    for (size_t i = 0; from_zero && i < state->gradient.size(); ++i) state->gradient[i] = 0;
    const AdapterHandle adapter = engine.Adopt(std::move(state));
    const AdapterHandle neighbour = engine.Create(FullSpec(3));
    const auto before = engine.State(adapter);
    std::vector<Datum> datums = inputs.Datums(loss, 6);
    (*datums[5].branches[0].advantages)[0] = 1;
    (*datums[5].branches[0].logprobs)[0] = -1000;  // exp(lp + 1000) is not finite
    auto failed = engine.Train(adapter, loss, datums);
    auto fine = engine.Train(neighbour, loss, {datums.begin(), datums.begin() + 5});
    CHECK_FAULT(failed.Get(), FaultCode::kNotFinite, "datums[5]");
    CHECK(std::isfinite(fine.Get().loss_sum));
    SAME_STATE(engine.State(adapter), before);
    // And the adapter works on.
    engine.Train(adapter, loss, {datums.begin(), datums.begin() + 5}).Get();
  }
}

TEST(trainer_not_finite_gradient_takes_no_step) {
  TestEngine engine;
  auto state = BusyState(engine.raw().config(), FullSpec());
  state->gradient[3] = std::numeric_limits<float>::infinity();
  const AdapterHandle adapter = engine.Adopt(std::move(state));
  const auto before = engine.State(adapter);
  CHECK_FAULT(engine.Step(adapter, Adam()).Get(), FaultCode::kNotFinite, "gradient");
  SAME_STATE(engine.State(adapter), before);
}

TEST(trainer_not_finite_weights_are_a_fault_not_a_crash) {
  TestEngine engine;
  auto state = BusyState(engine.raw().config(), FullSpec());
  for (float& value : state->weights->values) value = std::nanf("");
  const AdapterHandle adapter = engine.Adopt(std::move(state));
  const auto before = engine.State(adapter);
  Inputs inputs(42);
  Loss loss;
  CHECK_FAULT(engine.Train(adapter, loss, inputs.Datums(loss, 2)).Get(), FaultCode::kNotFinite,
              "datums[0]");
  SAME_STATE(engine.State(adapter), before);
  SampleRequest request = inputs.Request(engine.Pin(adapter));
  request.prompt_logprobs = false;
  CHECK_FAULT(engine.Sample(request).Get(), FaultCode::kNotFinite, "logits");
}

TEST(trainer_drop_cancels_pending_calls) {
  EngineOptions options = SmallOptions();
  options.max_train_rows = 1;
  TestEngine engine(LlamaBase(), options);
  Inputs inputs(43);
  Loss loss;
  const AdapterHandle adapter = engine.Create(FullSpec());
  const AdapterHandle other = engine.Create(FullSpec(4));
  std::vector<Pending<ForwardBackwardResult>> calls;
  for (int i = 0; i < 20; ++i)
    calls.push_back(engine.Train(adapter, loss, inputs.Datums(loss, 40)));
  engine.Drop(adapter);
  CHECK_FAULT(calls.back().Get(), FaultCode::kCancelled, "dropped");
  engine.Train(other, loss, inputs.Datums(loss, 2)).Get();
}

// Its tensors are read until the pass is over; the others in the pass get their bits.
TEST(trainer_drop_in_mid_pass_disturbs_nobody) {
  Inputs inputs(45);
  Loss loss;
  const std::vector<Datum> datums = inputs.Datums(loss, 3);
  std::shared_ptr<const AdapterState> expected;
  {
    TestEngine engine;
    const AdapterHandle alone = engine.Create(FullSpec(4));
    engine.Train(alone, loss, datums).Get();
    expected = engine.State(alone);
  }
  EngineOptions options = SmallOptions();
  options.max_train_rows = 4000;
  TestEngine engine(LlamaBase(), options);
  const AdapterHandle stays = engine.Create(FullSpec(4)), goes = engine.Create(FullSpec(5));
  const std::vector<Datum> many = inputs.Datums(loss, 40);
  SampleRequest request;
  request.prompt.push_back(1);
  request.seeds.push_back(1);
  request.params.max_tokens = 5;
  Pending<ForwardBackwardResult> doomed, fine;
  Pending<Unit> dropped;
  // Submitted on the engine thread, the calls arrive together. The five steps of the sample fit
  // between the first slices of the pass, by their cost.
  engine.raw().CreateAdapter(FullSpec(6), [&](Result<AdapterHandle>) {
    engine.raw().ForwardBackward(goes, loss, many, doomed.done());
    engine.raw().ForwardBackward(stays, loss, datums, fine.done());
    engine.raw().Sample(std::move(request), [&](Result<SampleResult>) {
      engine.raw().DropAdapter(goes, dropped.done());
    });
  });
  CHECK_FAULT(doomed.Get(), FaultCode::kCancelled, "dropped");
  dropped.Get();
  fine.Get();
  SAME_STATE(engine.State(stays), expected);
  CHECK_EQ(engine.raw().stats().train_passes, uint64_t{1});
}

TEST(trainer_forward_changes_nothing) {
  TestEngine engine;
  Inputs inputs(44);
  const Loss loss = inputs.AnyLoss();
  const AdapterHandle adapter = engine.Adopt(BusyState(engine.raw().config(), FullSpec()));
  const auto before = engine.State(adapter);
  const std::vector<Datum> datums = inputs.Datums(loss, 4);
  const ForwardBackwardResult forward = engine.Forward(adapter, loss, datums).Get();
  SAME_STATE(engine.State(adapter), before);
  SAME_RESULT(engine.Train(adapter, loss, datums).Get(), forward);
}

}  // namespace
}  // namespace hotbed::test
