// Isolation: what one adapter gets does not depend on who else is at work, nor on how the engine is
// set up.
//
// One subject lives a fixed life (create, sample, train, step, pin, sample again, drop, create
// again). Everything it ever sees is recorded and compared bit for bit between a run alone and runs
// beside neighbours with random ranks, targets, lengths, losses and arrivals, under other thread
// counts, step and pass sizes, kernels and memory budgets.
#include <cmath>

#include "engine_support.h"
#include "gate.h"
#include "kernels/kernel_table.h"

namespace hotbed::test {
namespace {

struct Life {
  std::vector<SampleResult> samples;
  std::vector<std::vector<float>> logits;
  std::vector<ForwardBackwardResult> results;
  std::vector<OptimStepResult> steps;
  std::vector<std::shared_ptr<const AdapterState>> states;
};

// Neighbours that submit work before and during the subject's calls and never wait for it.
class Neighbours {
 public:
  Neighbours(TestEngine& engine, int count, unsigned seed) : engine_(engine), inputs_(seed) {
    for (int i = 0; i < count; ++i) {
      adapters_.push_back(engine_.Create(inputs_.Spec()));
      policies_.push_back(engine_.Pin(adapters_.back()));
    }
  }
  ~Neighbours() {
    for (auto& one : samples_) one.Wait();
    for (auto& one : calls_) one.Wait();
    for (auto& one : steps_) one.Wait();
  }

  // Some work of random kinds by each.
  void Stir() {
    for (size_t i = 0; i < adapters_.size(); ++i) {
      const int kind = inputs_.Int(0, 4);
      if (kind <= 1) samples_.push_back(engine_.Sample(inputs_.Request(policies_[i])));
      if (kind >= 1) {
        const Loss loss = inputs_.AnyLoss();
        std::vector<Datum> datums = inputs_.Datums(loss, inputs_.Int(1, 3));
        calls_.push_back(inputs_.Int(0, 3) == 0 ? engine_.Forward(adapters_[i], loss, datums)
                                                : engine_.Train(adapters_[i], loss, datums));
      }
      if (kind == 2) steps_.push_back(engine_.Step(adapters_[i], Adam(0.05)));
      if (kind == 4) {
        engine_.raw().Release(policies_[i]);
        policies_[i] = engine_.Pin(adapters_[i]);
      }
    }
    // Calls on the plain base share steps and passes too.
    if (!adapters_.empty() && inputs_.Int(0, 1) == 0) {
      samples_.push_back(engine_.Sample(inputs_.Request(std::nullopt)));
    }
    // One goes, one comes.
    if (adapters_.size() > 2 && inputs_.Int(0, 2) == 0) {
      engine_.Drop(adapters_[0]);
      adapters_[0] = engine_.Create(inputs_.Spec());
      policies_[0] = engine_.Pin(adapters_[0]);
    }
  }

