// One frozen base in memory, many LoRA adapters on it: sampling with continuous batching, training
// with mixed passes.
//
// 1. Every value returned is a function of (base, numerics id, adapter state, the call's own
// arguments), never of what else is running, of arrival order, threads, chunk sizes or kernel path.
// 2. Calls on one adapter apply in the order in which they were made; calls on different adapters
// interleave freely.
// 3. A rejected call leaves the adapter exactly as it was before the call.
// 4. Submission never blocks and may come from any thread. A callback runs exactly once, on the
// engine thread (or, when the arguments are refused at the door or the engine is stopped, on the
// caller's), and must not block.
// 5. Structs and their order mirror the JS contract; absent = nullopt (there: null).
#ifndef HOTBED_ENGINE_ENGINE_H_
#define HOTBED_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/adapter_state.h"
#include "engine/admission.h"
#include "engine/model_config.h"
#include "engine/model_weights.h"
#include "engine/result.h"

namespace hotbed {

struct EngineOptions {
  // "f32-1" | "bf16-1"; what bf16-1 asks of the CPU and the base is said in numerics.h,
  // cpu_model.h.
  std::string numerics = "f32-1";
  // "scalar" | "avx2" | "avx512" | "avx512bf16"; absent = the best this CPU offers.
  std::optional<std::string> kernels;
  std::optional<int> threads;  // absent = physical cores that the process may use
  int kv_cache_mib = 256;      // room for key/value pages, those of the prefix cache included
  // Room for training activations: passes are cut to the rows that fit, unless those are too few to
  // keep the kernels busy; then, and for a larger datum, layers are computed twice (N14).
  int activation_budget_mib = 1024;
  int max_step_rows = 256;    // decode and prefill rows of one sampling step
  int max_train_rows = 2048;  // of one pass; a larger datum has a pass of its own
  // Training yields to sampling after about so much work, and at least a layer: tens of
  // milliseconds on two cores, which is how long a decode step may wait.
  double train_slice_flops = 4e9;
  // Parts of the FLOPs that sampling and training keep while both wait; together at most 1.
  double decode_floor = 0.25;
  double training_floor = 0.25;
  // Whoever has waited while so many FLOPs were done goes next, whatever the shares say: seconds on
  // two cores.
  double max_wait_flops = 2e12;
  // What may be pending; above it calls are refused with busy.
  AdmissionLimits limits;
  // Reorders one chain on purpose (the first layer's down projection, where several policies share
  // a plan). Only the isolation benchmark sets it, to prove that it would notice.
  bool mutation = false;
  // After every so many sampling steps the sequence that was admitted last gives up its pages; 0 =
  // only when they run out. Only the isolation benchmark sets it.
  int preempt_every = 0;
};

struct EngineInfo {
  std::string base_digest;
  std::string numerics_id;
  std::string kernels;
  int threads = 0;
  std::string architecture;
  int hidden_size = 0;
  int layers = 0;
  int vocabulary_size = 0;
  int tokenizer_size = 0;
  int context_length = 0;
  std::optional<int> bos_token_id;
  std::vector<int> eos_token_ids;
  uint64_t parameter_count = 0;
  uint64_t base_bytes = 0;
};

// Opaque, never 0, never reused within a process.
using AdapterHandle = uint64_t;
using PolicyHandle = uint64_t;
// Names one sampling call for Cancel.
using RequestId = uint64_t;

struct SamplingParams {
  double temperature = 1;
  int top_k = 0;
  double top_p = 1;
  int max_tokens = 1;
  std::vector<int32_t> stop_token_ids;
};

struct SampleRequest {
  std::optional<PolicyHandle> policy;  // absent = the plain base
  std::vector<int32_t> prompt;
  std::vector<uint64_t> seeds;
  SamplingParams params;
  bool prompt_logprobs = false;
  // 0 = off; else so many of the likeliest tokens at each prompt position after the first (at most
  // kMostTopTokens and the tokenizer's size).
  int prompt_top_k = 0;
  // The same at each drawn token.
  int top_logprobs = 0;
  std::string tenant;  // who pays; empty = the policy's, of the plain base nobody in particular
};

constexpr int kMostTopTokens = 20;

enum class StopReason { kStop, kLength };

// The likeliest tokens of several positions, k of each one after another: log-prob descending
// (temperature 1, unmasked, as policy log-probs), then id ascending.
struct TopTokens {
  std::vector<int32_t> tokens;  // [positions][k]
  std::vector<float> logprobs;  // [positions][k]
};

struct SampledSequence {
  std::vector<int32_t> tokens;
  std::vector<float> policy_logprobs;
  std::vector<float> sampling_logprobs;
  StopReason stop_reason = StopReason::kLength;
  std::optional<TopTokens> top;  // of each token, when asked for
};

struct SampleResult {
  std::vector<SampledSequence> sequences;
  std::optional<std::vector<float>> prompt_logprobs;
  std::optional<TopTokens> prompt_top;  // of prompt positions 1.., when asked for
};

// A token as soon as it is drawn.
struct SampledToken {
  size_t sequence = 0;  // index of its seed
  size_t index = 0;     // in the sequence
  int32_t token = 0;
  float policy_logprob = 0;
  float sampling_logprob = 0;
};
// Called on the engine thread with all that a step drew for one call; each sequence's tokens arrive
// in order, all of them before the call's result. It must neither block nor throw.
using TokensListener = std::function<void(const std::vector<SampledToken>&)>;

// n positions of K targets each; what the loss does not use is absent.
struct Branch {
  std::vector<int32_t> tokens;                   // [n], what is fed
  std::optional<std::vector<float>> weights;     // [n, K]
  std::optional<std::vector<float>> logprobs;    // [n, K]
  std::optional<std::vector<float>> advantages;  // [n, K]
  std::optional<std::vector<int32_t>> targets;   // [n, K]; absent = tokens, K = 1
  std::optional<std::vector<float>> gradients;   // [n, K] dL/dlogprob
  std::optional<std::vector<float>> mask;        // [n]
};

struct Datum {
  std::vector<int32_t> prompt;
  std::vector<Branch> branches;
};

enum class LossName {
  kCrossEntropy,
  kImportanceSampling,
  kPpo,
  kCispo,
  kDro,
  kGspo,
  kGivenGradient
};
constexpr int kLossCount = 7;

struct Loss {
  LossName name = LossName::kCrossEntropy;
  std::optional<double> clip_low;
  std::optional<double> clip_high;
  std::optional<double> beta;
};

struct ForwardBackwardResult {
  double loss_sum = 0;
  std::vector<std::vector<std::vector<float>>> logprobs;  // [datum][branch][position * K + k]
  uint64_t tokens = 0;
};

struct AdamParams {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double grad_clip_norm = 0;
};

struct OptimStepResult {
  double grad_norm = 0;
  uint64_t step = 0;
};

struct EngineStats {
  uint64_t decode_steps = 0;        // sampling steps, prefill included
  uint64_t mixed_decode_steps = 0;  // with rows of two policies or more
  uint64_t decode_rows = 0;         // of all steps
  uint64_t train_passes = 0;
  uint64_t mixed_train_passes = 0;   // with datums of two adapters or more
  uint64_t train_pass_adapters = 0;  // of all passes
  uint64_t tokens_sampled = 0;
  uint64_t tokens_prefilled = 0;  // rows of prompts, and of texts computed again
  uint64_t tokens_trained = 0;    // rows of passes with backward, shared ones included
  uint64_t adapters = 0;
  uint64_t policies = 0;
  uint64_t active_sequences = 0;
  uint64_t kv_bytes = 0;
  // Positions taken from the prefix cache, and those in whole blocks of texts that had to be
  // computed.
  uint64_t prefix_hit_tokens = 0;
  uint64_t prefix_miss_tokens = 0;
  // Pages that hold blocks of the cache, in use or idle; blocks given up for want of pages.
  uint64_t prefix_pages = 0;
  uint64_t prefix_evictions = 0;
  // Sequences that gave up their pages to older ones, to compute their text again later.
  uint64_t preemptions = 0;
  uint64_t adapter_bytes = 0;

