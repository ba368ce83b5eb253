// The engine on the demo's shape: eight learners at once. `npm run bench:engine` has real shapes.
//
//   engine_bench [steps] [threads]    eight adapters, 8 prompts x 8 samples a step
//
// Prints seconds, rows/s and what shared steps and passes. Timings are of this machine at this
// moment: compare only runs made side by side.
#include <chrono>
#include <cstdio>
#include <cstdlib>
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

}  // namespace

int main(int argc, char** argv) {
  Demo(argc > 1 ? std::atoi(argv[1]) : 50, argc > 2 ? std::atoi(argv[2]) : 2);
  return 0;
}
