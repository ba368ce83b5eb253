// The engine on the shapes that matter: the demo's eight learners at once, and SmolLM2-135M.
//
//   engine_bench demo [steps] [threads]    eight adapters, 8 prompts x 8 samples a step, on a model
//   of the demo's shape
//   engine_bench smollm [threads] [train|decode|adapters]   tokens/s of training and decode, random
//   weights
//
// Prints seconds, tokens/s and what shared steps and passes. Timings are of this machine at this
// moment: compare only runs made side by side.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "engine_support.h"

using namespace hotbed;
using namespace hotbed::test;

namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

AdapterSpec AllModules(int rank, uint64_t seed) {
  AdapterSpec spec;
  spec.rank = rank;
  spec.alpha = 16;
  for (int m = 0; m < kLayerModuleCount; ++m) spec.targets.push_back(static_cast<Module>(m));
  spec.seed = seed;
  return spec;
}

void Learner(TestEngine& engine, int index, int steps, double* sampling, double* training) {
  const AdapterHandle adapter = engine.Create(AllModules(4 << (index % 3), index));
  Inputs inputs(index, 56);
  for (int step = 0; step < steps; ++step) {
    const PolicyHandle policy = engine.Pin(adapter);
    double start = Now();
    std::vector<SampleRequest> requests;
    std::vector<Pending<SampleResult>> pending;
    for (int p = 0; p < 8; ++p) {
      SampleRequest request;
      request.policy = policy;
      request.prompt = inputs.Tokens(7);
      for (int s = 0; s < 8; ++s) request.seeds.push_back(step * 1000 + p * 10 + s);
      request.params.max_tokens = 12;
      request.params.stop_token_ids.push_back(2);
      pending.push_back(engine.Sample(request));
      requests.push_back(std::move(request));
    }
    Loss loss;
    loss.name = LossName::kImportanceSampling;
    std::vector<Datum> datums;
    for (int p = 0; p < 8; ++p) {
      SampleResult result = pending[p].Get();
      Datum datum;
      datum.prompt = std::move(requests[p].prompt);
      for (SampledSequence& sequence : result.sequences) {
        Branch branch;
        branch.tokens = std::move(sequence.tokens);
        branch.logprobs = std::move(sequence.policy_logprobs);
        branch.advantages = std::vector<float>(branch.tokens.size(), inputs.Float(-0.02f, 0.02f));
        datum.branches.push_back(std::move(branch));
      }
      datums.push_back(std::move(datum));
    }
    engine.raw().Release(policy);
    *sampling += Now() - start;
    start = Now();
    engine.Train(adapter, loss, std::move(datums));
    engine.Step(adapter, Adam(3e-3)).Get();
    *training += Now() - start;
  }
}

void Demo(int steps, int threads) {
  TinyBase base;
  base.hidden = 128;
  base.layers = 4;
  base.heads = 4;
  base.kv_heads = 2;
  base.head_dim = 32;
  base.ff = 384;
  base.vocab = base.tokenizer = 56;
  base.context = 128;
  EngineOptions options;
  options.threads = threads;
  options.kv_cache_mib = 256;
  TestEngine engine(base, options);
  double sampling[8] = {}, training[8] = {};
  const double start = Now();
  std::vector<std::thread> learners;
  for (int i = 0; i < 8; ++i) {
    learners.emplace_back([&, i] { Learner(engine, i, steps, &sampling[i], &training[i]); });
  }
  for (std::thread& learner : learners) learner.join();
  const double seconds = Now() - start;
  const EngineStats stats = engine.raw().stats();
  std::printf("demo: %d steps x 8 adapters, %d threads, %s: %.2f s\n", steps, threads,
              engine.raw().info().kernels.c_str(), seconds);
  std::printf("  sampled %llu, prefilled %llu, trained %llu rows; %.0f rows/s\n",
              (unsigned long long)stats.tokens_sampled, (unsigned long long)stats.tokens_prefilled,
              (unsigned long long)stats.tokens_trained,
              (stats.decode_rows + stats.tokens_trained) / seconds);
  std::printf("  %llu steps of %.0f rows (%llu mixed), %llu passes of %.0f rows (%llu mixed)\n",
              (unsigned long long)stats.decode_steps,
              (double)stats.decode_rows / stats.decode_steps,
              (unsigned long long)stats.mixed_decode_steps, (unsigned long long)stats.train_passes,
              (double)stats.tokens_trained / stats.train_passes,
              (unsigned long long)stats.mixed_train_passes);
  std::printf("  learner 0: sampling %.2f s, training %.2f s\n", sampling[0], training[0]);
}

