#include "bindings/convert.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/loss_fields.h"

namespace hotbed {
namespace {

constexpr double kMostExactInteger = 9007199254740991.0;  // 2^53 - 1

[[noreturn]] void Refuse(const Argument& argument, const std::string& expected) {
  throw EngineFault(FaultCode::kInvalidArgument, argument.path + ": expected " + expected);
}

Argument ItemOf(const Argument& list, uint32_t index) {
  return {list.value.As<Napi::Array>().Get(index), list.path + "[" + std::to_string(index) + "]"};
}

uint32_t LengthOf(const Argument& list) {
  if (!list.value.IsArray()) Refuse(list, "a list");
  return list.value.As<Napi::Array>().Length();
}

template <typename Read>
auto ReadList(const Argument& list, Read read) {
  std::vector<decltype(read(list))> items;
  const uint32_t length = LengthOf(list);
  items.reserve(length);
  for (uint32_t i = 0; i < length; ++i) items.push_back(read(ItemOf(list, i)));
  return items;
}

template <typename Read>
auto ReadOptional(const Argument& argument, Read read) -> std::optional<decltype(read(argument))> {
  if (argument.absent()) return std::nullopt;
  return read(argument);
}

template <typename T>
std::vector<T> ReadTyped(const Argument& argument, napi_typedarray_type type, const char* name) {
  if (!argument.value.IsTypedArray() ||
      argument.value.As<Napi::TypedArray>().TypedArrayType() != type) {
    Refuse(argument, name);
  }
  const auto array = argument.value.As<Napi::TypedArrayOf<T>>();
  std::vector<T> items(array.ElementLength());
  if (!items.empty()) std::memcpy(items.data(), array.Data(), items.size() * sizeof(T));
  return items;
}

std::vector<float> ReadFloats(const Argument& argument) {
  return ReadTyped<float>(argument, napi_float32_array, "a Float32Array");
}

Module ReadModule(const Argument& argument) {
  const std::string name = ReadText(argument);
  for (int i = 0; i < kModuleCount; ++i) {
    if (name == ModuleName(static_cast<Module>(i))) return static_cast<Module>(i);
  }
  Refuse(argument, "one of q, k, v, o, gate, up, down, lm_head; got \"" + name + "\"");
}

LossName ReadLossName(const Argument& argument) {
  const std::string text = ReadText(argument);
  std::string words;
  for (int i = 0; i < kLossCount; ++i) {
    const char* word = FieldsOf(static_cast<LossName>(i)).word;
    if (text == word) return static_cast<LossName>(i);
    words += (i == 0 ? "" : ", ") + std::string(word);
  }
  Refuse(argument, "one of " + words + "; got \"" + text + "\"");
}

Branch ReadBranch(const Argument& argument) {
  Branch branch;
  branch.tokens = ReadTokens(argument.Member("tokens"));
  branch.weights = ReadOptional(argument.Member("weights"), ReadFloats);
  branch.logprobs = ReadOptional(argument.Member("logprobs"), ReadFloats);
  branch.advantages = ReadOptional(argument.Member("advantages"), ReadFloats);
  branch.targets = ReadOptional(argument.Member("targets"), ReadTokens);
  branch.gradients = ReadOptional(argument.Member("gradients"), ReadFloats);
  branch.mask = ReadOptional(argument.Member("mask"), ReadFloats);
  argument.RefuseOtherMembers();
  return branch;
}

Datum ReadDatum(const Argument& argument) {
  Datum datum;
  datum.prompt = ReadTokens(argument.Member("prompt"));
  datum.branches = ReadList(argument.Member("branches"), ReadBranch);
  argument.RefuseOtherMembers();
  return datum;
}

uint64_t ReadLimit(const Argument& argument) {
  const double value = ReadNumber(argument);
  if (value != std::trunc(value) || value < 0 || value > kMostExactInteger) {
    Refuse(argument, "an integer, 0 or more");
  }
  return static_cast<uint64_t>(value);
}

PendingWork ReadPendingLimits(const Argument& argument) {
  PendingWork limits;
  limits.sampling_calls = ReadLimit(argument.Member("samplingCalls"));
  limits.sampling_tokens = ReadLimit(argument.Member("samplingTokens"));
  limits.training_rows = ReadLimit(argument.Member("trainingRows"));
  const Argument mib = argument.Member("trainingMiB");
  limits.training_bytes = ReadLimit(mib);
  if (limits.training_bytes > uint64_t{1} << 30) Refuse(mib, "1073741824 or less");
  limits.training_bytes <<= 20;
  argument.RefuseOtherMembers();
  return limits;
}

Napi::Value Int32Array(Napi::Env env, const std::vector<int32_t>& values) {
  auto array = Napi::Int32Array::New(env, values.size());
  if (!values.empty()) std::memcpy(array.Data(), values.data(), values.size() * sizeof(int32_t));
  return array;
}

template <typename T, typename Convert>
Napi::Value List(Napi::Env env, const std::vector<T>& items, Convert convert) {
  const auto array = Napi::Array::New(env, items.size());
  for (uint32_t i = 0; i < items.size(); ++i) array.Set(i, convert(items[i]));
  return array;
}

Napi::Value Number(Napi::Env env, double value) { return Napi::Number::New(env, value); }

Napi::Value TopToJs(Napi::Env env, const std::optional<TopTokens>& top) {
  if (!top) return env.Null();
  auto object = Napi::Object::New(env);
  object.Set("tokens", Int32Array(env, top->tokens));
  object.Set("logprobs", ToJs(env, top->logprobs));
  return object;
}

}  // namespace

Argument Argument::Member(const char* name) const {
  if (!value.IsObject()) Refuse(*this, "an object");
  known.push_back(name);
  return {value.As<Napi::Object>().Get(name), path + "." + name};
}

void Argument::RefuseOtherMembers() const {
  const auto object = value.As<Napi::Object>();
  const Napi::Array names = object.GetPropertyNames();
  for (uint32_t i = 0; i < names.Length(); ++i) {
    const std::string name = names.Get(i).As<Napi::String>().Utf8Value();
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (object.Get(name).IsUndefined()) continue;
    throw EngineFault(FaultCode::kInvalidArgument,
                      path + "." + name + ": this engine knows no such field");
  }
}

std::string ReadText(const Argument& argument) {
  if (!argument.value.IsString()) Refuse(argument, "a string");
  return argument.value.As<Napi::String>().Utf8Value();
}

double ReadNumber(const Argument& argument) {
  if (!argument.value.IsNumber()) Refuse(argument, "a number");
  return argument.value.As<Napi::Number>().DoubleValue();
}

int ReadInteger(const Argument& argument) {
  const double value = ReadNumber(argument);
  if (value != std::trunc(value) || value < std::numeric_limits<int>::min() ||
      value > std::numeric_limits<int>::max()) {
    Refuse(argument, "a 32-bit integer");
  }
  return static_cast<int>(value);
}

bool ReadBoolean(const Argument& argument) {
  if (!argument.value.IsBoolean()) Refuse(argument, "true or false");
  return argument.value.As<Napi::Boolean>().Value();
}

uint64_t ReadDecimal(const Argument& argument) {
  const std::string text = ReadText(argument);
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text != std::to_string(value)) {
    Refuse(argument, "an unsigned 64-bit integer as a decimal string");
  }
  return value;
}

