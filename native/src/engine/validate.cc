#include "engine/validate.h"

#include <unistd.h>

#include <cmath>
#include <string>

#include "engine/fault.h"
#include "engine/loss_fields.h"

namespace hotbed {

namespace {

[[noreturn]] void Refuse(const std::string& field, const std::string& message) {
  throw EngineFault(FaultCode::kInvalidArgument, field + ": " + message);
}

uint64_t PhysicalMemoryMiB() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
             static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) >>
         20;
}

void AtLeast(const char* field, double value, double least) {
  if (!(value >= least)) {
    Refuse(field, "expected " + std::to_string(static_cast<long long>(least)) + " or more, got " +
                      std::to_string(static_cast<long long>(value)));
  }
}

void InRange(const char* field, double value, double low, double high) {
  if (!(value >= low && value < high)) {
    Refuse(field, "expected a number in [" + std::to_string(low) + ", " + std::to_string(high) +
                      "), got " + std::to_string(value));
  }
}

void TokenIds(const ModelConfig& config, const std::string& field,
              const std::vector<int32_t>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < config.vocab_size) continue;
    Refuse(field + "[" + std::to_string(i) + "]", "token id " + std::to_string(tokens[i]) +
                                                      " is outside 0.." +
                                                      std::to_string(config.vocab_size - 1));
  }
}

void TopCount(const char* field, int count) {
  if (count < 0 || count > kMostTopTokens) {
    Refuse(field, "expected 0 (off) to " + std::to_string(kMostTopTokens) + ", got " +
                      std::to_string(count));
  }
}

void Finite(const std::string& field, const std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      Refuse(field + "[" + std::to_string(i) + "]",
             "expected a finite number, got " + std::to_string(values[i]));
    }
  }
}

// `values` belongs to this loss when `wanted`, and then has `count` finite numbers, one per `unit`.
void PerUnit(const std::string& field, const std::optional<std::vector<float>>& values, bool wanted,
             const char* loss, size_t count, const char* unit) {
  if (wanted && !values) Refuse(field, std::string("required by ") + loss);
  if (!wanted && values) Refuse(field, std::string("expected null for ") + loss);
  if (!values) return;
  if (values->size() != count) {
    Refuse(field, "expected " + std::to_string(count) + " numbers, one per " + unit + ", got " +
                      std::to_string(values->size()));
  }
  Finite(field, *values);
}

// Far beyond sense, and its float is finite.
constexpr double kMostBeta = 1e30;

void ValidateLoss(const Loss& loss) {
  const LossFields& fields = FieldsOf(loss.name);
  const std::string word = fields.word;
  if (!fields.clip && loss.clip_low) Refuse("loss.clipLow", "expected null for " + word);
  if (!fields.clip && loss.clip_high) Refuse("loss.clipHigh", "expected null for " + word);
  if (!fields.beta && loss.beta) Refuse("loss.beta", "expected null for " + word);
  if (fields.clip) {
    if (!loss.clip_low || !std::isfinite(*loss.clip_low) || *loss.clip_low < 0) {
      Refuse("loss.clipLow", word + " needs a finite ratio, 0 or more");
    }
    if (!loss.clip_high || !std::isfinite(*loss.clip_high) || *loss.clip_high < *loss.clip_low) {
      Refuse("loss.clipHigh", word + " needs a finite ratio, clipLow or more");
    }
  }
  if (fields.beta && (!loss.beta || !(*loss.beta >= 0 && *loss.beta <= kMostBeta))) {
    Refuse("loss.beta", word + " needs a number from 0 to 1e30");
  }
}

// Targets and the numbers that go with them; `in` is the branch's path.
void ValidateTargets(const ModelConfig& config, LossName loss, const Branch& branch,
                     const std::string& in) {
  const LossFields& fields = FieldsOf(loss);
  const size_t n = branch.tokens.size();
  size_t count = n;
  if (branch.targets) {
    const std::string field = in + ".targets";
    count = branch.targets->size();
    if (count == 0 || count % n != 0) {
      Refuse(field, "expected K ids for each of the " + std::to_string(n) + " tokens, got " +
                        std::to_string(count));
    }
    if (count / n > static_cast<size_t>(config.vocab_size)) {
      Refuse(field, std::to_string(count / n) + " targets per token exceed the vocabulary of " +
                        std::to_string(config.vocab_size));
    }
    if (fields.mask && count != n) {
      Refuse(field, std::string(fields.word) +
                        " has one target per token: its ratio is that of a " + "sequence");
    }
    TokenIds(config, field, *branch.targets);
  }
  const char* const unit = count == n ? "token" : "target";
  PerUnit(in + ".weights", branch.weights, fields.weights, fields.word, count, unit);
  PerUnit(in + ".logprobs", branch.logprobs, fields.advantages, fields.word, count, unit);
  PerUnit(in + ".advantages", branch.advantages, fields.advantages, fields.word, count, unit);
  PerUnit(in + ".gradients", branch.gradients, fields.gradients, fields.word, count, unit);
  PerUnit(in + ".mask", branch.mask, fields.mask, fields.word, n, "token");
}

}  // namespace