void Smollm(int threads, const std::string& what) {
  TinyBase base;
  base.hidden = 576;
  base.layers = 30;
  base.heads = 9;
  base.kv_heads = 3;
  base.head_dim = 64;
  base.ff = 1536;
  base.vocab = base.tokenizer = 49152;
  base.context = 2048;
  base.bf16 = true;  // as the model is published
  EngineOptions options;
  options.threads = threads;
  options.activation_budget_mib = 1024;
  double start = Now();
  TestEngine engine(base, options);
  std::printf("smollm: load %.2f s, %.0f MB\n", Now() - start,
              engine.raw().info().base_bytes / 1e6);
  const AdapterHandle adapter = engine.Create(AllModules(8, 1));
  Inputs inputs(1, 49152);
  Loss loss;
  for (int round = 0; round < 4 && (what == "train" || what == "all"); ++round) {
    std::vector<Datum> datums;
    for (int i = 0; i < 8; ++i) datums.push_back(inputs.OneDatum(loss, 1, {256}));
    start = Now();
    engine.Train(adapter, loss, datums).Get();
    const double seconds = Now() - start;
    start = Now();
    engine.Step(adapter, Adam(1e-4)).Get();
    std::printf("  training 8 x 256: %.2f s, %.0f tokens/s; step %.3f s\n", seconds,
                8 * 256 / seconds, Now() - start);
  }
  if (what == "train" || what == "all") {
    std::vector<Datum> datums = {inputs.OneDatum(loss, 192, std::vector<int>(8, 64))};
    start = Now();
    engine.Train(adapter, loss, datums).Get();
    std::printf("  training a group of 8 x 64 on 192: %.2f s\n", Now() - start);
  }
  if (what == "adapters") {
    std::vector<AdapterHandle> adapters = {adapter};
    for (int i = 1; i < 64; ++i) adapters.push_back(engine.Create(AllModules(8, i + 1)));
    for (int round = 0; round < 3; ++round) {
      for (int count : {1, 4, 16, 64}) {
        std::vector<Pending<ForwardBackwardResult>> pending;
        start = Now();
        for (int i = 0; i < count; ++i) {
          std::vector<Datum> datums;
          for (int j = 0; j < 64 / count; ++j) datums.push_back(inputs.OneDatum(loss, 1, {32}));
          pending.push_back(engine.Train(adapters[i], loss, datums));
        }
        for (auto& p : pending) p.Get();
        const double seconds = Now() - start;
        std::printf("  training 64 x 32 tokens of %d adapters: %.0f tokens/s\n", count,
                    64 * 32 / seconds);
      }
      for (int count : {1, 8, 32}) {
        std::vector<Pending<SampleResult>> pending;
        std::vector<PolicyHandle> policies;
        for (int i = 0; i < count; ++i) policies.push_back(engine.Pin(adapters[i]));
        start = Now();
        for (int i = 0; i < count; ++i) {
          SampleRequest request;
          request.policy = policies[i];
          request.prompt = inputs.Tokens(1);
          for (int j = 0; j < 32 / count; ++j) request.seeds.push_back(i * 100 + j);
          request.params.max_tokens = 24;
          pending.push_back(engine.Sample(request));
        }
        for (auto& p : pending) p.Get();
        const double seconds = Now() - start;
        std::printf("  decode 32 rows of %d adapters: %.0f tokens/s\n", count, 32 * 24 / seconds);
      }
    }
    return;
  }
  const PolicyHandle policy = engine.Pin(adapter);
  for (int sequences : {1, 1, 2, 4, 8, 16, 32, 64}) {
    if (what == "train") break;
    SampleRequest request;
    request.policy = policy;
    request.prompt = inputs.Tokens(1);
    for (int i = 0; i < sequences; ++i) request.seeds.push_back(i);
    request.params.max_tokens = 24;
    start = Now();
    engine.Sample(request).Get();
    const double seconds = Now() - start;
    std::printf("  sampling %d sequences: %.1f tokens/s\n", sequences, sequences * 24 / seconds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "demo";
  if (what == "smollm") {
    Smollm(argc > 2 ? std::atoi(argv[2]) : 2, argc > 3 ? argv[3] : "all");
  } else {
    Demo(argc > 2 ? std::atoi(argv[2]) : 50, argc > 3 ? std::atoi(argv[3]) : 2);
  }
  return 0;
}
