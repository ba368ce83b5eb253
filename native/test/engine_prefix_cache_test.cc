// The prefix cache and preemption: what they save shows in the statistics, and nowhere in a result.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "engine/cpu_executor.h"
#include "engine/prefix_cache.h"
#include "engine/sampler.h"
#include "engine_support.h"

namespace hotbed::test {
namespace {

SampleRequest Greedy(std::optional<PolicyHandle> policy, std::vector<int32_t> prompt,
                     int tokens = 4) {
  SampleRequest request;
  request.policy = policy;
  request.prompt = std::move(prompt);
  request.seeds = {1};
  request.params.temperature = 0;
  request.params.max_tokens = tokens;
  return request;
}

// An adapter whose B is not zero.
AdapterHandle Trained(TestEngine& engine, unsigned seed, int steps = 1) {
  Inputs inputs(seed);
  AdapterSpec spec = inputs.Spec();
  spec.targets = {Module::kQ, Module::kV, Module::kDown};
  const AdapterHandle adapter = engine.Create(spec);
  Loss loss;
  for (int i = 0; i < steps; ++i) {
    engine.Train(adapter, loss, inputs.Datums(loss, 2));
    engine.Step(adapter, Adam(0.1)).Get();
  }
  return adapter;
}

// Texts that share beginnings of any length: calls on them hit, miss and meet half-way.
std::vector<SampleRequest> SharedPrefixes(
    Inputs& inputs, int count, const std::vector<std::optional<PolicyHandle>>& policies) {
  std::vector<int32_t> common[2] = {inputs.Tokens(200), inputs.Tokens(200)};
  std::vector<SampleRequest> requests;
  for (int i = 0; i < count; ++i) {
    SampleRequest request = inputs.Request(policies[inputs.Int(0, policies.size() - 1)]);
    const std::vector<int32_t>& prefix = common[inputs.Int(0, 1)];
    const int kept = inputs.Int(0, 3) == 0 ? 64 * inputs.Int(1, 3) : inputs.Int(40, 200);
    request.prompt.assign(prefix.begin(), prefix.begin() + kept);
    if (inputs.Int(0, 2) != 0) {
      const std::vector<int32_t> own = inputs.Tokens(inputs.Int(1, 20));
      request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    }
    request.prompt_top_k = inputs.Int(0, 3) == 0 ? 5 : 0;
    request.top_logprobs = inputs.Int(0, 3) == 0 ? 3 : 0;
    requests.push_back(std::move(request));
  }
  return requests;
}

void SameTop(const std::optional<TopTokens>& actual, const std::optional<TopTokens>& expected) {
  CHECK_EQ(actual.has_value(), expected.has_value());
  if (!expected) return;
  CHECK(actual->tokens == expected->tokens);
  SAME_BITS(actual->logprobs, expected->logprobs);
}

void SameEverything(const SampleResult& actual, const SampleResult& expected) {
  SAME_SAMPLES(actual, expected);
  CHECK_EQ(actual.prompt_logprobs.has_value(), expected.prompt_logprobs.has_value());
  if (expected.prompt_logprobs) SAME_BITS(*actual.prompt_logprobs, *expected.prompt_logprobs);
  SameTop(actual.prompt_top, expected.prompt_top);
  for (size_t i = 0; i < expected.sequences.size(); ++i) {
    SameTop(actual.sequences[i].top, expected.sequences[i].top);
  }
}

// vllm#5543, vllm#33123, vllm#34046: cache hit and miss differ.
TEST(prefix_cache_a_hit_has_the_bits_of_a_miss) {
  for (const TinyBase& base : AllBases()) {
    TestEngine engine(base);
    const std::vector<std::optional<PolicyHandle>> policies = {
        std::nullopt, engine.Pin(Trained(engine, 11)), engine.Pin(Trained(engine, 12))};
    Inputs inputs(13);
    const std::vector<SampleRequest> requests = SharedPrefixes(inputs, 24, policies);
    std::vector<SampleResult> cold;
    for (const SampleRequest& request : requests) {
      TestEngine alone(base);
      SampleRequest same = request;
      if (request.policy == policies[1]) same.policy = alone.Pin(Trained(alone, 11));
      if (request.policy == policies[2]) same.policy = alone.Pin(Trained(alone, 12));
      cold.push_back(alone.Sample(same).Get());
    }
    for (int round = 0; round < 3; ++round) {
      const uint64_t hits = engine.raw().stats().prefix_hit_tokens;
      std::vector<Pending<SampleResult>> pending;
      for (const SampleRequest& request : requests) {
        pending.push_back(engine.Sample(request));
        if (round == 1) pending.back() = engine.Sample(request);  // beside its twin
      }
      for (size_t i = 0; i < requests.size(); ++i) SameEverything(pending[i].Get(), cold[i]);
      if (round > 0) CHECK(engine.raw().stats().prefix_hit_tokens > hits + 500);
    }
  }
}

TEST(prefix_cache_follow_up_turns_reuse_what_was_generated) {
  TestEngine engine;
  Inputs inputs(14);
  std::vector<int32_t> text = inputs.Tokens(30);
  for (int turn = 0; turn < 3; ++turn) {
    const EngineStats before = engine.raw().stats();
    const SampleResult result = engine.Sample(Greedy(std::nullopt, text, 60)).Get();
    const EngineStats after = engine.raw().stats();
    // Whole blocks of what was fed before, without the token drawn last.
    const size_t known = turn == 0 ? 0 : (text.size() - 6) / 64 * 64;
    CHECK_EQ(after.prefix_hit_tokens - before.prefix_hit_tokens, known);
    CHECK_EQ(after.tokens_prefilled - before.tokens_prefilled, text.size() - known);
    TestEngine fresh;
    SAME_SAMPLES(result, fresh.Sample(Greedy(std::nullopt, text, 60)).Get());
    text.insert(text.end(), result.sequences[0].tokens.begin(), result.sequences[0].tokens.end());
    const std::vector<int32_t> question = inputs.Tokens(5);
    text.insert(text.end(), question.begin(), question.end());
  }
}

// vllm#30931, vllm#42125, llama.cpp#26207, sglang#24638: blocks shared between adapters, versions
// or base.
TEST(prefix_cache_is_never_shared_between_adapters_versions_and_base) {
  TestEngine engine;
  Inputs inputs(15);
  const std::vector<int32_t> prompt = inputs.Tokens(150);
  const auto hits = [&] { return engine.raw().stats().prefix_hit_tokens; };
  const auto fresh = [&](unsigned seed, int steps) {
    TestEngine other;
    return other.Logits(other.Pin(Trained(other, seed, steps)), prompt).Get();
  };
  const auto sees = [&](std::optional<PolicyHandle> policy, uint64_t expected_hits,
                        const std::vector<float>& expected) {
    const uint64_t before = hits();
    SAME_BITS(engine.Logits(policy, prompt).Get(), expected);
    CHECK_EQ(hits() - before, expected_hits);
  };
  const std::vector<float> base = TestEngine().Logits(std::nullopt, prompt).Get();
  sees(std::nullopt, 0, base);
  sees(std::nullopt, 128, base);
  const AdapterHandle a = Trained(engine, 16);
  const AdapterHandle b = Trained(engine, 17);
  const PolicyHandle a1 = engine.Pin(a);
  sees(a1, 0, fresh(16, 1));
  sees(engine.Pin(b), 0, fresh(17, 1));
  sees(engine.Pin(a), 128, fresh(16, 1));  // the same weights under another handle
  // A new version, pinned while the old one lives: the step writes into a copy.
  Inputs again(16);
  again.Spec();
  Loss loss;
  again.Datums(loss, 2);
  engine.Train(a, loss, again.Datums(loss, 2));
  engine.Step(a, Adam(0.1)).Get();
  const PolicyHandle a2 = engine.Pin(a);
  sees(a2, 0, fresh(16, 2));
  sees(a1, 128, fresh(16, 1));
  sees(std::nullopt, 128, base);
}

// Weights that an optimizer step wrote in place are other weights, at the same address.
TEST(prefix_cache_forgets_weights_that_were_written_in_place) {
  TestEngine engine;
  Inputs inputs(18);
  const std::vector<int32_t> prompt = inputs.Tokens(150);
  const AdapterHandle adapter = Trained(engine, 19);
  const PolicyHandle before = engine.Pin(adapter);
  engine.Logits(before, prompt).Get();
  engine.raw().Release(before);
  Loss loss;
  const std::vector<Datum> datums = inputs.Datums(loss, 2);
  engine.Train(adapter, loss, datums);
  engine.Step(adapter, Adam(0.1)).Get();
  const uint64_t hits = engine.raw().stats().prefix_hit_tokens;
  const std::vector<float> after = engine.Logits(engine.Pin(adapter), prompt).Get();
  CHECK_EQ(engine.raw().stats().prefix_hit_tokens, hits);
  TestEngine other;
  const AdapterHandle same = Trained(other, 19);
  other.Train(same, loss, datums);
  other.Step(same, Adam(0.1)).Get();
  SAME_BITS(after, other.Logits(other.Pin(same), prompt).Get());
}

// SkyRL#1647: publishing A resets everybody's prefix cache. Also where there is room for three
// blocks of each and no more: what A's released versions had goes first.
TEST(prefix_cache_of_b_is_unchanged_while_a_publishes_a_hundred_versions) {
  TinyBase wide = LlamaBase();  // a page takes 512 KiB
  wide.heads = wide.kv_heads = 8;
  wide.head_dim = 64;
  EngineOptions tight = SmallOptions();
  tight.kv_cache_mib = 3;
  for (const auto& [base, options] :
       {std::pair(LlamaBase(), SmallOptions()), std::pair(wide, tight)}) {
    TestEngine engine(base, options);
    Inputs inputs(20);
    const AdapterHandle a = Trained(engine, 21);
    const PolicyHandle b = engine.Pin(Trained(engine, 22));
    const SampleRequest of_b = Greedy(b, inputs.Tokens(140));
    const SampleResult expected = engine.Sample(of_b).Get();
    Loss loss;
    const std::vector<Datum> datums = inputs.Datums(loss, 1);
    for (int version = 0; version < 100; ++version) {
      engine.Train(a, loss, datums);
      engine.Step(a, Adam(0.001));
      const PolicyHandle policy = engine.Pin(a);
      engine.Sample(Greedy(policy, of_b.prompt, 1)).Get();
      const EngineStats before = engine.raw().stats();
      SAME_SAMPLES(engine.Sample(of_b).Get(), expected);
      const EngineStats after = engine.raw().stats();
      CHECK_EQ(after.prefix_hit_tokens - before.prefix_hit_tokens, uint64_t{128});
      engine.raw().Release(policy);
    }
    CHECK_EQ(engine.raw().stats().prefix_evictions, uint64_t{0});
  }
}

TEST(prefix_cache_drops_what_nobody_can_ask_for_again) {
  TestEngine engine;
  Inputs inputs(23);
  const AdapterHandle adapter = Trained(engine, 24);
  const PolicyHandle first = engine.Pin(adapter), second = engine.Pin(adapter);
  engine.Sample(Greedy(first, inputs.Tokens(140))).Get();
  CHECK_EQ(engine.raw().stats().prefix_pages, uint64_t{2});
  engine.raw().Release(first);
  engine.Drop(adapter);
  CHECK_EQ(engine.raw().stats().prefix_pages,
           uint64_t{2});  // the other handle has the same weights
  engine.raw().Release(second);
  engine.Create(inputs.Spec());  // a turn of the engine's loop
  CHECK_EQ(engine.raw().stats().prefix_pages, uint64_t{0});
  CHECK_EQ(engine.raw().stats().kv_bytes, uint64_t{0});
}

TEST(prefix_cache_prompt_scores_are_all_computed_after_a_hit) {
  TestEngine engine;
  Inputs inputs(25);
  SampleRequest request = Greedy(std::nullopt, inputs.Tokens(200));
  request.prompt_logprobs = true;
  const SampleResult cold = engine.Sample(request).Get();
  const uint64_t hits = engine.raw().stats().prefix_hit_tokens;
  SameEverything(engine.Sample(request).Get(), cold);
  CHECK_EQ(engine.raw().stats().prefix_hit_tokens, hits);
  request.prompt_logprobs = false;
  SAME_SAMPLES(engine.Sample(request).Get(), cold);
  CHECK_EQ(engine.raw().stats().prefix_hit_tokens, hits + 192);
}

TEST(prefix_cache_compares_whole_blocks_and_gives_up_the_oldest) {
  PrefixCache cache(4);
  const PrefixCache::Serial root = cache.RootOf(nullptr);
  BlockTokens tokens{};
  const auto add = [&](PrefixCache::Serial parent, int32_t last) {
    tokens[63] = last;
    const int32_t page = cache.Take();
    CHECK_EQ(cache.Insert(root, parent, tokens, page), page);
    return page;
  };
  const auto find = [&](PrefixCache::Serial parent, int32_t last) {
    tokens[63] = last;
    const int32_t page = cache.Find(parent, tokens);
    if (page >= 0) cache.Drop(page);
    return page;
  };
  const int32_t a = add(root, 1);
  const PrefixCache::Serial serial = cache.SerialOf(a);
  const int32_t b = add(serial, 1);
  CHECK_EQ(find(root, 2), -1);
  CHECK_EQ(find(root, 1), a);
  CHECK_EQ(find(serial, 1), b);
  // A second page with the same block: its user moves to the first.
  const int32_t twin = cache.Take();
  tokens[63] = 1;
  CHECK_EQ(cache.Insert(root, serial, tokens, twin), b);
  cache.Drop(b);
  cache.Drop(b);
  cache.Drop(a);
  CHECK_EQ(cache.available(), size_t{4});
  for (int i = 0; i < 3; ++i) CHECK(cache.Take() >= 0);
  CHECK_EQ(find(serial, 1), -1);  // the child went first
  CHECK_EQ(find(root, 1), a);
  CHECK_EQ(cache.evictions(), uint64_t{1});
  CHECK(cache.Take() == a);
  CHECK_EQ(cache.Take(), -1);
  CHECK_EQ(find(root, 1), -1);
}

// Sampler and executor without an engine, so that a test can take pages away between steps.
struct Bench {
  explicit Bench(const TinyBase& base, size_t pages, int rows)
      : config(ConfigOf(base)),
        executor(Options(), config, WeightsOf(base)),
        sampler(config, &executor, pages, rows, 1e300, &stats) {}