 private:
  TestEngine& engine_;
  Inputs inputs_;
  std::vector<AdapterHandle> adapters_;
  std::vector<PolicyHandle> policies_;
  std::vector<Pending<SampleResult>> samples_;
  std::vector<Pending<ForwardBackwardResult>> calls_;
  std::vector<Pending<OptimStepResult>> steps_;
};

Life Live(const TinyBase& base, const EngineOptions& options, int neighbours, unsigned seed,
          EngineStats* stats = nullptr) {
  TestEngine engine(base, options);
  Neighbours others(engine, neighbours, seed);
  Inputs inputs(77);  // the subject's own life never changes
  Life life;
  const AdapterSpec spec = inputs.Spec();
  for (int birth = 0; birth < 2; ++birth) {
    others.Stir();
    const AdapterHandle subject = engine.Create(spec);
    for (int round = 0; round < 3; ++round) {
      const Loss loss = inputs.AnyLoss();
      const std::vector<Datum> first = inputs.Datums(loss, 3), second = inputs.Datums(loss, 2);
      others.Stir();
      const PolicyHandle policy = engine.Pin(subject);
      auto sample = engine.Sample(inputs.Request(policy));
      auto logits = engine.Logits(policy, inputs.Tokens(9));
      auto a = engine.Train(subject, loss, first);
      others.Stir();
      auto b = engine.Train(subject, loss, second);
      auto c = engine.Forward(subject, loss, first);
      Pending<std::shared_ptr<const AdapterState>> before;
      engine.raw().CopyState(subject, before.done());
      auto step = engine.Step(subject, Adam());
      others.Stir();
      life.samples.push_back(sample.Get());
      life.logits.push_back(logits.Get());
      for (auto* pending : {&a, &b, &c}) life.results.push_back(pending->Get());
      life.states.push_back(before.Get());
      life.steps.push_back(step.Get());
      life.states.push_back(engine.State(subject));
      // The pinned policy again, after its adapter has moved on.
      life.samples.push_back(engine.Sample(inputs.Request(policy)).Get());
      engine.raw().Release(policy);
    }
    engine.Drop(subject);
  }
  if (stats) *stats = engine.raw().stats();
  return life;
}

void Same(const char* what, const Life& actual, const Life& expected) {
  for (size_t i = 0; i < expected.samples.size(); ++i) {
    CheckSameSamples(__FILE__, __LINE__, what, actual.samples[i], expected.samples[i]);
  }
  for (size_t i = 0; i < expected.logits.size(); ++i) {
    CheckSameBits(__FILE__, __LINE__, what, actual.logits[i], expected.logits[i]);
  }
  for (size_t i = 0; i < expected.results.size(); ++i) {
    CheckSameResult(__FILE__, __LINE__, what, actual.results[i], expected.results[i]);
  }
  for (size_t i = 0; i < expected.states.size(); ++i) {
    CheckSameState(__FILE__, __LINE__, what, *actual.states[i], *expected.states[i]);
  }
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    CHECK_EQ(actual.steps[i].grad_norm, expected.steps[i].grad_norm);
    CHECK_EQ(actual.steps[i].step, expected.steps[i].step);
  }
}

TEST(isolation_alone_equals_together) {
  unsigned seed = 100;
  for (const TinyBase& base : AllBases()) {
    const Life alone = Live(base, SmallOptions(), 0, 0);
    for (int neighbours : {1, 3, 7, 15}) {
      EngineStats stats;
      Same("together", Live(base, SmallOptions(), neighbours, ++seed, &stats), alone);
      CHECK(stats.mixed_train_passes > 0 && stats.mixed_decode_steps > 0);
    }
  }
}

TEST(isolation_set_up_changes_nothing) {
  unsigned seed = 200;
  for (const TinyBase& base : AllBases()) {
    const Life alone = Live(base, SmallOptions(), 0, 0);
    for (const char* path : {"scalar", "avx2", "avx512", "avx512bf16", "reference"}) {
      if (!kernels::supports(kernels::parsePath(path))) continue;
      EngineOptions options = SmallOptions();
      options.kernels = path;
      options.threads = 2;
      options.max_step_rows = 5;
      options.max_train_rows = 1000;
      options.activation_budget_mib = 0;
      Same(path, Live(base, options, 3, ++seed), alone);
      options.threads = 3;
      options.max_step_rows = 500;
      options.max_train_rows = 40;
      options.activation_budget_mib = 64;
      options.train_slice_flops = 1e12;
      Same(path, Live(base, options, 5, ++seed), alone);
    }
  }
}

// A detector that cannot fail proves nothing: one reordered chain must be noticed.
TEST(isolation_notices_the_built_in_mutation) {
  for (const TinyBase& base : AllBases()) {
    const Life alone = Live(base, SmallOptions(), 0, 0);
    EngineOptions options = SmallOptions();
    options.mutation = true;
    bool noticed = false;
    try {
      Same("mutated", Live(base, options, 7, 301), alone);
    } catch (const Failure&) {
      noticed = true;
    }
    CHECK(noticed);
    // Without neighbours there are no mixed steps, and the same engine gives the true bits.
    Same("mutated, alone", Live(base, options, 0, 0), alone);
  }
}

// Values that are not numbers stay in their own rows: in shared products, in padding, in pages used
// again.
TEST(isolation_a_neighbour_full_of_nan_disturbs_nobody) {
  EngineOptions options = SmallOptions();
  options.kv_cache_mib = 1;
  for (const TinyBase& base : AllBases()) {
    Inputs inputs(403);
    const AdapterSpec spec = inputs.Spec();
    const Loss loss = inputs.AnyLoss();
    const std::vector<Datum> datums = inputs.Datums(loss, 3);
    const std::vector<int32_t> text = inputs.Tokens(70);
    const auto live = [&](bool with_nan) {
      TestEngine engine(base, options);
      Life life;
      const AdapterHandle subject = engine.Create(spec);
      std::vector<AdapterHandle> sick;
      std::vector<Pending<ForwardBackwardResult>> calls;
      std::vector<Pending<std::vector<float>>> logits;
      Inputs other(404);
      for (const float poison : {std::nanf(""), INFINITY}) {
        AdapterSpec sick_spec = spec;
        sick_spec.rank = 7;
        auto state = ZeroAdapterState(engine.raw().config(), sick_spec);
        for (float& value : state->weights->values) value = poison;
        if (with_nan) sick.push_back(engine.Adopt(std::move(state)));
      }
      for (int round = 0; round < 3; ++round) {
        for (AdapterHandle one : sick) {
          calls.push_back(engine.Train(one, loss, other.Datums(loss, 2)));
          logits.push_back(engine.Logits(engine.Pin(one), other.Tokens(100)));
        }
        auto trained = engine.Train(subject, loss, datums);
        auto step = engine.Step(subject, Adam());
        auto row = engine.Logits(engine.Pin(subject), text);
        life.results.push_back(trained.Get());
        life.steps.push_back(step.Get());
        life.logits.push_back(row.Get());
        life.states.push_back(engine.State(subject));
      }
      for (auto& one : calls) CHECK(!one.Wait().ok());
      for (auto& one : logits) one.Wait();
      return life;
    };
    Same("beside NaN", live(true), live(false));
  }
}

// Rows of 64 adapters and of the plain base in the same steps.
TEST(isolation_sixty_four_policies_in_one_step) {
  EngineOptions options = SmallOptions();
  options.max_step_rows = 256;
  TestEngine engine(LlamaBase(), options);
  Inputs inputs(405);
  Loss loss;
  std::vector<SampleRequest> requests;
  for (int i = 0; i < 64; ++i) {
    const AdapterHandle adapter = engine.Create(inputs.Spec());
    engine.Train(adapter, loss, inputs.Datums(loss, 1));
    engine.Step(adapter, Adam(0.1)).Get();
    requests.push_back(inputs.Request(engine.Pin(adapter)));
  }
  for (int i = 0; i < 4; ++i) requests.push_back(inputs.Request(std::nullopt));
  std::vector<Pending<SampleResult>> together;
  for (const SampleRequest& request : requests) together.push_back(engine.Sample(request));
  for (size_t i = 0; i < requests.size(); ++i) {
    const SampleResult shared = together[i].Get();
    SAME_SAMPLES(shared, engine.Sample(requests[i]).Get());
  }
}

TEST(isolation_rank_is_each_adapters_own) {
  TestEngine engine;
  std::vector<AdapterHandle> adapters;
  Inputs inputs(401);
  Loss loss;
  const std::vector<Datum> datums = inputs.Datums(loss, 2);
  const auto spec_of = [](int rank) {
    AdapterSpec spec;
    spec.rank = rank;
    spec.alpha = 16;
    spec.targets = {Module::kQ, Module::kO, Module::kGate, Module::kDown};
    spec.seed = 9;
    return spec;
  };
  std::vector<Pending<ForwardBackwardResult>> together;
  const std::vector<int> ranks = {4, 8, 16, 64};
  for (int rank : ranks) adapters.push_back(engine.Create(spec_of(rank)));
  for (AdapterHandle adapter : adapters) together.push_back(engine.Train(adapter, loss, datums));
  for (auto& one : together) one.Get();
  for (size_t i = 0; i < ranks.size(); ++i) {
    TestEngine other;
    const AdapterHandle alone = other.Create(spec_of(ranks[i]));
    other.Train(alone, loss, datums).Get();
    SAME_STATE(engine.State(adapters[i]), other.State(alone));
  }
}

TEST(isolation_repeated_backward_gives_one_gradient) {
  EngineOptions options = SmallOptions();
  options.threads = 3;
  TestEngine engine(QwenBase(), options);
  Inputs inputs(402);
  Loss loss;
  const std::vector<Datum> datums = inputs.Datums(loss, 3);
  const AdapterSpec spec = inputs.Spec();
  std::shared_ptr<const AdapterState> first;
  for (int i = 0; i < 100; ++i) {
    const AdapterHandle adapter = engine.Create(spec);
    engine.Train(adapter, loss, datums).Get();
    const auto state = engine.State(adapter);
    if (!first) first = state;
    SAME_STATE(state, first);
    engine.Drop(adapter);
  }
}

// sglang#28371, sglang#23727: mixed batches with and without adapters use wrong metadata.
TEST(isolation_all_mixes_of_0_to_64_adapters_and_base_rows_sglang_28371_23727) {
  EngineOptions options = SmallOptions();
  options.max_step_rows = 400;
  TestEngine engine(LlamaBase(), options);
  Inputs inputs(77);
  std::vector<SampleRequest> requests;
  std::vector<SampleResult> alone;
  for (int i = 0; i <= 64; ++i) {  // the first is the plain base's
    SampleRequest request;
    if (i > 0) {
      const AdapterHandle adapter = engine.Create(inputs.Spec());
      engine.Train(adapter, Loss(), {inputs.OneDatum(Loss(), 3, {4})}).Get();
      AdamParams adam;
      adam.learning_rate = 0.05;
      engine.Step(adapter, adam).Get();
      request.policy = engine.Pin(adapter);
      engine.Drop(adapter);
    }
    request.prompt = inputs.Tokens(1 + i % 5);
    request.seeds = {static_cast<uint64_t>(i), 99};
    request.params.max_tokens = 3;
    requests.push_back(request);
    alone.push_back(engine.Sample(request).Get());
  }
  for (size_t adapters = 0; adapters <= 64; ++adapters) {
    for (const bool with_base : {true, false}) {
      std::vector<size_t> mix;
      // Any of them, the base's rows between theirs.
      for (size_t i = 0; i < adapters; ++i) mix.push_back(1 + (i * 37 + adapters) % 64);
      if (with_base) mix.insert(mix.begin() + static_cast<ptrdiff_t>(adapters / 2), 0);
      Gate gate(engine);
      std::vector<Pending<SampleResult>> samples;
      for (size_t i : mix) samples.push_back(engine.Sample(requests[i]));
      gate.Open();
      for (size_t i = 0; i < mix.size(); ++i) SAME_SAMPLES(samples[i].Get(), alone[mix[i]]);
    }
  }
}

}  // namespace
}  // namespace hotbed::test