uint64_t ReadHandle(const Argument& argument) {
  const double value = ReadNumber(argument);
  if (value != std::trunc(value) || value < 1 || value > kMostExactInteger) {
    Refuse(argument, "a handle that this engine returned");
  }
  return static_cast<uint64_t>(value);
}

std::vector<int32_t> ReadTokens(const Argument& argument) {
  return ReadTyped<int32_t>(argument, napi_int32_array, "an Int32Array");
}

std::string ReadTenant(const Argument& argument) {
  return argument.absent() ? std::string() : ReadText(argument);
}

OpenOptions ReadOpenOptions(const Argument& argument) {
  OpenOptions options;
  options.model_folder = ReadText(argument.Member("modelFolder"));
  options.engine.numerics = ReadText(argument.Member("numerics"));
  options.engine.kernels = ReadOptional(argument.Member("kernels"), ReadText);
  options.engine.threads = ReadOptional(argument.Member("threads"), ReadInteger);
  options.engine.kv_cache_mib = ReadInteger(argument.Member("kvCacheMiB"));
  options.engine.activation_budget_mib = ReadInteger(argument.Member("activationBudgetMiB"));
  options.engine.max_step_rows = ReadInteger(argument.Member("maxStepRows"));
  options.engine.max_train_rows = ReadInteger(argument.Member("maxTrainRows"));
  const Argument scheduling = argument.Member("scheduling");
  options.engine.decode_floor = ReadNumber(scheduling.Member("decodeFloor"));
  options.engine.training_floor = ReadNumber(scheduling.Member("trainingFloor"));
  options.engine.max_wait_flops = ReadNumber(scheduling.Member("maxWaitGflop")) * 1e9;
  const Argument limits = argument.Member("limits");
  options.engine.limits.total = ReadPendingLimits(limits.Member("total"));
  options.engine.limits.per_tenant = ReadPendingLimits(limits.Member("perTenant"));
  scheduling.RefuseOtherMembers();
  limits.RefuseOtherMembers();
  options.engine.mutation = ReadBoolean(argument.Member("mutation"));
  options.engine.preempt_every =
      ReadOptional(argument.Member("preemptEvery"), ReadInteger).value_or(0);
  argument.RefuseOtherMembers();
  return options;
}