  static CpuExecutorOptions Options() {
    CpuExecutorOptions options;
    options.path = kernels::parsePath(std::getenv("HOTBED_KERNELS"));
    return options;
  }

  ModelConfig config;
  CpuExecutor executor;
  EngineStats stats;
  Sampler sampler;
};

// With `chaos` pages are taken away at random; with `cancels` calls are, too, whose result then is
// empty.
std::vector<SampleResult> RunPreempted(size_t pages, int rows, unsigned chaos, EngineStats* stats,
                                       bool cancels = false) {
  Bench bench(QwenBase(), pages, rows);
  Inputs inputs(26);
  std::vector<std::shared_ptr<const AdapterWeights>> policies = {nullptr};
  std::vector<std::unique_ptr<AdapterState>> states;
  for (int i = 0; i < 2; ++i) {
    states.push_back(ZeroAdapterState(bench.config, inputs.Spec()));
    for (float& value : states.back()->weights->values) value = inputs.Float(-0.2f, 0.2f);
    policies.push_back(states.back()->weights);
  }
  std::vector<std::optional<PolicyHandle>> names = {0, 1, 2};
  const std::vector<SampleRequest> requests = SharedPrefixes(inputs, 16, names);
  std::vector<SampleResult> results(requests.size());
  size_t done = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    auto call = std::make_unique<SampleCall>();
    call->id = i + 1;
    call->weights = policies[*requests[i].policy];
    call->request = requests[i];
    call->done = [&results, &done, i](Result<SampleResult> result) {
      if (result.ok()) {
        results[i] = std::move(result.value());
      } else {
        CHECK(result.fault().code == FaultCode::kCancelled);
      }
      ++done;
    };
    bench.sampler.Submit(std::move(call));
  }
  Inputs dice(chaos);
  while (bench.sampler.has_work()) {
    bench.sampler.Step(0);
    while (chaos != 0 && dice.Int(0, 5) == 0) bench.sampler.PreemptLatest();
    if (cancels && dice.Int(0, 9) == 0) {
      bench.sampler.Cancel(static_cast<RequestId>(dice.Int(1, static_cast<int>(requests.size()))));
    }
  }
  CHECK_EQ(done, requests.size());
  CHECK_EQ(bench.sampler.used_pages(), size_t{0});
  *stats = bench.stats;
  return results;
}

TEST(preemption_changes_no_result) {
  EngineStats stats;
  const std::vector<SampleResult> expected = RunPreempted(400, 64, 0, &stats);
  CHECK_EQ(stats.preemptions, uint64_t{0});
  for (size_t pages : {5, 7, 12, 30, 400}) {
    for (int rows : {7, 64, 300}) {
      const std::vector<SampleResult> actual = RunPreempted(pages, rows, pages + rows, &stats);
      CHECK(stats.preemptions > 0);
      for (size_t i = 0; i < expected.size(); ++i) SameEverything(actual[i], expected[i]);
    }
  }
}

TEST(preemption_beside_cancelled_calls_leaves_nothing_behind) {
  EngineStats stats;
  const std::vector<SampleResult> expected = RunPreempted(400, 64, 0, &stats);
  size_t kept = 0, cancelled = 0;
  for (unsigned chaos = 1; chaos <= 12; ++chaos) {
    const std::vector<SampleResult> actual = RunPreempted(4 + 3 * chaos, 48, chaos, &stats, true);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (actual[i].sequences.empty()) {
        ++cancelled;
        continue;
      }
      SameEverything(actual[i], expected[i]);
      ++kept;
    }
  }
  CHECK(kept > 12 && cancelled > 12);
}

