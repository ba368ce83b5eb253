// Damaged files (mlx#3363, #3409, fastllm#712, imp#1603): whatever the bytes are, reading ends with
// a model, an adapter or a fault that names the file and says why; never with a crash, another
// exception, a hang or memory that the file's size does not explain.
//
// FUZZ=100000 sets how many files are damaged (`make fuzz` does so under sanitizers); FUZZ_SEED
// gives other damages.
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>

#include "engine/adapter_files.h"
#include "engine/model_weights.h"
#include "engine/peft.h"
#include "engine/state_digest.h"
#include "engine_support.h"
#include "model_folder.h"
#include "mutate.h"

namespace hotbed::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // it needs address space of its own; it caps allocations itself
#else
constexpr bool kSanitized = false;
#endif

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// While it lives, the process cannot take more than `bytes` of address space beyond what it has:
// code that asks for more gets bad_alloc, which the engine reports as out_of_memory.
class MemoryCap {
 public:
  explicit MemoryCap(uint64_t bytes) {
    if (kSanitized) return;
    getrlimit(RLIMIT_AS, &before_);
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit capped = before_;
    capped.rlim_cur = static_cast<uint64_t>(pages) * sysconf(_SC_PAGESIZE) + bytes;
    setrlimit(RLIMIT_AS, &capped);
  }
  ~MemoryCap() {
    if (!kSanitized) setrlimit(RLIMIT_AS, &before_);
  }

 private:
  rlimit before_{};
};

// Ends the process, naming the round, when a round has used 60 s of CPU: a hang would otherwise
// show only as a test that never ends.
class HangGuard {
 public:
  HangGuard() { signal(SIGPROF, &HangGuard::End); }
  ~HangGuard() {
    Arm(0);
    signal(SIGPROF, SIG_DFL);
  }
  void Begin(uint64_t round) {
    round_ = round;
    Arm(60);
  }

 private:
  static void Arm(long seconds) {
    const itimerval timer{{0, 0}, {seconds, 0}};
    setitimer(ITIMER_PROF, &timer, nullptr);
  }
  static void End(int) {
    char text[] = "fuzz: round 00000000 does not end\n";
    uint64_t round = round_;
    for (int i = 19; i >= 12; --i, round /= 10) text[i] = static_cast<char>('0' + round % 10);
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(3);
  }
  static volatile uint64_t round_;
};
volatile uint64_t HangGuard::round_ = 0;

// One file that gets damaged, and what reads it.
struct Target {
  std::string name;
  std::string path;
  std::string bytes;
  std::function<std::string(Mutator&, const std::string&)> damage;
  std::function<void()> read;
};

EngineOptions TinyEngine() {
  EngineOptions options = SmallOptions();
  options.kv_cache_mib = 1;
  options.activation_budget_mib = 1;
  options.max_step_rows = 8;
  options.max_train_rows = 8;
  return options;
}

// What loads must also run: a few tokens, an adapter's training step. A file of huge finite values
// may overflow there; that is a fault of its own.
void Run(LoadedModel model) {
  const int vocabulary = model.config.tokenizer_size;
  const int context = model.config.max_position;
  TestEngine engine(TinyEngine(), std::move(model));
  SampleRequest request;
  request.prompt = {0};
  request.seeds = {1};
  request.params.max_tokens = 2;
  AdapterSpec spec;
  spec.rank = 1;
  spec.alpha = 1;
  spec.targets = {Module::kQ, Module::kDown};
  Datum datum;
  datum.prompt = {0};
  datum.branches.resize(1);
  datum.branches[0].tokens = {vocabulary - 1};
  datum.branches[0].weights = std::vector<float>{1};
  try {
    if (context > 1) engine.Sample(request).Get();
    const AdapterHandle adapter = engine.Create(spec);
    engine.Train(adapter, Loss(), {datum}).Get();
    engine.Step(adapter, Adam()).Get();
  } catch (const EngineFault& fault) {
    CHECK_MESSAGE(fault.code() == FaultCode::kNotFinite, fault.what());
  }
}

