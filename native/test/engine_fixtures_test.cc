// The engine against PyTorch, transformers and PEFT (native/test/fixtures/README.md): logits,
// log-probs, losses, LoRA gradients, parameters after AdamW.
//
// Tolerance: two correct float32 programs differ by the order of their sums. The fixture records
// how far PyTorch's own float32 run is from the float64 truth, per kind of tensor; ours may be 8
// times as far (long ascending chains instead of blocked sums), never less than 1e-6 of the
// greatest magnitude. A wrong formula misses by orders of magnitude.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "engine/json.h"
#include "engine/model_weights.h"
#include "engine/peft.h"
#include "engine/safetensors.h"
#include "engine_support.h"

namespace hotbed::test {
namespace {

std::string FixtureFolder(const std::string& name) {
  const std::string file = __FILE__;
  return file.substr(0, file.find_last_of('/') + 1) + "fixtures/" + name;
}

const Json& At(const Json& object, const std::string& key) {
  const Json* found = object.Find(key);
  if (!found) fail(__FILE__, __LINE__, "expected.json lacks " + key);
  return *found;
}

std::vector<float> Floats(const Json& array) {
  std::vector<float> values;
  for (const Json& item : array.items) values.push_back(static_cast<float>(*item.AsDouble()));
  return values;
}

std::vector<int32_t> Ids(const Json& array) {
  std::vector<int32_t> ids;
  for (const Json& item : array.items) ids.push_back(static_cast<int32_t>(*item.AsUnsigned()));
  return ids;
}

class Fixture {
 public:
  explicit Fixture(const std::string& name)
      : folder_(FixtureFolder(name)),
        tensors_(folder_ + "/expected.safetensors"),
        engine_(SmallOptions(), LoadModel(folder_)) {
    std::ifstream file(folder_ + "/expected.json");
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    expected_ = ParseJson(text, folder_ + "/expected.json");
  }

  TestEngine& engine() { return engine_; }
  const Json& expected() const { return expected_; }
  AdapterHandle Adapter() {
    return engine_.Adopt(ImportPeft(folder_ + "/adapter", engine_.raw().config(), 0));
  }
  std::vector<float> Tensor(const std::string& name) const {
    const SafetensorsEntry* entry = tensors_.Find(name);
    if (!entry) fail(__FILE__, __LINE__, "expected.safetensors lacks " + name);
    std::vector<float> values(entry->elements());
    tensors_.ReadF32(*entry, values.data());
    return values;
  }
  double Scalar(const std::string& name) const {
    return *At(At(expected_, "scalars"), name).AsDouble();
  }

  // The allowed distance for a kind of tensor.
  double Tolerance(const std::string& kind) const {
    const Json& entry = At(At(At(expected_, "float32"), "tensors"), kind);
    return std::max(8 * *At(entry, "maxAbsError").AsDouble(),
                    1e-6 * *At(entry, "maxAbsValue").AsDouble());
  }
  void Near(const std::string& what, const std::string& kind, const float* actual,
            const std::vector<float>& expected) const {
    const double allowed = Tolerance(kind);
    size_t worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!(std::fabs(actual[i] - expected[i]) <= std::fabs(actual[worst] - expected[worst]))) {
        worst = i;
      }
    }
    const double distance = std::fabs(static_cast<double>(actual[worst]) - expected[worst]);
    CHECK_MESSAGE(distance <= allowed, what << "[" << worst << "]: expected " << expected[worst]
                                            << ", actual " << actual[worst] << ", distance "
                                            << distance << ", allowed " << allowed);
  }
  // Scalars are sums of values of one kind; allow the same relative slack as PyTorch's own float32
  // run, times 8.
  void NearScalar(const std::string& name, double actual) const {
    const double expected = Scalar(name);
    const double peer = *At(At(At(expected_, "float32"), "scalars"), name).AsDouble();
    const double allowed = std::max(8 * std::fabs(peer - expected), 2e-6 * std::fabs(expected));
    CHECK_MESSAGE(std::fabs(actual - expected) <= allowed,
                  name << ": expected " << expected << ", actual " << actual);
  }