// Sequences that outgrow the pages together: later ones give way, all end.
TEST(preemption_by_growth_ends_every_call) {
  for (size_t pages : {4, 5, 9}) {
    Bench bench(LlamaBase(), pages, 32);
    Bench roomy(LlamaBase(), 300, 32);
    Inputs inputs(27);
    std::vector<SampleResult> results[2];
    size_t done = 0;
    for (int i = 0; i < 12; ++i) {
      SampleRequest request = Greedy(std::nullopt, inputs.Tokens(inputs.Int(3, 60)), 190);
      request.params.temperature = 1;
      request.seeds = {static_cast<uint64_t>(i), 77};
      for (int which : {0, 1}) {
        results[which].resize(12);
        auto call = std::make_unique<SampleCall>();
        call->id = i + 1;
        call->request = request;
        call->done = [&results, &done, i, which](Result<SampleResult> result) {
          results[which][i] = std::move(result.value());
          ++done;
        };
        (which ? roomy : bench).sampler.Submit(std::move(call));
      }
    }
    while (bench.sampler.has_work()) bench.sampler.Step(0);
    while (roomy.sampler.has_work()) roomy.sampler.Step(0);
    CHECK_EQ(done, size_t{24});
    CHECK(bench.stats.preemptions > 0);
    CHECK_EQ(roomy.stats.preemptions, uint64_t{0});
    for (size_t i = 0; i < results[0].size(); ++i) SameEverything(results[0][i], results[1][i]);
  }
}