AdapterSpec ReadAdapterSpec(const Argument& argument) {
  AdapterSpec spec;
  spec.rank = ReadInteger(argument.Member("rank"));
  spec.alpha = ReadNumber(argument.Member("alpha"));
  spec.rslora = ReadBoolean(argument.Member("rslora"));
  spec.targets = ReadList(argument.Member("targets"), ReadModule);
  spec.seed = ReadDecimal(argument.Member("seed"));
  argument.RefuseOtherMembers();
  return spec;
}

SampleRequest ReadSampleRequest(const Argument& argument) {
  SampleRequest request;
  request.policy = ReadOptional(argument.Member("policy"), ReadHandle);
  request.prompt = ReadTokens(argument.Member("prompt"));
  request.seeds = ReadList(argument.Member("seeds"), ReadDecimal);
  const Argument params = argument.Member("params");
  request.params.temperature = ReadNumber(params.Member("temperature"));
  request.params.top_k = ReadInteger(params.Member("topK"));
  request.params.top_p = ReadNumber(params.Member("topP"));
  request.params.max_tokens = ReadInteger(params.Member("maxTokens"));
  request.params.stop_token_ids = ReadList(params.Member("stopTokenIds"), ReadInteger);
  request.prompt_logprobs = ReadBoolean(argument.Member("promptLogprobs"));
  request.tenant = ReadTenant(argument.Member("tenant"));
  request.prompt_top_k = ReadOptional(argument.Member("promptTopK"), ReadInteger).value_or(0);
  request.top_logprobs = ReadOptional(argument.Member("topLogprobs"), ReadInteger).value_or(0);
  params.RefuseOtherMembers();
  argument.RefuseOtherMembers();
  return request;
}

Loss ReadLoss(const Argument& argument) {
  Loss loss;
  loss.name = ReadLossName(argument.Member("name"));
  loss.clip_low = ReadOptional(argument.Member("clipLow"), ReadNumber);
  loss.clip_high = ReadOptional(argument.Member("clipHigh"), ReadNumber);
  loss.beta = ReadOptional(argument.Member("beta"), ReadNumber);
  argument.RefuseOtherMembers();
  return loss;
}

std::vector<Datum> ReadDatums(const Argument& argument) { return ReadList(argument, ReadDatum); }

AdamParams ReadAdamParams(const Argument& argument) {
  AdamParams params;
  params.learning_rate = ReadNumber(argument.Member("learningRate"));
  params.beta1 = ReadNumber(argument.Member("beta1"));
  params.beta2 = ReadNumber(argument.Member("beta2"));
  params.eps = ReadNumber(argument.Member("eps"));
  params.weight_decay = ReadNumber(argument.Member("weightDecay"));
  params.grad_clip_norm = ReadNumber(argument.Member("gradClipNorm"));
  argument.RefuseOtherMembers();
  return params;
}

Napi::Value ToJs(Napi::Env env, Unit) { return env.Undefined(); }

Napi::Value ToJs(Napi::Env env, uint64_t handle) {
  return Number(env, static_cast<double>(handle));
}

Napi::Value ToJs(Napi::Env env, const std::string& text) { return Napi::String::New(env, text); }

Napi::Value ToJs(Napi::Env env, const std::vector<float>& values) {
  auto array = Napi::Float32Array::New(env, values.size());
  if (!values.empty()) std::memcpy(array.Data(), values.data(), values.size() * sizeof(float));
  return array;
}