class Fuzz {
 public:
  Fuzz() {
    AddModel();
    AddShards();
    AddPeft();
    AddSnapshot();
  }

  void Round(uint64_t round, Mutator& mutator) {
    const Target& target = targets_[round % targets_.size()];
    const std::string damaged = target.damage(mutator, target.bytes);
    const std::string where = "round " + std::to_string(round) + ", " + target.name;
    WriteFile(target.path, damaged);
    try {
      target.read();
      ++outcomes_["read"];
    } catch (const EngineFault& fault) {
      const std::string text = fault.what();
      const bool expected = fault.code() == FaultCode::kInvalidFile ||
                            fault.code() == FaultCode::kUnsupportedModel ||
                            fault.code() == FaultCode::kBaseMismatch;
      CHECK_MESSAGE(expected, where << ": " << FaultCodeName(fault.code()) << ": " << text);
      CHECK_MESSAGE(text.find(folder_.path()) != std::string::npos && text.find(": ") < text.size(),
                    where << " does not name the file: " << text);
      ++outcomes_[FaultCodeName(fault.code())];
    } catch (const Failure& failure) {
      fail(__FILE__, __LINE__, where + ": " + failure.message);
    } catch (const std::exception& other) {
      fail(__FILE__, __LINE__, where + ": another exception: " + other.what());
    }
    WriteFile(target.path, target.bytes);
  }

  uint64_t count(const std::string& outcome) { return outcomes_[outcome]; }
  const std::map<std::string, uint64_t>& outcomes() const { return outcomes_; }
  // Undamaged files read; the targets are what they should be.
  void ReadAll() const {
    for (const Target& target : targets_) target.read();
  }

 private:
  static std::string AsJson(Mutator& mutator, const std::string& text) {
    return mutator.Json(text);
  }
  static std::string AsTensors(Mutator& mutator, const std::string& file) {
    return mutator.Safetensors(file);
  }

  void Add(const std::string& folder, const std::string& file, const std::string& bytes,
           std::string (*damage)(Mutator&, const std::string&), std::function<void()> read) {
    const std::string path = folder + "/" + file;
    WriteFile(path, bytes);
    targets_.push_back({file, path, bytes, damage, std::move(read)});
  }
  std::string Folder(const std::string& name) {
    const std::string path = folder_.path() + "/" + name;
    std::filesystem::create_directory(path);
    return path;
  }