  std::vector<Datum> Datums(LossName loss) const {
    std::vector<Datum> datums;
    for (const Json& entry : At(expected_, "datums").items) {
      Datum datum;
      datum.prompt = {Ids(At(entry, "tokens"))[0]};
      Branch branch;
      branch.tokens = Ids(At(entry, "targets"));
      Fill(entry, loss, &branch);
      datum.branches = {branch};
      datums.push_back(datum);
    }
    return datums;
  }
  std::vector<Datum> GroupOfBranches() const {
    const Json& group = At(expected_, "group");
    Datum datum;
    datum.prompt = Ids(At(group, "prompt"));
    for (const Json& entry : At(group, "branches").items) {
      Branch branch;
      branch.tokens = Ids(At(entry, "completion"));
      Fill(entry, LossName::kImportanceSampling, &branch);
      datum.branches.push_back(branch);
    }
    return {datum};
  }
  Loss LossOf(const std::string& name) const {
    Loss loss;
    if (name == "cross_entropy") loss.name = LossName::kCrossEntropy;
    if (name == "importance_sampling") loss.name = LossName::kImportanceSampling;
    if (name == "ppo") {
      loss.name = LossName::kPpo;
      loss.clip_low = *At(At(expected_, "ppo"), "clipLowThreshold").AsDouble();
      loss.clip_high = *At(At(expected_, "ppo"), "clipHighThreshold").AsDouble();
    }
    return loss;
  }
  void NearTensors(const std::string& prefix, const std::string& kind, const AdapterState& state,
                   const float* flat) const {
    for (const AdapterTensor& tensor : state.layout->tensors()) {
      const std::string name = prefix + "." + PeftTensorName(tensor);
      Near(name, kind, flat + tensor.offset, Tensor(name));
    }
  }

 private:
  static void Fill(const Json& entry, LossName loss, Branch* branch) {
    if (loss == LossName::kCrossEntropy) {
      branch->weights = Floats(At(entry, "weights"));
    } else {
      branch->logprobs = Floats(At(entry, "logprobs"));
      branch->advantages = Floats(At(entry, "advantages"));
    }
  }

  std::string folder_;
  SafetensorsFile tensors_;
  TestEngine engine_;
  Json expected_;
};

double GradientNorm(const AdapterState& state) {
  double sum = 0;
  for (size_t i = 0; i < state.gradient.size(); ++i) {
    sum += static_cast<double>(state.gradient[i]) * state.gradient[i];
  }
  return std::sqrt(sum);
}

void CheckLogits(const std::string& name) {
  Fixture fixture(name);
  const PolicyHandle policy = fixture.engine().Pin(fixture.Adapter());
  const size_t vocabulary = fixture.engine().raw().info().vocabulary_size;
  const auto& datums = At(fixture.expected(), "datums").items;
  for (size_t i = 0; i < datums.size(); ++i) {
    const std::vector<int32_t> tokens = Ids(At(datums[i], "tokens"));
    for (const bool adapted : {false, true}) {
      const std::string kind = adapted ? "adapter.logits" : "base.logits";
      const std::string key = (adapted ? "adapter." : "base.") + std::to_string(i) + ".logits";
      const std::vector<float> expected = fixture.Tensor(key);
      std::vector<float> actual;
      for (size_t n = 1; n <= tokens.size(); ++n) {
        const std::vector<float> row =
            fixture.engine()
                .Logits(adapted ? std::optional<PolicyHandle>(policy) : std::nullopt,
                        std::vector<int32_t>(tokens.begin(), tokens.begin() + n))
                .Get();
        actual.insert(actual.end(), row.begin(), row.end());
      }
      CHECK_EQ(expected.size(), tokens.size() * vocabulary);
      fixture.Near(key, kind, actual.data(), expected);
    }
  }
}