Napi::Value ToJs(Napi::Env env, const EngineInfo& info) {
  auto object = Napi::Object::New(env);
  object.Set("baseDigest", info.base_digest);
  object.Set("numericsId", info.numerics_id);
  object.Set("kernels", info.kernels);
  object.Set("threads", info.threads);
  object.Set("architecture", info.architecture);
  object.Set("hiddenSize", info.hidden_size);
  object.Set("layers", info.layers);
  object.Set("vocabularySize", info.vocabulary_size);
  object.Set("tokenizerSize", info.tokenizer_size);
  object.Set("contextLength", info.context_length);
  object.Set("bosTokenId", info.bos_token_id ? Number(env, *info.bos_token_id) : env.Null());
  object.Set("eosTokenIds",
             List(env, info.eos_token_ids, [env](int id) { return Number(env, id); }));
  object.Set("parameterCount", ToJs(env, info.parameter_count));
  object.Set("baseBytes", ToJs(env, info.base_bytes));
  return object;
}

Napi::Value ToJs(Napi::Env env, const EngineStats& stats) {
  auto object = Napi::Object::New(env);
  object.Set("decodeSteps", ToJs(env, stats.decode_steps));
  object.Set("mixedDecodeSteps", ToJs(env, stats.mixed_decode_steps));
  object.Set("decodeRows", ToJs(env, stats.decode_rows));
  object.Set("trainPasses", ToJs(env, stats.train_passes));
  object.Set("mixedTrainPasses", ToJs(env, stats.mixed_train_passes));
  object.Set("trainPassAdapters", ToJs(env, stats.train_pass_adapters));
  object.Set("tokensSampled", ToJs(env, stats.tokens_sampled));
  object.Set("tokensPrefilled", ToJs(env, stats.tokens_prefilled));
  object.Set("tokensTrained", ToJs(env, stats.tokens_trained));
  object.Set("adapters", ToJs(env, stats.adapters));
  object.Set("policies", ToJs(env, stats.policies));
  object.Set("activeSequences", ToJs(env, stats.active_sequences));
  object.Set("kvBytes", ToJs(env, stats.kv_bytes));
  object.Set("prefixHitTokens", ToJs(env, stats.prefix_hit_tokens));
  object.Set("prefixMissTokens", ToJs(env, stats.prefix_miss_tokens));
  object.Set("prefixPages", ToJs(env, stats.prefix_pages));
  object.Set("prefixEvictions", ToJs(env, stats.prefix_evictions));
  object.Set("preemptions", ToJs(env, stats.preemptions));
  object.Set("adapterBytes", ToJs(env, stats.adapter_bytes));
  object.Set("samplingFlops", stats.sampling_flops);
  object.Set("trainingFlops", stats.training_flops);
  object.Set("maxDecodeWaitFlops", stats.max_decode_wait_flops);
  object.Set("overdueServices", ToJs(env, stats.overdue_services));
  object.Set("busyRefusals", ToJs(env, stats.busy_refusals));
  object.Set("pendingSamplingCalls", ToJs(env, stats.pending_sampling_calls));
  object.Set("pendingSamplingTokens", ToJs(env, stats.pending_sampling_tokens));
  object.Set("pendingTrainingRows", ToJs(env, stats.pending_training_rows));
  object.Set("oldestSamplingMs", stats.oldest_sampling_ms);
  object.Set("oldestTrainingMs", stats.oldest_training_ms);
  object.Set("stateBytes", ToJs(env, stats.state_bytes));
  object.Set("inFlightBytes", ToJs(env, stats.in_flight_bytes));
  object.Set("policyBytes", ToJs(env, stats.policy_bytes));
  object.Set("packedBytes", ToJs(env, stats.packed_bytes));
  object.Set("kvAllocatedBytes", ToJs(env, stats.kv_allocated_bytes));
  object.Set("scratchBytes", ToJs(env, stats.scratch_bytes));
  object.Set("pendingDataBytes", ToJs(env, stats.pending_data_bytes));
  return object;
}

Napi::Value ToJs(Napi::Env env, const AdapterMemory& memory) {
  auto object = Napi::Object::New(env);
  object.Set("stateBytes", ToJs(env, memory.state_bytes));
  object.Set("inFlightBytes", ToJs(env, memory.in_flight_bytes));
  object.Set("policyBytes", ToJs(env, memory.policy_bytes));
  object.Set("packedBytes", ToJs(env, memory.packed_bytes));
  return object;
}

