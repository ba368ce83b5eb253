// The engine's door: lifecycle, handles, refusals, stop.
#include "engine_support.h"

namespace hotbed::test {
namespace {

AdapterSpec SmallSpec(uint64_t seed = 5) {
  AdapterSpec spec;
  spec.rank = 4;
  spec.alpha = 8;
  spec.targets = {Module::kQ, Module::kV, Module::kDown};
  spec.seed = seed;
  return spec;
}

SampleRequest SmallRequest(std::optional<PolicyHandle> policy) {
  SampleRequest request;
  request.policy = policy;
  request.prompt = {1, 2, 3};
  request.seeds = {11, 12};
  request.params.max_tokens = 5;
  return request;
}

TEST(engine_create_sample_train_step_pin) {
  TestEngine engine;
  const AdapterHandle adapter = engine.Create(SmallSpec());
  const PolicyHandle before = engine.Pin(adapter);
  const SampleResult first = engine.Sample(SmallRequest(before)).Get();
  CHECK_EQ(first.sequences.size(), size_t{2});
  CHECK_EQ(first.sequences[0].tokens.size(), size_t{5});

  Inputs inputs(3);
  Loss loss;
  const ForwardBackwardResult trained = engine.Train(adapter, loss, inputs.Datums(loss, 4)).Get();
  CHECK(std::isfinite(trained.loss_sum));
  const OptimStepResult step = engine.Step(adapter, Adam()).Get();
  CHECK_EQ(step.step, uint64_t{1});
  CHECK(step.grad_norm > 0);

  const PolicyHandle after = engine.Pin(adapter);
  // The old policy is untouched, the new one differs.
  SAME_SAMPLES(engine.Sample(SmallRequest(before)).Get(), first);
  const std::vector<float> old_logits = engine.Logits(before, {1, 2, 3}).Get();
  const std::vector<float> new_logits = engine.Logits(after, {1, 2, 3}).Get();
  CHECK(old_logits != new_logits);
  // A fresh adapter has B = 0: its policy is the base.
  SAME_BITS(old_logits, engine.Logits(std::nullopt, {1, 2, 3}).Get());
}

TEST(engine_same_seed_same_bytes_other_seed_other_bytes) {
  TestEngine engine;
  const AdapterHandle a = engine.Create(SmallSpec(5));
  const AdapterHandle b = engine.Create(SmallSpec(5));
  const AdapterHandle c = engine.Create(SmallSpec(6));
  SAME_STATE(engine.State(a), engine.State(b));
  const auto state_a = engine.State(a), state_c = engine.State(c);
  CHECK(std::memcmp(state_a->weights->values.data(), state_c->weights->values.data(),
                    state_a->weights->values.bytes()) != 0);
  for (const AdapterTensor& tensor : state_a->layout->tensors()) {
    CHECK(tensor.module == Module::kQ || tensor.module == Module::kV ||
          tensor.module == Module::kDown);
    for (size_t i = 0; tensor.is_b && i < tensor.size(); ++i) {
      CHECK_EQ(state_a->weights->at(tensor)[i], 0.0f);
    }
  }
}

TEST(engine_refuses_bad_specs) {
  TestEngine engine;
  AdapterSpec spec = SmallSpec();
  spec.rank = 0;
  CHECK_FAULT(engine.Create(spec), FaultCode::kInvalidArgument, "rank");
  spec.rank = 100000;
  CHECK_FAULT(engine.Create(spec), FaultCode::kInvalidArgument, "rank");
  spec = SmallSpec();
  spec.alpha = std::nan("");
  CHECK_FAULT(engine.Create(spec), FaultCode::kInvalidArgument, "alpha");
  spec = SmallSpec();
  spec.targets = {};
  CHECK_FAULT(engine.Create(spec), FaultCode::kInvalidArgument, "targets");
  spec.targets = {Module::kQ, Module::kQ};
  CHECK_FAULT(engine.Create(spec), FaultCode::kInvalidArgument, "targets");
  spec.targets = {Module::kLmHead, Module::kQ};
  CHECK_FAULT(engine.Create(spec), FaultCode::kInvalidArgument, "lm_head");
}

TEST(engine_refuses_bad_sample_requests) {
  TestEngine engine;
  const auto refused = [&](const char* words, const std::function<void(SampleRequest&)>& spoil) {
    SampleRequest request = SmallRequest(std::nullopt);
    spoil(request);
    CHECK_FAULT(engine.Sample(request).Get(), FaultCode::kInvalidArgument, words);
  };
  refused("prompt", [](SampleRequest& r) { r.prompt = {}; });
  refused("prompt[1]", [](SampleRequest& r) { r.prompt = {1, 61}; });
  refused("prompt[0]", [](SampleRequest& r) { r.prompt = {-1}; });
  refused("prompt", [](SampleRequest& r) { r.prompt.assign(256, 1); });
  refused("prompt", [](SampleRequest& r) { r.prompt.assign(1000, 1); });
  refused("seeds", [](SampleRequest& r) { r.seeds = {}; });
  refused("params.temperature", [](SampleRequest& r) { r.params.temperature = -1; });
  refused("params.temperature", [](SampleRequest& r) { r.params.temperature = std::nan(""); });
  refused("params.topK", [](SampleRequest& r) { r.params.top_k = -2; });
  refused("params.topP", [](SampleRequest& r) { r.params.top_p = 0; });
  refused("params.maxTokens", [](SampleRequest& r) { r.params.max_tokens = 0; });
  refused("params.stopTokenIds[0]", [](SampleRequest& r) { r.params.stop_token_ids = {99}; });
  refused("policy", [](SampleRequest& r) { r.policy = 12345; });
}

TEST(engine_refuses_bad_training_calls) {
  TestEngine engine;
  const AdapterHandle adapter = engine.Create(SmallSpec());
  const auto before = engine.State(adapter);
  Inputs inputs(9);
  const auto refused = [&](const char* words, LossName name,
                           const std::function<void(Loss&, std::vector<Datum>&)>& spoil) {
    Loss loss;
    loss.name = name;
    if (name == LossName::kPpo) {
      loss.clip_low = 0.8;
      loss.clip_high = 1.2;
    }
    std::vector<Datum> datums = inputs.Datums(loss, 2);
    spoil(loss, datums);
    CHECK_FAULT(engine.Train(adapter, loss, datums).Get(), FaultCode::kInvalidArgument, words);
    CHECK_FAULT(engine.Forward(adapter, loss, datums).Get(), FaultCode::kInvalidArgument, words);
  };
  using Datums = std::vector<Datum>;
  const LossName ce = LossName::kCrossEntropy, is = LossName::kImportanceSampling;
  refused("datums", ce, [](Loss&, Datums& d) { d.clear(); });
  refused("datums[1].prompt", ce, [](Loss&, Datums& d) { d[1].prompt.clear(); });
  refused("datums[0].branches", ce, [](Loss&, Datums& d) { d[0].branches.clear(); });
  refused("datums[0].branches[0].tokens", ce,
          [](Loss&, Datums& d) { d[0].branches[0].tokens.clear(); });
  refused("datums[0].branches[0].tokens[0]", ce,
          [](Loss&, Datums& d) { d[0].branches[0].tokens[0] = 61; });
  refused("datums[0].branches[0].weights", ce,
          [](Loss&, Datums& d) { d[0].branches[0].weights->push_back(1); });
  refused("datums[0].branches[0].weights", ce,
          [](Loss&, Datums& d) { d[0].branches[0].weights.reset(); });
  refused("datums[0].branches[0].weights[0]", ce,
          [](Loss&, Datums& d) { (*d[0].branches[0].weights)[0] = std::nanf(""); });
  refused("datums[0].branches[0].advantages", is,
          [](Loss&, Datums& d) { d[0].branches[0].advantages.reset(); });
  refused("datums[0].branches[0].logprobs", ce, [](Loss&, Datums& d) {
    d[0].branches[0].logprobs = std::vector<float>(d[0].branches[0].tokens.size(), 0.0f);
  });
  refused("datums[0].branches[0].tokens", ce, [](Loss&, Datums& d) {
    d[0].prompt.assign(200, 1);
    d[0].branches[0].tokens.assign(100, 1);
  });
  refused("loss.clipLow", LossName::kPpo, [](Loss& l, Datums&) { l.clip_low.reset(); });
  refused("loss.clipHigh", LossName::kPpo, [](Loss& l, Datums&) { l.clip_high = 0.1; });
  refused("loss.clipLow", ce, [](Loss& l, Datums&) { l.clip_low = 0.8; });
  SAME_STATE(engine.State(adapter), before);

  AdamParams params = Adam();
  params.beta1 = 1;
  CHECK_FAULT(engine.Step(adapter, params).Get(), FaultCode::kInvalidArgument, "beta1");
  params = Adam();
  params.eps = 0;
  CHECK_FAULT(engine.Step(adapter, params).Get(), FaultCode::kInvalidArgument, "eps");
  params = Adam(std::nan(""));
  CHECK_FAULT(engine.Step(adapter, params).Get(), FaultCode::kInvalidArgument, "learningRate");
  SAME_STATE(engine.State(adapter), before);
}

TEST(engine_unknown_and_dropped_handles) {
  TestEngine engine;
  const AdapterHandle adapter = engine.Create(SmallSpec());
  const PolicyHandle policy = engine.Pin(adapter);
  const std::vector<float> logits = engine.Logits(policy, {4, 5}).Get();
  engine.Drop(adapter);
  CHECK_FAULT(engine.Drop(adapter), FaultCode::kInvalidArgument, "adapter");
  CHECK_FAULT(engine.Pin(adapter), FaultCode::kInvalidArgument, "adapter");
  CHECK_FAULT(engine.Step(adapter, Adam()).Get(), FaultCode::kInvalidArgument, "adapter");
  CHECK_FAULT(engine.raw().SpecOf(adapter), FaultCode::kInvalidArgument, "adapter");
  CHECK(engine.Create(SmallSpec()) != adapter);
  // The pinned policy outlives its adapter.
  SAME_BITS(engine.Logits(policy, {4, 5}).Get(), logits);
  engine.raw().Release(policy);
  engine.raw().Release(policy);
  CHECK_FAULT(engine.Logits(policy, {4, 5}).Get(), FaultCode::kInvalidArgument, "policy");
}

TEST(engine_create_drop_many_keeps_memory_flat) {
  TestEngine engine;
  for (int i = 0; i < 2000; ++i) engine.Drop(engine.Create(SmallSpec(i)));
  const AdapterHandle last = engine.Create(SmallSpec(7));
  engine.State(last);
  const EngineStats stats = engine.raw().stats();
  CHECK_EQ(stats.adapters, uint64_t{1});
  const auto state = engine.State(last);
  CHECK(stats.adapter_bytes <= 5 * state->weights->values.bytes());
}

TEST(engine_adapter_memory_is_what_the_formula_says) {
  TestEngine engine;
  AdapterSpec spec = SmallSpec();
  spec.rank = 16;
  const AdapterHandle adapter = engine.Create(spec);
  const double tensors =
      4.0 * static_cast<double>(engine.State(adapter)->layout->parameter_count());
  const auto bytes_are = [&](double formula) {
    const double actual = static_cast<double>(engine.raw().stats().adapter_bytes);
    CHECK_MESSAGE(actual >= formula && actual <= 1.05 * formula,
                  actual << " bytes against " << formula);
  };
  bytes_are(4 * tensors);
  // Work leaves nothing behind.
  Inputs inputs(5);
  Loss loss;
  engine.Sample(SmallRequest(engine.Pin(adapter))).Get();
  engine.Train(adapter, loss, inputs.Datums(loss, 2)).Get();
  engine.Step(adapter, Adam()).Get();
  bytes_are(5 * tensors);  // and the pinned policy
}

TEST(engine_stop_rejects_what_is_pending) {
  std::vector<Pending<SampleResult>> samples;
  std::vector<Pending<ForwardBackwardResult>> calls;
  {
    TestEngine engine;
    const AdapterHandle adapter = engine.Create(SmallSpec());
    Inputs inputs(4);
    Loss loss;
    for (int i = 0; i < 200; ++i) {
      SampleRequest request = SmallRequest(std::nullopt);
      request.params.max_tokens = 200;
      samples.push_back(engine.Sample(request));
      calls.push_back(engine.Train(adapter, loss, inputs.Datums(loss, 3)));
    }
    engine.raw().Stop();
    engine.raw().Stop();
    CHECK_FAULT(engine.Create(SmallSpec()), FaultCode::kDisposed, "disposed");
    CHECK_FAULT(engine.Sample(SmallRequest(std::nullopt)).Get(), FaultCode::kDisposed, "disposed");
  }
  size_t disposed = 0;
  for (auto& pending : samples) {
    const auto result = pending.Wait();
    if (!result.ok()) disposed += result.fault().code == FaultCode::kDisposed;
  }
  for (auto& pending : calls) {
    const auto result = pending.Wait();
    if (!result.ok()) disposed += result.fault().code == FaultCode::kDisposed;
  }
  CHECK(disposed > 0);
}

TEST(engine_refuses_bad_options) {
  const auto refused = [](const char* words, const std::function<void(EngineOptions&)>& spoil) {
    EngineOptions options = SmallOptions();
    spoil(options);
    CHECK_FAULT(TestEngine(LlamaBase(), options), FaultCode::kInvalidArgument, words);
  };
  refused("threads", [](EngineOptions& o) { o.threads = 0; });
  refused("kvCacheMiB", [](EngineOptions& o) { o.kv_cache_mib = 0; });
  refused("maxStepRows", [](EngineOptions& o) { o.max_step_rows = 0; });
  refused("maxTrainRows", [](EngineOptions& o) { o.max_train_rows = -1; });
  refused("activationBudgetMiB", [](EngineOptions& o) { o.activation_budget_mib = -1; });
  refused("kernels", [](EngineOptions& o) { o.kernels = "sse9"; });
}

TEST(engine_several_in_one_process) {
  std::vector<std::unique_ptr<TestEngine>> engines;
  for (int i = 0; i < 4; ++i) engines.push_back(std::make_unique<TestEngine>());
  const std::vector<float> expected = engines[0]->Logits(std::nullopt, {1, 2, 3, 4}).Get();
  for (auto& engine : engines)
    SAME_BITS(engine->Logits(std::nullopt, {1, 2, 3, 4}).Get(), expected);
}

}  // namespace
}  // namespace hotbed::test