// A listener hears the tokens step by step; a sequence told to end keeps exactly so many, whatever
// was drawn beyond, and the others are what they are without it.
TEST(sampling_streams_in_order_and_ends_single_sequences_early) {
  Inputs inputs(28);
  SampleRequest request = inputs.Request(std::nullopt);
  request.seeds = {1, 2, 3};
  request.params = SamplingParams();
  request.params.max_tokens = 30;
  request.top_logprobs = 2;
  const auto run = [&](const std::vector<std::array<size_t, 3>>& stops) {
    Bench bench(LlamaBase(), 50, 16);
    SampleResult kept;
    std::vector<SampledToken> heard;
    auto call = std::make_unique<SampleCall>();
    call->id = 9;
    call->request = request;
    call->done = [&](Result<SampleResult> result) { kept = std::move(result.value()); };
    call->on_tokens = [&](const std::vector<SampledToken>& news) {
      CHECK(kept.sequences.empty());
      heard.insert(heard.end(), news.begin(), news.end());
    };
    bench.sampler.Submit(std::move(call));
    for (size_t step = 0; bench.sampler.has_work(); ++step) {
      for (const auto& [when, sequence, length] : stops) {
        if (when == step) bench.sampler.StopSequence(9, sequence, length);
      }
      bench.sampler.Step(0);
    }
    CHECK_EQ(bench.sampler.used_pages(), size_t{0});
    for (size_t i = 0; i < kept.sequences.size(); ++i) {
      std::vector<int32_t> tokens;
      for (const SampledToken& token : heard) {
        if (token.sequence != i) continue;
        CHECK_EQ(token.index, tokens.size());
        tokens.push_back(token.token);
      }
      CHECK(tokens.size() >= kept.sequences[i].tokens.size());
      tokens.resize(kept.sequences[i].tokens.size());
      CHECK(tokens == kept.sequences[i].tokens);
    }
    return kept;
  };
  const SampleResult whole = run({});
  const auto cut_at = [](SampledSequence sequence, size_t length) {
    sequence.tokens.resize(length);
    sequence.policy_logprobs.resize(length);
    sequence.sampling_logprobs.resize(length);
    sequence.top->tokens.resize(2 * length);
    sequence.top->logprobs.resize(2 * length);
    sequence.stop_reason = StopReason::kStop;
    return sequence;
  };
  SampleResult expected = whole;
  expected.sequences[1] = cut_at(whole.sequences[1], 7);
  // Said before it is drawn, just then, and long after.
  for (size_t when : {0, 3, 15, 20, 29}) {
    SameEverything(run({{{when, 1, 7}}, {{when, 1, 9}}, {{when, 5, 1}}}), expected);
  }
  expected.sequences[0] = cut_at(whole.sequences[0], 1);
  expected.sequences[2] = cut_at(whole.sequences[2], 30);
  SameEverything(run({{{12, 1, 7}}, {{20, 0, 0}}, {{25, 2, 1000}}, {{26, 1, 8}}, {{28, 2, 30}}}),
                 expected);
}

}  // namespace
}  // namespace hotbed::test
