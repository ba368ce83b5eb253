// What the engine's tests share: tiny random bases, a blocking facade, bitwise comparison.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/fault.h"
#include "engine/loss_fields.h"
#include "fault_check.h"
#include "harness.h"
#include "kernels/kernel_table.h"

namespace hotbed::test {

// Flavours of a tiny base: what differs between the families.
struct TinyBase {
  int hidden = 32;
  int layers = 2;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 8;
  int ff = 48;
  int vocab = 61;
  int tokenizer = 57;
  int context = 256;
  bool tied = true;
  bool qk_norm = false;
  bool biases = false;
  bool bf16 = false;
  const char* numerics = "f32-1";
  unsigned seed = 1;
};

inline TinyBase LlamaBase() { return TinyBase(); }

inline TinyBase QwenBase() {
  TinyBase base;
  base.qk_norm = true;
  base.biases = true;
  base.tied = false;
  base.heads = 2;
  base.kv_heads = 1;
  base.head_dim = 16;
  base.bf16 = true;
  return base;
}

// Under bf16-1, its separate head with an odd number of ids.
inline TinyBase PairBase() {
  TinyBase base;
  base.tied = false;
  base.bf16 = true;
  base.numerics = "bf16-1";
  return base;
}

inline std::vector<TinyBase> AllBases() { return {LlamaBase(), QwenBase(), PairBase()}; }

// The options with the base's contract; where they name no path, the fastest that keeps it here.
inline EngineOptions OptionsFor(const TinyBase& base, EngineOptions options) {
  options.numerics = base.numerics;
  if (options.numerics == "bf16-1" && !options.kernels) {
    const bool dots = kernels::supports(kernels::Path::avx512bf16);
    options.kernels = kernels::kernels(dots ? kernels::Path::avx512bf16 : kernels::bestPath()).name;
  }
  return options;
}

inline ModelConfig ConfigOf(const TinyBase& base) {
  ModelConfig config;
  config.architecture = base.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM";
  config.family = base.qk_norm ? ModelFamily::kQwen3 : ModelFamily::kLlama;
  config.hidden_size = base.hidden;
  config.intermediate_size = base.ff;
  config.num_layers = base.layers;
  config.num_heads = base.heads;
  config.num_kv_heads = base.kv_heads;
  config.head_dim = base.head_dim;
  config.vocab_size = base.vocab;
  config.max_position = base.context;
  config.tied_head = base.tied;
  config.qkv_bias = base.biases;
  config.o_bias = base.biases;
  config.mlp_bias = base.biases;
  config.qk_norm = base.qk_norm;
  config.tokenizer_size = base.tokenizer;
  return config;
}

inline ModelWeights WeightsOf(const TinyBase& base) {
  std::mt19937 random(base.seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  const auto vector_of = [&](int n, float center, float spread) {
    std::vector<float> values(n);
    for (float& v : values) v = center + spread * uniform(random);
    return values;
  };
  const auto matrix_of = [&](int rows, int cols, float spread) {
    WeightMatrix matrix;
    matrix.rows = rows;
    matrix.cols = cols;
    const size_t count = static_cast<size_t>(rows) * cols;
    if (base.bf16) {
      auto data = std::make_shared<std::vector<uint16_t>>(count);
      for (uint16_t& bits : *data) {
        const float value = spread * uniform(random);
        uint32_t wide;
        std::memcpy(&wide, &value, sizeof(wide));
        bits = static_cast<uint16_t>(wide >> 16);
      }
      matrix.type = WeightType::kBf16;
      matrix.data = std::shared_ptr<const void>(data, data->data());
    } else {
      auto data =
          std::make_shared<std::vector<float>>(vector_of(static_cast<int>(count), 0, spread));
      matrix.data = std::shared_ptr<const void>(data, data->data());
    }
    return matrix;
  };
  const float spread = 0.35f;
  ModelWeights weights;
  weights.embedding = matrix_of(base.vocab, base.hidden, 1.0f);
  for (int i = 0; i < base.layers; ++i) {
    LayerWeights layer;
    const int q = base.heads * base.head_dim, kv = base.kv_heads * base.head_dim;
    layer.input_norm = vector_of(base.hidden, 1, 0.3f);
    layer.post_attention_norm = vector_of(base.hidden, 1, 0.3f);
    if (base.qk_norm) {
      layer.q_norm = vector_of(base.head_dim, 1.5f, 0.5f);
      layer.k_norm = vector_of(base.head_dim, 1.5f, 0.5f);
    }
    layer.q = matrix_of(q, base.hidden, spread);
    layer.k = matrix_of(kv, base.hidden, spread);
    layer.v = matrix_of(kv, base.hidden, spread);
    layer.o = matrix_of(base.hidden, q, spread);
    layer.gate = matrix_of(base.ff, base.hidden, spread);
    layer.up = matrix_of(base.ff, base.hidden, spread);
    layer.down = matrix_of(base.hidden, base.ff, spread);
    if (base.biases) {
      layer.q_bias = vector_of(q, 0, 0.2f);
      layer.k_bias = vector_of(kv, 0, 0.2f);
      layer.v_bias = vector_of(kv, 0, 0.2f);
      layer.o_bias = vector_of(base.hidden, 0, 0.2f);
      layer.gate_bias = vector_of(base.ff, 0, 0.2f);
      layer.up_bias = vector_of(base.ff, 0, 0.2f);
      layer.down_bias = vector_of(base.hidden, 0, 0.2f);
    }
    weights.layers.push_back(std::move(layer));
  }
  weights.final_norm = vector_of(base.hidden, 1, 0.3f);
  weights.head = base.tied ? weights.embedding : matrix_of(base.vocab, base.hidden, 0.7f);
  return weights;
}

// HOTBED_KERNELS runs the whole suite on one path.
inline EngineOptions SmallOptions() {
  EngineOptions options;
  if (const char* path = std::getenv("HOTBED_KERNELS")) options.kernels = path;
  options.threads = 1;
  options.kv_cache_mib = 8;
  options.activation_budget_mib = 64;
  options.max_step_rows = 32;
  options.max_train_rows = 128;
  options.train_slice_flops = 0;  // a sampling step may come after every layer
  return options;
}

// The value of a call, or the fault thrown.
template <typename T>
class Pending {
 public:
  Pending() : promise_(std::make_shared<std::promise<Result<T>>>()) {}
  Done<T> done() const {
    return [promise = promise_](Result<T> result) { promise->set_value(std::move(result)); };
  }
  Result<T> Wait() { return promise_->get_future().get(); }
  T Get() {
    Result<T> result = Wait();
    if (!result.ok()) throw EngineFault(result.fault().code, result.fault().message);
    return std::move(result.value());
  }

 private:
  std::shared_ptr<std::promise<Result<T>>> promise_;
};

// The engine with calls that return handles to wait on.
class TestEngine {
 public:
  explicit TestEngine(const TinyBase& base = LlamaBase(),
                      const EngineOptions& options = SmallOptions())
      : engine_(OptionsFor(base, options), ConfigOf(base), WeightsOf(base), "test") {}
  TestEngine(const EngineOptions& options, LoadedModel model)
      : engine_(options, std::move(model.config), std::move(model.weights), model.base_digest) {}

  Engine& raw() { return engine_; }
  AdapterHandle Create(const AdapterSpec& spec) {
    Pending<AdapterHandle> pending;
    engine_.CreateAdapter(spec, pending.done());
    return pending.Get();
  }
  AdapterHandle Adopt(std::unique_ptr<AdapterState> state) {
    Pending<AdapterHandle> pending;
    engine_.AdoptState(std::move(state), pending.done());
    return pending.Get();
  }
  void Drop(AdapterHandle adapter) {
    Pending<Unit> pending;
    engine_.DropAdapter(adapter, pending.done());
    pending.Get();
  }
  PolicyHandle Pin(AdapterHandle adapter) {
    Pending<PolicyHandle> pending;
    engine_.Pin(adapter, pending.done());
    return pending.Get();
  }
  std::shared_ptr<const AdapterState> State(AdapterHandle adapter) {
    Pending<std::shared_ptr<const AdapterState>> pending;
    engine_.CopyState(adapter, pending.done());
    return pending.Get();
  }
  Pending<SampleResult> Sample(SampleRequest request, RequestId* id = nullptr) {
    Pending<SampleResult> pending;
    const RequestId given = engine_.Sample(std::move(request), pending.done());
    if (id) *id = given;
    return pending;
  }
  Pending<ForwardBackwardResult> Forward(std::optional<AdapterHandle> adapter, const Loss& loss,
                                         std::vector<Datum> datums) {
    Pending<ForwardBackwardResult> pending;
    engine_.Forward(adapter, loss, std::move(datums), pending.done());
    return pending;
  }
  Pending<ForwardBackwardResult> Train(AdapterHandle adapter, const Loss& loss,
                                       std::vector<Datum> datums) {
    Pending<ForwardBackwardResult> pending;
    engine_.ForwardBackward(adapter, loss, std::move(datums), pending.done());
    return pending;
  }
  Pending<OptimStepResult> Step(AdapterHandle adapter, const AdamParams& params) {
    Pending<OptimStepResult> pending;
    engine_.OptimStep(adapter, params, pending.done());
    return pending;
  }
  Pending<std::vector<float>> Logits(std::optional<PolicyHandle> policy,
                                     std::vector<int32_t> tokens) {
    Pending<std::vector<float>> pending;
    engine_.Logits(policy, std::move(tokens), pending.done());
    return pending;
  }

 private:
  Engine engine_;
};

// Bitwise comparison; on failure the first differing index and both values.
inline void CheckSameBits(const char* file, int line, const std::string& what, const float* actual,
                          const float* expected, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (std::memcmp(actual + i, expected + i, sizeof(float)) == 0) continue;
    std::ostringstream message;
    message.precision(9);
    message << what << "[" << i << "] of " << count << ": expected " << expected[i] << ", actual "
            << actual[i];
    fail(file, line, message.str());
  }
}

inline void CheckSameBits(const char* file, int line, const std::string& what,
                          const std::vector<float>& actual, const std::vector<float>& expected) {
  checkEqual(file, line, (what + ".size()").c_str(), actual.size(), expected.size());
  CheckSameBits(file, line, what, actual.data(), expected.data(), actual.size());
}

// A, B, moments, gradient and step.
inline void CheckSameState(const char* file, int line, const std::string& what,
                           const AdapterState& actual, const AdapterState& expected) {
  checkEqual(file, line, (what + ".step").c_str(), actual.step, expected.step);
  const size_t n = expected.layout->buffer_size();
  checkEqual(file, line, (what + ".size").c_str(), actual.layout->buffer_size(), n);
  CheckSameBits(file, line, what + ".gradient", actual.gradient.data(), expected.gradient.data(),
                n);
  CheckSameBits(file, line, what + ".m", actual.m.data(), expected.m.data(), n);
  CheckSameBits(file, line, what + ".v", actual.v.data(), expected.v.data(), n);
  CheckSameBits(file, line, what + ".weights", actual.weights->values.data(),
                expected.weights->values.data(), n);
}

inline void CheckSameResult(const char* file, int line, const std::string& what,
                            const ForwardBackwardResult& actual,
                            const ForwardBackwardResult& expected) {
  checkEqual(file, line, (what + ".lossSum").c_str(), actual.loss_sum, expected.loss_sum);
  checkEqual(file, line, (what + ".tokens").c_str(), actual.tokens, expected.tokens);
  checkEqual(file, line, (what + ".datums").c_str(), actual.logprobs.size(),
             expected.logprobs.size());
  for (size_t i = 0; i < expected.logprobs.size(); ++i) {
    for (size_t b = 0; b < expected.logprobs[i].size(); ++b) {
      CheckSameBits(file, line, what + ".logprobs", actual.logprobs[i][b], expected.logprobs[i][b]);
    }
  }
}

inline void CheckSameSamples(const char* file, int line, const std::string& what,
                             const SampleResult& actual, const SampleResult& expected) {
  checkEqual(file, line, (what + ".sequences").c_str(), actual.sequences.size(),
             expected.sequences.size());
  for (size_t i = 0; i < expected.sequences.size(); ++i) {
    const SampledSequence& a = actual.sequences[i];
    const SampledSequence& e = expected.sequences[i];
    if (a.tokens != e.tokens) fail(file, line, what + ": tokens differ");
    if (a.stop_reason != e.stop_reason) fail(file, line, what + ": stop reasons differ");
    CheckSameBits(file, line, what + ".policyLogprobs", a.policy_logprobs, e.policy_logprobs);
    CheckSameBits(file, line, what + ".samplingLogprobs", a.sampling_logprobs, e.sampling_logprobs);
  }
}

#define SAME_BITS(actual, expected) \
  ::hotbed::test::CheckSameBits(__FILE__, __LINE__, #actual, (actual), (expected))
#define SAME_STATE(actual, expected) \
  ::hotbed::test::CheckSameState(__FILE__, __LINE__, #actual, *(actual), *(expected))
#define SAME_RESULT(actual, expected) \
  ::hotbed::test::CheckSameResult(__FILE__, __LINE__, #actual, (actual), (expected))
#define SAME_SAMPLES(actual, expected) \
  ::hotbed::test::CheckSameSamples(__FILE__, __LINE__, #actual, (actual), (expected))

// Seeded inputs of any shape.
class Inputs {
 public:
  explicit Inputs(unsigned seed, int vocab = 57) : random_(seed), vocab_(vocab) {}

  int Int(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  float Float(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random_);
  }
  std::vector<int32_t> Tokens(int count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = Int(0, vocab_ - 1);
    return tokens;
  }
  AdapterSpec Spec() {
    AdapterSpec spec;
    spec.rank = Int(1, 12);
    spec.alpha = Int(1, 32);
    spec.rslora = Int(0, 1) == 1;
    for (int m = 0; m < kLayerModuleCount; ++m) {
      if (Int(0, 3) != 0) spec.targets.push_back(static_cast<Module>(m));
    }
    if (Int(0, 2) == 0) spec.targets.push_back(Module::kLmHead);
    if (spec.targets.empty()) spec.targets.push_back(Module::kV);
    spec.seed = static_cast<uint64_t>(Int(0, 1 << 30)) << 20 | static_cast<uint64_t>(Int(0, 999));
    return spec;
  }
  static Loss LossNamed(LossName name) {
    Loss loss;
    loss.name = name;
    if (FieldsOf(name).clip) {
      loss.clip_low = 0.8;
      loss.clip_high = 1.2;
    }
    if (FieldsOf(name).beta) loss.beta = 0.1;
    return loss;
  }
  Loss AnyLoss() { return LossNamed(static_cast<LossName>(Int(0, kLossCount - 1))); }
  // `k` targets per token; 0 = any number that the loss takes.
  Datum OneDatum(const Loss& loss, int prompt, const std::vector<int>& branches, int k = 0) {
    Datum datum;
    datum.prompt = Tokens(prompt);
    for (int length : branches) {
      Branch branch;
      branch.tokens = Tokens(length);
      const bool one = FieldsOf(loss.name).mask || Int(0, 3) != 0;
      FillBranch(loss.name, k != 0 ? k : one ? 1 : Int(2, 4), &branch);
      datum.branches.push_back(std::move(branch));
    }
    return datum;
  }
  // The numbers that the loss takes, for `k` targets per token (1: the tokens themselves).
  void FillBranch(LossName name, int k, Branch* branch) {
    const LossFields& fields = FieldsOf(name);
    const size_t count = branch->tokens.size() * k;
    if (k != 1) branch->targets = Tokens(static_cast<int>(count));
    std::vector<float> weights(count), recorded(count), mask(count);
    for (float& w : weights) w = Int(0, 5) == 0 ? 0.0f : Float(-1.5f, 1.5f);
    for (float& q : recorded) q = Float(-6.0f, -1.0f);
    for (float& m : mask) m = Int(0, 3) == 0 ? 0.0f : 1.0f;
    if (fields.weights) branch->weights = weights;
    if (fields.gradients) branch->gradients = weights;
    if (fields.advantages) branch->advantages = weights;
    if (fields.advantages) branch->logprobs = recorded;
    if (fields.mask) branch->mask = mask;
  }
  Datum AnyDatum(const Loss& loss) {
    std::vector<int> branches(Int(1, 3));
    for (int& length : branches) length = Int(1, 20);
    return OneDatum(loss, Int(1, Int(0, 3) == 0 ? 150 : 20), branches);
  }
  std::vector<Datum> Datums(const Loss& loss, int count) {
    std::vector<Datum> datums;
    for (int i = 0; i < count; ++i) datums.push_back(AnyDatum(loss));
    return datums;
  }
  SampleRequest Request(std::optional<PolicyHandle> policy) {
    SampleRequest request;
    request.policy = policy;
    request.prompt = Tokens(Int(1, Int(0, 3) == 0 ? 140 : 20));
    request.seeds.resize(Int(1, 4));
    for (uint64_t& seed : request.seeds) seed = static_cast<uint64_t>(Int(0, 1 << 30)) << 33 | 7u;
    request.params.temperature = Int(0, 3) == 0 ? 0 : Float(0.5f, 1.5f);
    request.params.top_k = Int(0, 2) == 0 ? Int(1, 20) : 0;
    request.params.top_p = Int(0, 2) == 0 ? Float(0.3f, 0.95f) : 1;
    request.params.max_tokens = Int(1, 30);
    if (Int(0, 1) == 1) request.params.stop_token_ids = Tokens(2);
    request.prompt_logprobs = Int(0, 1) == 1;
    return request;
  }

 private:
  std::mt19937 random_;
  int vocab_;
};

inline AdamParams Adam(double learning_rate = 0.02) {
  AdamParams params;
  params.learning_rate = learning_rate;
  params.beta2 = 0.95;
  params.weight_decay = 0.01;
  params.grad_clip_norm = 1.0;
  return params;
}

}  // namespace hotbed::test