void ValidateOptions(const EngineOptions& options) {
  if (options.threads) AtLeast("threads", *options.threads, 1);
  if (options.threads && *options.threads > 256) Refuse("threads", "expected 256 or fewer");
  AtLeast("kvCacheMiB", options.kv_cache_mib, 1);
  // Pages are taken as they are used, so a slip of the pen would show only much later.
  if (static_cast<uint64_t>(options.kv_cache_mib) > PhysicalMemoryMiB()) {
    Refuse("kvCacheMiB", std::to_string(options.kv_cache_mib) +
                             " MiB are more than this machine's memory of " +
                             std::to_string(PhysicalMemoryMiB()) + " MiB");
  }
  AtLeast("activationBudgetMiB", options.activation_budget_mib, 0);
  AtLeast("maxStepRows", options.max_step_rows, 1);
  AtLeast("preemptEvery", options.preempt_every, 0);
  AtLeast("maxTrainRows", options.max_train_rows, 1);
  const double floors[] = {options.decode_floor, options.training_floor};
  const char* const names[] = {"scheduling.decodeFloor", "scheduling.trainingFloor"};
  for (int i = 0; i < 2; ++i) {
    if (!(floors[i] >= 0 && floors[i] <= 1)) {
      Refuse(names[i], "expected a part from 0 to 1, got " + std::to_string(floors[i]));
    }
  }
  if (floors[0] + floors[1] > 1) {
    Refuse(names[1], "the floors of decode and training are more than 1 together");
  }
  if (!(options.max_wait_flops > 0)) {
    Refuse("scheduling.maxWaitGflop", "expected a number above 0");
  }
  const auto check_limits = [](const std::string& scope, const PendingWork& limits) {
    AtLeast((scope + ".samplingCalls").c_str(), static_cast<double>(limits.sampling_calls), 1);
    AtLeast((scope + ".samplingTokens").c_str(), static_cast<double>(limits.sampling_tokens), 1);
    AtLeast((scope + ".trainingRows").c_str(), static_cast<double>(limits.training_rows), 1);
    AtLeast((scope + ".trainingMiB").c_str(), static_cast<double>(limits.training_bytes), 1);
  };
  check_limits("limits.total", options.limits.total);
  check_limits("limits.perTenant", options.limits.per_tenant);
}

void ValidateTokens(const ModelConfig& config, const std::string& field,
                    const std::vector<int32_t>& tokens) {
  if (tokens.empty()) Refuse(field, "expected at least one token id");
  TokenIds(config, field, tokens);
  if (tokens.size() > static_cast<size_t>(config.max_position)) {
    Refuse(field, std::to_string(tokens.size()) + " tokens exceed the context length of " +
                      std::to_string(config.max_position));
  }
}

void ValidateSampleRequest(const ModelConfig& config, const SampleRequest& request) {
  ValidateTokens(config, "prompt", request.prompt);
  if (request.prompt.size() == static_cast<size_t>(config.max_position)) {
    Refuse("prompt", std::to_string(request.prompt.size()) +
                         " tokens leave no room to generate within the context length of " +
                         std::to_string(config.max_position));
  }
  if (request.seeds.empty()) Refuse("seeds", "expected at least one seed, one per sequence");
  TopCount("promptTopK", request.prompt_top_k);
  TopCount("topLogprobs", request.top_logprobs);
  const SamplingParams& params = request.params;
  if (!std::isfinite(params.temperature) || params.temperature < 0) {
    Refuse("params.temperature", "expected 0 (argmax) or a finite number above it");
  }
  const float temperature = static_cast<float>(params.temperature);
  if (params.temperature > 0 && (!std::isnormal(temperature) || temperature < 1e-5f)) {
    Refuse("params.temperature", "expected 0 (argmax), or 1e-5 or more");
  }
  if (params.top_k < 0) Refuse("params.topK", "expected 0 (off) or more");
  if (!(params.top_p > 0)) Refuse("params.topP", "expected a number above 0; 1 or more is off");
  if (params.max_tokens < 1) Refuse("params.maxTokens", "expected 1 or more");
  for (size_t i = 0; i < params.stop_token_ids.size(); ++i) {
    const int32_t id = params.stop_token_ids[i];
    if (id < 0 || id >= config.vocab_size) {
      Refuse("params.stopTokenIds[" + std::to_string(i) + "]",
             "token id " + std::to_string(id) + " is outside 0.." +
                 std::to_string(config.vocab_size - 1));
    }
  }
}

void ValidateTrainingCall(const ModelConfig& config, const Loss& loss,
                          const std::vector<Datum>& datums) {
  ValidateLoss(loss);
  if (datums.empty()) Refuse("datums", "expected at least one datum");
  for (size_t i = 0; i < datums.size(); ++i) {
    const Datum& datum = datums[i];
    const std::string at = "datums[" + std::to_string(i) + "]";
    ValidateTokens(config, at + ".prompt", datum.prompt);
    if (datum.branches.empty()) Refuse(at + ".branches", "expected at least one branch");
    for (size_t b = 0; b < datum.branches.size(); ++b) {
      const Branch& branch = datum.branches[b];
      const std::string in = at + ".branches[" + std::to_string(b) + "]";
      ValidateTokens(config, in + ".tokens", branch.tokens);
      const size_t rows = datum.prompt.size() + branch.tokens.size() - 1;
      if (rows > static_cast<size_t>(config.max_position)) {
        Refuse(in + ".tokens", "prompt and completion need " + std::to_string(rows) +
                                   " positions, the context length is " +
                                   std::to_string(config.max_position));
      }
      ValidateTargets(config, loss.name, branch, in);
    }
  }
}

void ValidateAdamParams(const AdamParams& params) {
  InRange("params.learningRate", params.learning_rate, 0, 1e30);
  InRange("params.beta1", params.beta1, 0, 1);
  InRange("params.beta2", params.beta2, 0, 1);
  InRange("params.eps", params.eps, 0, 1e30);
  // 0 / (sqrt(0) + 0) would make NaN of every parameter that has no gradient yet.
  if (!(static_cast<float>(params.eps) > 0)) {
    Refuse("params.eps", "expected a number above 0 in float32");
  }
  InRange("params.weightDecay", params.weight_decay, 0, 1e30);
  InRange("params.gradClipNorm", params.grad_clip_norm, 0, 1e300);
}

}  // namespace hotbed
