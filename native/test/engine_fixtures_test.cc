// The engine against PyTorch, transformers and PEFT (native/test/fixtures/README.md): logits,
// log-probs, losses, LoRA gradients, parameters after AdamW.
#include "fixture.h"

namespace hotbed::test {
namespace {

class Fixture : public FixtureFiles {
 public:
  using FixtureFiles::FixtureFiles;

  std::vector<Datum> Datums(LossName loss) const {
    std::vector<Datum> datums;
    for (const Json& entry : At(expected(), "datums").items) {
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
    const Json& group = At(expected(), "group");
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
      loss.clip_low = *At(At(expected(), "ppo"), "clipLowThreshold").AsDouble();
      loss.clip_high = *At(At(expected(), "ppo"), "clipHighThreshold").AsDouble();
    }
    return loss;
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
};

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