  // Work and how it was shared.
  double sampling_flops = 0;
  double training_flops = 0;
  // Most training that one decode step has waited for while both had work.
  double max_decode_wait_flops = 0;
  uint64_t overdue_services = 0;  // that the age bound decided
  uint64_t busy_refusals = 0;
  uint64_t pending_sampling_calls = 0;
  uint64_t pending_sampling_tokens = 0;
  uint64_t pending_training_rows = 0;
  double oldest_sampling_ms = 0;  // age of the oldest pending call
  double oldest_training_ms = 0;

  // Memory by owner, bytes. adapter_bytes above is the sum of the first four.
  uint64_t state_bytes = 0;         // A, B, m, v, gradient of live adapters: 16 r S each
  uint64_t in_flight_bytes = 0;     // gradients that calls in flight started from: 4 r S each
  uint64_t policy_bytes = 0;        // pinned A and B that no live adapter has any more: 4 r S each
  uint64_t packed_bytes = 0;        // the executor's own forms of A and B, while in use
  uint64_t kv_allocated_bytes = 0;  // pages used at least once; kv_bytes are those in use now
  uint64_t scratch_bytes = 0;       // activations, scratch, and the process's kept blocks
  uint64_t pending_data_bytes = 0;  // datums of pending training calls
};

// One adapter's part of the memory, bytes; words as in EngineStats.
struct AdapterMemory {
  uint64_t state_bytes = 0;
  uint64_t in_flight_bytes = 0;
  uint64_t policy_bytes = 0;
  uint64_t packed_bytes = 0;
};

// What one tenant had and has. FLOPs by the formula of flops.h.
struct TenantStats {
  std::string tenant;  // empty: calls that named none
  double weight = 1;
  uint64_t adapters = 0;
  double sampling_flops = 0;
  double training_flops = 0;
  uint64_t sampling_steps = 0;   // in which it had rows
  uint64_t training_passes = 0;  // in which it had datums
  double sampling_lag = 0;       // behind the most served tenant of the last step, FLOPs / weight
  double training_lag = 0;
  uint64_t overdue_services = 0;
  uint64_t busy_refusals = 0;
  PendingWork pending;
};

template <typename T>
using Done = std::function<void(Result<T>)>;

class Engine {
 public:
  // Packs the weights (the caller's copy is consumed) and starts the engine thread.
  // Throws EngineFault: invalid_argument (an option, by name), unsupported_cpu, out_of_memory.
  Engine(const EngineOptions& options, ModelConfig config, ModelWeights weights,
         std::string base_digest);
  // Stop(), then waits for the engine thread. Never call it on the engine thread.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineInfo& info() const;
  EngineStats stats() const;
  const ModelConfig& config() const;

