// The ends of every range: the shortest and the longest sequences, the greatest numbers, values
// that overflow. Each is computed as it means or refused by name, and a refused call leaves the
// adapter as it was, to the digest.
#include <climits>
#include <limits>

#include "engine/state_digest.h"
#include "engine_support.h"

namespace hotbed::test {
namespace {

constexpr int kContext = 256;  // TinyBase's

AdapterSpec EdgeSpec() {
  AdapterSpec spec;
  spec.rank = 4;
  spec.alpha = 8;
  spec.targets = {Module::kQ, Module::kO, Module::kDown};
  spec.seed = 5;
  return spec;
}

std::string DigestOf(TestEngine& engine, AdapterHandle adapter) {
  TensorDigests fresh;
  return StateDigest(*engine.State(adapter), {"base", "f32-1", 1}, fresh);
}

Datum Weighted(std::vector<int32_t> prompt, std::vector<int32_t> tokens) {
  Datum datum;
  datum.prompt = std::move(prompt);
  Branch branch;
  branch.weights = std::vector<float>(tokens.size(), 1.0f);
  branch.tokens = std::move(tokens);
  datum.branches = {branch};
  return datum;
}

TEST(edges_sequences_of_one_token) {
  TestEngine engine;
  const AdapterHandle adapter = engine.Create(EdgeSpec());
  const auto trained = engine.Train(adapter, Loss(), {Weighted({7}, {9})}).Get();
  CHECK_EQ(trained.tokens, uint64_t{1});
  CHECK_EQ(trained.logprobs[0][0].size(), size_t{1});
  // The only token's log-prob is that of the logits after the prompt.
  const std::vector<float> logits = engine.Logits(engine.Pin(adapter), {7}).Get();
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  CHECK(std::fabs(logits[9] - std::log(sum) - trained.logprobs[0][0][0]) < 1e-5);
  CHECK(engine.Step(adapter, Adam()).Get().grad_norm > 0);

  SampleRequest request;
  request.prompt = {7};
  request.seeds = {1};
  request.prompt_logprobs = true;
  const SampleResult sampled = engine.Sample(request).Get();
  CHECK_EQ(sampled.sequences[0].tokens.size(), size_t{1});
  CHECK_EQ(sampled.prompt_logprobs->size(), size_t{1});
  CHECK(std::isnan((*sampled.prompt_logprobs)[0]));
}

TEST(edges_sequences_at_the_context_limit) {
  TestEngine engine;
  Inputs inputs(71);
  const AdapterHandle adapter = engine.Create(EdgeSpec());
  const std::string before = DigestOf(engine, adapter);
  // A datum's last token is a target only: the context holds one more than it has positions.
  for (const auto& [prompt, branch] : {std::pair(1, kContext), std::pair(kContext, 1),
                                       std::pair(kContext / 2, kContext / 2 + 1)}) {
    const Datum fits = Weighted(inputs.Tokens(prompt), inputs.Tokens(branch));
    CHECK(std::isfinite(engine.Forward(adapter, Loss(), {fits}).Get().loss_sum));
    Datum longer = fits;
    longer.branches[0].tokens.push_back(3);
    longer.branches[0].weights->push_back(1);
    CHECK_FAULT(engine.Train(adapter, Loss(), {fits, longer}).Get(), FaultCode::kInvalidArgument,
                "datums[1].branches[0].tokens");
  }
  CHECK_EQ(DigestOf(engine, adapter), before);

  SampleRequest request;
  request.prompt = inputs.Tokens(kContext - 1);
  request.seeds = {1, 2};
  request.params.max_tokens = INT_MAX;
  for (const SampledSequence& sequence : engine.Sample(request).Get().sequences) {
    CHECK_EQ(sequence.tokens.size(), size_t{1});
    CHECK(sequence.stop_reason == StopReason::kLength);
  }
  request.prompt.push_back(3);
  CHECK_FAULT(engine.Sample(request).Get(), FaultCode::kInvalidArgument, "prompt");
  CHECK_EQ(engine.Logits(std::nullopt, request.prompt).Get().size(), size_t{61});
  request.prompt.push_back(3);
  CHECK_FAULT(engine.Logits(std::nullopt, request.prompt).Get(), FaultCode::kInvalidArgument,
              "tokens");
}

TEST(edges_numbers_at_the_ends_of_their_types) {
  TestEngine engine;
  SampleRequest request;
  request.prompt = {1, 2, 3};
  request.seeds = {0, ~uint64_t{0}};
  request.params.max_tokens = 6;
  const auto sample = [&](const std::function<void(SamplingParams&)>& change) {
    SampleRequest changed = request;
    change(changed.params);
    return engine.Sample(changed).Get();
  };
  const SampleResult plain = sample([](SamplingParams&) {});
  // All of these are "off".
  SAME_SAMPLES(sample([](SamplingParams& p) { p.top_k = INT_MAX; }), plain);
  SAME_SAMPLES(sample([](SamplingParams& p) { p.top_p = 1e300; }), plain);
  SAME_SAMPLES(sample([](SamplingParams& p) { p.top_p = HUGE_VAL; }), plain);
  // All of these leave one token to draw from, and it is the likeliest.
  const SampleResult likeliest = sample([](SamplingParams& p) { p.temperature = 0; });
  for (const SampleResult& result : {sample([](SamplingParams& p) { p.top_k = 1; }),
                                     sample([](SamplingParams& p) { p.top_p = 1e-300; }),
                                     sample([](SamplingParams& p) { p.temperature = 1e-5; })}) {
    for (size_t i = 0; i < 2; ++i) {
      CHECK(result.sequences[i].tokens == likeliest.sequences[i].tokens);
    }
  }
  for (const double temperature : {1e5, 3e38}) {
    const SampleResult hot = sample([&](SamplingParams& p) { p.temperature = temperature; });
    for (const float logprob : hot.sequences[0].sampling_logprobs) {
      CHECK(std::fabs(logprob + std::log(57.0)) < 1e-2);  // even over the tokenizer's ids
    }
  }
  for (const int32_t id : {INT_MIN, -1, 61, INT_MAX}) {
    CHECK_FAULT(engine.Logits(std::nullopt, {1, id}).Get(), FaultCode::kInvalidArgument,
                "tokens[1]");
  }
}

TEST(edges_every_rank_and_no_other) {
  TestEngine engine;
  AdapterSpec spec = EdgeSpec();
  for (const int rank : {1, 256}) {
    spec.rank = rank;
    const AdapterHandle adapter = engine.Create(spec);
    engine.Train(adapter, Loss(), {Weighted({1, 2}, {3, 4})}).Get();
    CHECK(engine.Step(adapter, Adam()).Get().grad_norm > 0);
    engine.Drop(adapter);
  }
  for (const int rank : {INT_MIN, -1, 0, 257, INT_MAX}) {
    spec.rank = rank;
    CHECK_FAULT(engine.Create(spec), FaultCode::kInvalidArgument, "rank");
  }
}

// Finite weights whose products overflow: the fault comes at first use and names what is not
// finite.
TEST(edges_overflow_is_a_fault_that_changes_nothing) {
  ModelWeights weights = WeightsOf(LlamaBase());
  LoadedModel model;
  model.config = ConfigOf(LlamaBase());
  model.base_digest = "test";
  auto huge = std::make_shared<std::vector<float>>(
      static_cast<size_t>(weights.layers[1].down.rows) * weights.layers[1].down.cols, 3e38f);
  weights.layers[1].down.data = std::shared_ptr<const void>(huge, huge->data());
  model.weights = std::move(weights);
  TestEngine engine(SmallOptions(), std::move(model));
  const AdapterHandle adapter = engine.Create(EdgeSpec());
  const std::string before = DigestOf(engine, adapter);
  CHECK_FAULT(engine.Train(adapter, Loss(), {Weighted({1, 2}, {3, 4})}).Get(),
              FaultCode::kNotFinite, "datums[0]");
  SampleRequest request;
  request.prompt = {1, 2};
  request.seeds = {1};
  CHECK_FAULT(engine.Sample(request).Get(), FaultCode::kNotFinite, "not finite");
  CHECK_EQ(DigestOf(engine, adapter), before);
}

TEST(edges_weights_of_tokens_that_overflow) {
  TestEngine engine;
  const AdapterHandle adapter = engine.Create(EdgeSpec());
  Datum datum = Weighted({1, 2}, {3, 4});
  datum.branches[0].weights = std::vector<float>{3e38f, -3e38f};
  const std::string before = DigestOf(engine, adapter);
  CHECK_FAULT(engine.Train(adapter, Loss(), {datum, datum}).Get(), FaultCode::kNotFinite,
              "datums[0]: its loss is not finite");
  CHECK_EQ(DigestOf(engine, adapter), before);
}

TEST(edges_options_that_no_machine_can_keep) {
  EngineOptions options = SmallOptions();
  options.kv_cache_mib = INT_MAX;
  CHECK_FAULT(TestEngine(LlamaBase(), options), FaultCode::kInvalidArgument,
              "kvCacheMiB: 2147483647 MiB are more than this machine's memory");
  // Most rows and bytes are bounds: nothing is taken for what is not used.
  options = SmallOptions();
  options.max_step_rows = INT_MAX;
  options.max_train_rows = INT_MAX;
  options.activation_budget_mib = INT_MAX;
  TestEngine engine(LlamaBase(), options);
  const AdapterHandle adapter = engine.Create(EdgeSpec());
  engine.Train(adapter, Loss(), {Weighted({1, 2}, {3, 4})}).Get();
  SampleRequest request;
  request.prompt = {1, 2};
  request.seeds = {1};
  CHECK_EQ(engine.Sample(request).Get().sequences.size(), size_t{1});
}

}  // namespace
}  // namespace hotbed::test