void CheckLosses(const std::string& name) {
  Fixture fixture(name);
  for (const char* const word : {"cross_entropy", "importance_sampling", "ppo"}) {
    const std::string loss_name = word;
    const Loss loss = fixture.LossOf(loss_name);
    const std::vector<Datum> datums = fixture.Datums(loss.name);
    const AdapterHandle adapter = fixture.Adapter();
    const ForwardBackwardResult result = fixture.engine().Train(adapter, loss, datums).Get();
    fixture.NearScalar(loss_name + ".loss", result.loss_sum);
    const auto state = fixture.engine().State(adapter);
    fixture.NearTensors(loss_name + ".grad", loss_name + ".grad", *state, state->gradient.data());
    fixture.NearScalar(loss_name + ".gradNorm", GradientNorm(*state));
    const ForwardBackwardResult base = fixture.engine().Forward(std::nullopt, loss, datums).Get();
    for (size_t i = 0; i < datums.size(); ++i) {
      const std::string at = std::to_string(i);
      fixture.Near("adapter." + at, "adapter.logprobs", result.logprobs[i][0].data(),
                   fixture.Tensor("adapter." + at + ".logprobs"));
      fixture.Near("base." + at, "base.logprobs", base.logprobs[i][0].data(),
                   fixture.Tensor("base." + at + ".logprobs"));
    }
  }
}

// Gradients of a group equal those of its separate sequences.
void CheckGroup(const std::string& name) {
  Fixture fixture(name);
  const Loss loss = fixture.LossOf("importance_sampling");
  const std::vector<Datum> datums = fixture.GroupOfBranches();
  const AdapterHandle adapter = fixture.Adapter();
  const ForwardBackwardResult result = fixture.engine().Train(adapter, loss, datums).Get();
  for (size_t b = 0; b < datums[0].branches.size(); ++b) {
    const std::string key = "group." + std::to_string(b) + ".logprobs";
    fixture.Near(key, "group.logprobs", result.logprobs[0][b].data(), fixture.Tensor(key));
  }
  fixture.NearScalar("group.loss", result.loss_sum);
  const auto state = fixture.engine().State(adapter);
  fixture.NearTensors("group.grad", "group.grad", *state, state->gradient.data());
  fixture.NearScalar("group.gradNorm", GradientNorm(*state));
}

void CheckOptimizer(const std::string& name) {
  Fixture fixture(name);
  const Json& adamw = At(fixture.expected(), "adamw");
  AdamParams params;
  params.learning_rate = *At(adamw, "learningRate").AsDouble();
  params.beta1 = *At(adamw, "beta1").AsDouble();
  params.beta2 = *At(adamw, "beta2").AsDouble();
  params.eps = *At(adamw, "epsilon").AsDouble();
  params.weight_decay = *At(adamw, "weightDecay").AsDouble();
  params.grad_clip_norm = *At(adamw, "gradClipNorm").AsDouble();
  const AdapterHandle adapter = fixture.Adapter();
  int step = 0;
  for (const Json& word : At(adamw, "losses").items) {
    const Loss loss = fixture.LossOf(word.text);
    fixture.engine().Train(adapter, loss, fixture.Datums(loss.name)).Get();
    const OptimStepResult result = fixture.engine().Step(adapter, params).Get();
    fixture.NearScalar("adamw." + std::to_string(++step) + ".gradNorm", result.grad_norm);
  }
  const auto state = fixture.engine().State(adapter);
  fixture.NearTensors("adamw.2.param", "adamw.param", *state, state->weights->values.data());
}

TEST(fixtures_logits_llama_gqa_f32) { CheckLogits("llama-gqa-f32"); }
TEST(fixtures_logits_llama_tied_bf16) { CheckLogits("llama-tied-bf16"); }
TEST(fixtures_logits_qwen3_tied_f16) { CheckLogits("qwen3-tied-f16"); }
TEST(fixtures_losses_llama_gqa_f32) { CheckLosses("llama-gqa-f32"); }
TEST(fixtures_losses_llama_tied_bf16) { CheckLosses("llama-tied-bf16"); }
TEST(fixtures_losses_qwen3_tied_f16) { CheckLosses("qwen3-tied-f16"); }
TEST(fixtures_group_llama_gqa_f32) { CheckGroup("llama-gqa-f32"); }
TEST(fixtures_group_llama_tied_bf16) { CheckGroup("llama-tied-bf16"); }
TEST(fixtures_group_qwen3_tied_f16) { CheckGroup("qwen3-tied-f16"); }
TEST(fixtures_adamw_llama_gqa_f32) { CheckOptimizer("llama-gqa-f32"); }
TEST(fixtures_adamw_llama_tied_bf16) { CheckOptimizer("llama-tied-bf16"); }
TEST(fixtures_adamw_qwen3_tied_f16) { CheckOptimizer("qwen3-tied-f16"); }

}  // namespace
}  // namespace hotbed::test