  // `tenant` pays for what is done with the adapter and its policies; empty = nobody in particular.
  void CreateAdapter(AdapterSpec spec, Done<AdapterHandle> done, const std::string& tenant = "");
  // A new adapter that owns `state` (restore, import). Refuses shapes that are not this base's.
  void AdoptState(std::unique_ptr<AdapterState> state, Done<AdapterHandle> done,
                  const std::string& tenant = "");
  // Throws EngineFault invalid_argument for an unknown handle.
  AdapterSpec SpecOf(AdapterHandle adapter) const;
  // Pending work of the adapter is rejected with cancelled; pinned policies stay valid.
  void DropAdapter(AdapterHandle adapter, Done<Unit> done);

  // Immutable A and B as of all calls made on the adapter before this one.
  void Pin(AdapterHandle adapter, Done<PolicyHandle> done);
  // Unknown handles are ignored. Running samples keep what they pinned.
  void Release(PolicyHandle policy);
  // The pinned tensors, for digests and export. Throws EngineFault invalid_argument for an unknown
  // handle.
  std::shared_ptr<const AdapterWeights> WeightsOf(PolicyHandle policy) const;
  // The whole training state as of all calls made on the adapter before this one: an own copy
  // (weights shared), for digests, snapshots and tests, so that files are written off the engine
  // thread.
  void CopyState(AdapterHandle adapter, Done<std::shared_ptr<const AdapterState>> done);

  // Refused with busy, like the training calls below, while more is pending than
  // EngineOptions::limits allow.
  RequestId Sample(SampleRequest request, Done<SampleResult> done,
                   TokensListener on_tokens = nullptr);
  // Ends one sequence of the call after `length` tokens (at least one), stop reason kStop; what it
  // has drawn beyond is dropped. Nothing happens where the call has ended already.
  void StopSequence(RequestId request, size_t sequence, size_t length);
  // The call is rejected with cancelled unless it has ended already.
  void Cancel(RequestId request);

  // `tenant` pays when there is no adapter.
  void Forward(std::optional<AdapterHandle> adapter, Loss loss, std::vector<Datum> datums,
               Done<ForwardBackwardResult> done, const std::string& tenant = "");
  void ForwardBackward(AdapterHandle adapter, Loss loss, std::vector<Datum> datums,
                       Done<ForwardBackwardResult> done);
  void OptimStep(AdapterHandle adapter, AdamParams params, Done<OptimStepResult> done);

  // Logits [vocabulary_size] after the last token.
  void Logits(std::optional<PolicyHandle> policy, std::vector<int32_t> tokens,
              Done<std::vector<float>> done);

  // A tenant's part of contested work, from the next plan on; 1 until it is set. Throws EngineFault
  // invalid_argument.
  void SetTenantWeight(const std::string& tenant, double weight);
  // Every tenant seen, as of the end of the running step.
  void Tenants(Done<std::vector<TenantStats>> done);
  void MemoryOf(AdapterHandle adapter, Done<AdapterMemory> done);
  // Bytes of the pinned tensors, whoever else holds them. Throws EngineFault invalid_argument for
  // an unknown handle.
  uint64_t PolicyBytes(PolicyHandle policy) const;

  // Refuses new calls, rejects pending ones with disposed. Returns at once; idempotent.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_ENGINE_H_