Napi::Value ToJs(Napi::Env env, const std::vector<TenantStats>& tenants) {
  return List(env, tenants, [env](const TenantStats& tenant) {
    auto object = Napi::Object::New(env);
    object.Set("tenant", tenant.tenant);
    object.Set("weight", tenant.weight);
    object.Set("adapters", ToJs(env, tenant.adapters));
    object.Set("samplingFlops", tenant.sampling_flops);
    object.Set("trainingFlops", tenant.training_flops);
    object.Set("samplingSteps", ToJs(env, tenant.sampling_steps));
    object.Set("trainingPasses", ToJs(env, tenant.training_passes));
    object.Set("samplingLag", tenant.sampling_lag);
    object.Set("trainingLag", tenant.training_lag);
    object.Set("overdueServices", ToJs(env, tenant.overdue_services));
    object.Set("busyRefusals", ToJs(env, tenant.busy_refusals));
    object.Set("pendingSamplingCalls", ToJs(env, tenant.pending.sampling_calls));
    object.Set("pendingSamplingTokens", ToJs(env, tenant.pending.sampling_tokens));
    object.Set("pendingTrainingRows", ToJs(env, tenant.pending.training_rows));
    object.Set("pendingDataBytes", ToJs(env, tenant.pending.training_bytes));
    return object;
  });
}

Napi::Value ToJs(Napi::Env env, const AdapterSpec& spec) {
  auto object = Napi::Object::New(env);
  object.Set("rank", spec.rank);
  object.Set("alpha", spec.alpha);
  object.Set("rslora", Napi::Boolean::New(env, spec.rslora));
  object.Set("targets", List(env, spec.targets, [env](Module module) {
               return Napi::String::New(env, ModuleName(module));
             }));
  object.Set("seed", std::to_string(spec.seed));
  return object;
}

Napi::Value ToJs(Napi::Env env, const std::vector<SampledToken>& tokens) {
  return List(env, tokens, [env](const SampledToken& token) {
    auto item = Napi::Object::New(env);
    item.Set("sequence", Number(env, static_cast<double>(token.sequence)));
    item.Set("index", Number(env, static_cast<double>(token.index)));
    item.Set("token", token.token);
    item.Set("policyLogprob", token.policy_logprob);
    item.Set("samplingLogprob", token.sampling_logprob);
    return item;
  });
}

Napi::Value ToJs(Napi::Env env, const SampleResult& result) {
  auto object = Napi::Object::New(env);
  object.Set("sequences", List(env, result.sequences, [env](const SampledSequence& sequence) {
               auto item = Napi::Object::New(env);
               item.Set("tokens", Int32Array(env, sequence.tokens));
               item.Set("policyLogprobs", ToJs(env, sequence.policy_logprobs));
               item.Set("samplingLogprobs", ToJs(env, sequence.sampling_logprobs));
               item.Set("stopReason",
                        sequence.stop_reason == StopReason::kStop ? "stop" : "length");
               item.Set("top", TopToJs(env, sequence.top));
               return item;
             }));
  object.Set("promptLogprobs",
             result.prompt_logprobs ? ToJs(env, *result.prompt_logprobs) : env.Null());
  object.Set("promptTop", TopToJs(env, result.prompt_top));
  return object;
}

Napi::Value ToJs(Napi::Env env, const ForwardBackwardResult& result) {
  auto object = Napi::Object::New(env);
  object.Set("lossSum", result.loss_sum);
  object.Set("logprobs", List(env, result.logprobs, [env](const auto& datum) {
               return List(env, datum, [env](const auto& branch) { return ToJs(env, branch); });
             }));
  object.Set("tokens", ToJs(env, result.tokens));
  return object;
}

Napi::Value ToJs(Napi::Env env, const OptimStepResult& result) {
  auto object = Napi::Object::New(env);
  object.Set("gradNorm", result.grad_norm);
  object.Set("step", ToJs(env, result.step));
  return object;
}

Napi::Value ToJs(Napi::Env env, const AdapterFile& file) {
  auto object = Napi::Object::New(env);
  object.Set("path", file.path);
  object.Set("digest", file.digest);
  object.Set("bytes", ToJs(env, file.bytes));
  return object;
}

Napi::Value ToJsError(Napi::Env env, const Fault& fault) {
  const Napi::Error error = Napi::Error::New(env, fault.message);
  error.Value().Set("code", FaultCodeName(fault.code));
  return error.Value();
}

}  // namespace hotbed
