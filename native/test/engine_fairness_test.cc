// Scheduling: nobody waits for another's large work, and calls made together run together. Order
// only, never time.
#include "engine_support.h"
#include "gate.h"

namespace hotbed::test {
namespace {

AdapterSpec Spec(uint64_t seed) {
  AdapterSpec spec;
  spec.rank = 4;
  spec.alpha = 8;
  spec.targets = {Module::kQ, Module::kDown};
  spec.seed = seed;
  return spec;
}

SampleRequest Request(std::optional<PolicyHandle> policy, int sequences, int tokens) {
  SampleRequest request;
  request.policy = policy;
  request.prompt = {1, 2, 3};
  for (int i = 0; i < sequences; ++i) request.seeds.push_back(i);
  request.params.max_tokens = tokens;
  return request;
}

TEST(fairness_a_small_training_call_overtakes_anothers_large_one) {
  EngineOptions options = SmallOptions();
  options.max_train_rows = 60;
  TestEngine engine(LlamaBase(), options);
  Inputs inputs(81);
  Loss loss;
  const AdapterHandle large = engine.Create(Spec(1)), small = engine.Create(Spec(2));
  Gate gate(engine);
  Ends ends;
  engine.raw().ForwardBackward(large, loss, inputs.Datums(loss, 60),
                               ends.Of<ForwardBackwardResult>("large"));
  engine.raw().ForwardBackward(small, loss, inputs.Datums(loss, 1),
                               ends.Of<ForwardBackwardResult>("small"));
  CHECK_EQ(ends.Wait(gate)[0], std::string("small"));
}

TEST(fairness_a_small_sampling_call_overtakes_anothers_large_one) {
  EngineOptions options = SmallOptions();
  options.max_step_rows = 8;
  TestEngine engine(LlamaBase(), options);
  const PolicyHandle large = engine.Pin(engine.Create(Spec(1)));
  const PolicyHandle small = engine.Pin(engine.Create(Spec(2)));
  Gate gate(engine);
  Ends ends;
  for (int i = 0; i < 4; ++i) {
    engine.raw().Sample(Request(large, 40, 50), ends.Of<SampleResult>("large"));
  }
  engine.raw().Sample(Request(small, 1, 10), ends.Of<SampleResult>("small"));
  CHECK_EQ(ends.Wait(gate)[0], std::string("small"));
}

TEST(fairness_sampling_and_training_do_not_wait_for_each_other) {
  for (const bool train_much : {false, true}) {
    EngineOptions options = SmallOptions();
    options.max_train_rows = 60;
    TestEngine engine(LlamaBase(), options);
    Inputs inputs(82);
    Loss loss;
    const AdapterHandle adapter = engine.Create(Spec(1));
    Gate gate(engine);
    Ends ends;
    engine.raw().ForwardBackward(adapter, loss, inputs.Datums(loss, train_much ? 60 : 1),
                                 ends.Of<ForwardBackwardResult>(train_much ? "large" : "small"));
    engine.raw().Sample(train_much ? Request(std::nullopt, 1, 10) : Request(std::nullopt, 32, 200),
                        ends.Of<SampleResult>(train_much ? "small" : "large"));
    CHECK_EQ(ends.Wait(gate)[0], std::string("small"));
  }
}

TEST(fairness_calls_made_together_share_passes_and_steps) {
  EngineOptions options = SmallOptions();
  options.max_train_rows = 4000;
  options.max_step_rows = 400;
  TestEngine engine(LlamaBase(), options);
  Inputs inputs(83);
  Loss loss;
  std::vector<AdapterHandle> adapters;
  std::vector<PolicyHandle> policies;
  for (int i = 0; i < 8; ++i) {
    adapters.push_back(engine.Create(Spec(i)));
    policies.push_back(engine.Pin(adapters.back()));
  }
  Gate gate(engine);
  Ends ends;
  for (int i = 0; i < 8; ++i) {
    engine.raw().Sample(Request(policies[i], 2, 6), ends.Of<SampleResult>("sample"));
    engine.raw().ForwardBackward(adapters[i], loss, inputs.Datums(loss, 2),
                                 ends.Of<ForwardBackwardResult>("train"));
  }
  ends.Wait(gate);
  const EngineStats stats = engine.raw().stats();
  CHECK_EQ(stats.train_passes, uint64_t{1});
  CHECK_EQ(stats.mixed_train_passes, uint64_t{1});
  CHECK_EQ(stats.train_pass_adapters, uint64_t{8});
  CHECK_EQ(stats.decode_steps, uint64_t{6});
  CHECK_EQ(stats.mixed_decode_steps, uint64_t{6});
  CHECK_EQ(stats.tokens_sampled, uint64_t{96});
}

// punica#35: one adapter with thousands of rows beside one with a single row.
TEST(fairness_very_skewed_segments_share_a_pass_punica_35) {
  EngineOptions options = SmallOptions();
  options.max_train_rows = 5000;
  options.activation_budget_mib = 0;
  TestEngine engine(LlamaBase(), options);
  Inputs inputs(84);
  Loss loss;
  const AdapterHandle large = engine.Create(Spec(1)), small = engine.Create(Spec(2));
  const Datum one = inputs.OneDatum(loss, 1, {1});
  Gate gate(engine);
  Ends ends;
  engine.raw().ForwardBackward(large, loss, {inputs.OneDatum(loss, 50, std::vector<int>(20, 200))},
                               ends.Of<ForwardBackwardResult>("large"));
  engine.raw().ForwardBackward(small, loss, {one}, ends.Of<ForwardBackwardResult>("small"));
  ends.Wait(gate);
  CHECK(std::isfinite(engine.Step(large, Adam()).Get().grad_norm));
  const AdapterHandle alone = engine.Create(Spec(2));
  engine.Train(alone, loss, {one}).Get();
  SAME_STATE(engine.State(small), engine.State(alone));
}

}  // namespace
}  // namespace hotbed::test