  void AddModel() {
    const std::string folder = Folder("model");
    const auto read = [folder] { Run(LoadModel(folder)); };
    std::string rope = kTinyConfig;
    const std::string theta = "\"rope_theta\":10000.0";
    rope.replace(rope.find(theta), theta.size(),
                 "\"rope_parameters\":{\"rope_theta\":500000.0,\"rope_type\":\"llama3\",\"factor\":"
                 "8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                 "\"original_max_position_embeddings\":16},\"attention_bias\":false,"
                 "\"hidden_act\":\"silu\",\"mlp_bias\":false,\"quantization_config\":null");
    Add(folder, "config.json", rope, AsJson, read);
    Add(folder, "generation_config.json", "{\"bos_token_id\":1,\"eos_token_id\":[2,5,7]}", AsJson,
        read);
    Add(folder, "tokenizer.json",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3},\"merges\":[["
        "\"a\","
        "\"b\"]]},\"added_tokens\":[{\"id\":30,\"content\":\"<x>\"}]}",
        AsJson, read);
    Add(folder, "model.safetensors", SafetensorsBytes(TinyTensors(1)), AsTensors, read);
  }

  void AddShards() {
    const std::string folder = Folder("shards");
    const auto read = [folder] { LoadModel(folder); };
    WriteFile(folder + "/config.json", kTinyConfig);
    const auto tensors = TinyTensors(2, "F32");
    const std::vector<TestTensor> first(tensors.begin(), tensors.begin() + 5);
    const std::vector<TestTensor> second(tensors.begin() + 5, tensors.end());
    std::string map;
    for (const auto& [list, name] : {std::pair(first, "a"), std::pair(second, "b")}) {
      for (const TestTensor& tensor : list) {
        map += (map.empty() ? "\"" : ",\"") + tensor.name + "\":\"" + name + ".safetensors\"";
      }
    }
    WriteFile(folder + "/a.safetensors", SafetensorsBytes(first));
    Add(folder, "b.safetensors", SafetensorsBytes(second), AsTensors, read);
    Add(folder, "model.safetensors.index.json",
        "{\"metadata\":{\"total_size\":1},\"weight_map\":{" + map + "}}", AsJson, read);
  }

  void AddPeft() {
    const std::string folder = Folder("adapter");
    const ModelConfig config = ConfigOf(LlamaBase());
    const auto read = [folder, config] { ImportPeft(folder, config, 1); };
    std::mt19937_64 random(3);
    std::vector<TestTensor> tensors;
    for (const std::string layer : {"0", "1"}) {
      const std::string module = "base_model.model.model.layers." + layer + ".self_attn.q_proj.";
      tensors.push_back({module + "lora_A.weight", "F32", {2, 32}, RandomBytes(random, "F32", 64)});
      tensors.push_back(
          {module + "lora_B.weight", "BF16", {32, 2}, RandomBytes(random, "BF16", 64)});
    }
    Add(folder, "adapter_model.safetensors", SafetensorsBytes(tensors), AsTensors, read);
    Add(folder, "adapter_config.json",
        "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":8,\"target_modules\":[\"q_proj\"],\"bias\":"
        "\"none\",\"lora_dropout\":0.0,\"modules_to_save\":null,\"init_lora_weights\":true,"
        "\"use_rslora\":false,\"task_type\":\"CAUSAL_LM\",\"rank_pattern\":{}}",
        AsJson, read);
  }

  void AddSnapshot() {
    const std::string folder = Folder("snapshot");
    const ModelConfig config = ConfigOf(LlamaBase());
    AdapterSpec spec;
    spec.rank = 2;
    spec.alpha = 4;
    spec.targets = {Module::kQ, Module::kV};
    const auto state = ZeroAdapterState(config, spec);
    const StateIdentity identity{std::string(64, 'a'), "f32-1", 3};
    TensorDigests digests;
    const std::string path = folder + "/state.safetensors";
    WriteSnapshot(path, *state, identity, digests);
    Add(folder, "state.safetensors", ReadFile(path), AsTensors, [path, config, identity] {
      ReadSnapshot(path, config, identity.base_digest, identity.numerics_id);
    });
  }

  TemporaryFolder folder_;
  std::vector<Target> targets_;
  std::map<std::string, uint64_t> outcomes_;
};

}  // namespace

TEST(fuzz_damaged_files_mlx_3363_3409_fastllm_712_imp_1603) {
  const uint64_t rounds = FromEnvironment("FUZZ", 3000);
  Mutator mutator(FromEnvironment("FUZZ_SEED", 20261130));
  Fuzz fuzz;
  fuzz.ReadAll();
  HangGuard guard;
  {
    const MemoryCap cap(uint64_t{512} << 20);
    for (uint64_t round = 0; round < rounds; ++round) {
      guard.Begin(round);
      fuzz.Round(round, mutator);
    }
  }
  // Both ends are met: damage that is noticed, and damage that changes nothing that matters.
  CHECK(fuzz.count("invalid_file") > rounds / 2);
  CHECK(fuzz.count("unsupported_model") > rounds / 500);
  CHECK(fuzz.count("read") > rounds / 50);
  if (std::getenv("FUZZ") == nullptr) return;
  for (const auto& [outcome, count] : fuzz.outcomes()) {
    std::cout << "fuzz: " << count << " " << outcome << '\n';
  }
}

}  // namespace hotbed::test
