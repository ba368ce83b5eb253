// Losses, several targets per token and adapters on the head (tied and separate, plain and rsLoRA)
// against PyTorch and PEFT: fixtures/losses.
#include "fixture.h"

namespace hotbed::test {
namespace {

Loss LossOf(const FixtureFiles& fixture, const std::string& word) {
  const Json& numbers = At(fixture.expected(), "losses");
  for (int i = 0; i < kLossCount; ++i) {
    const LossFields& fields = FieldsOf(static_cast<LossName>(i));
    if (word != fields.word) continue;
    Loss loss;
    loss.name = static_cast<LossName>(i);
    if (fields.clip) loss.clip_low = *At(numbers, "clipLow").AsDouble();
    if (fields.clip) loss.clip_high = *At(numbers, "clipHigh").AsDouble();
    if (fields.beta) loss.beta = *At(numbers, "beta").AsDouble();
    return loss;
  }
  fail(__FILE__, __LINE__, "no loss " + word);
}

std::vector<Datum> DatumsOf(const Json& entries, LossName loss) {
  const LossFields& fields = FieldsOf(loss);
  std::vector<Datum> datums;
  for (const Json& entry : entries.items) {
    Branch branch;
    branch.tokens = Ids(At(entry, "completion"));
    branch.targets = Ids(At(entry, "targets"));
    if (fields.weights) branch.weights = Floats(At(entry, "weights"));
    if (fields.gradients) branch.gradients = Floats(At(entry, "gradients"));
    if (fields.advantages) branch.advantages = Floats(At(entry, "advantages"));
    if (fields.advantages) branch.logprobs = Floats(At(entry, "logprobs"));
    if (fields.mask) branch.mask = Floats(At(entry, "mask"));
    datums.push_back({{Ids(At(entry, "tokens"))[0]}, {branch}});
  }
  return datums;
}

// A sum is as exact as its terms, which may be far greater than it.
void NearSum(const FixtureFiles& fixture, const std::string& word, double actual) {
  const double expected = fixture.Scalar(word + ".loss");
  const double peer =
      *At(At(At(fixture.expected(), "float32"), "scalars"), word + ".loss").AsDouble();
  const double allowed =
      std::max(8 * std::fabs(peer - expected), 2e-6 * fixture.Scalar(word + ".lossMagnitude"));
  CHECK_MESSAGE(std::fabs(actual - expected) <= allowed, word << ".loss: expected " << expected
                                                              << ", distance " << actual - expected
                                                              << ", allowed " << allowed);
}

void CheckFixture(const std::string& name) {
  FixtureFiles fixture("losses/" + name);
  for (const auto& [word, entry] : At(fixture.expected(), "cases").members) {
    const Loss loss = LossOf(fixture, At(entry, "loss").text);
    const std::vector<Datum> datums =
        DatumsOf(At(fixture.expected(), At(entry, "datums").text), loss.name);
    const AdapterHandle adapter = fixture.Adapter();
    const ForwardBackwardResult result = fixture.engine().Train(adapter, loss, datums).Get();
    NearSum(fixture, word, result.loss_sum);
    const auto state = fixture.engine().State(adapter);
    fixture.NearTensors(word + ".grad", word + ".grad", *state, state->gradient.data());
    fixture.NearScalar(word + ".gradNorm", GradientNorm(*state));
    for (size_t i = 0; i < datums.size() && loss.name == LossName::kCrossEntropy; ++i) {
      const std::string key = word + "." + std::to_string(i) + ".logprobs";
      fixture.Near(key, word + ".logprobs", result.logprobs[i][0].data(), fixture.Tensor(key));
    }
  }

  const Json& adamw = At(fixture.expected(), "adamw");
  AdamParams params;
  params.learning_rate = *At(adamw, "learningRate").AsDouble();
  params.beta1 = *At(adamw, "beta1").AsDouble();
  params.beta2 = *At(adamw, "beta2").AsDouble();
  params.eps = *At(adamw, "epsilon").AsDouble();
  params.weight_decay = *At(adamw, "weightDecay").AsDouble();
  params.grad_clip_norm = *At(adamw, "gradClipNorm").AsDouble();
  const Loss loss = LossOf(fixture, At(adamw, "loss").text);
  const AdapterHandle adapter = fixture.Adapter();
  fixture.engine().Train(adapter, loss, DatumsOf(At(fixture.expected(), "datums1"), loss.name));
  const OptimStepResult step = fixture.engine().Step(adapter, params).Get();
  fixture.NearScalar("adamw.1.gradNorm", step.grad_norm);
  const auto state = fixture.engine().State(adapter);
  fixture.NearTensors("adamw.1.param", "adamw.param", *state, state->weights->values.data());
}

TEST(fixtures_losses_head_separate_rslora) { CheckFixture("head-separate-rslora"); }
TEST(fixtures_losses_head_tied) { CheckFixture("head-tied"); }

}  // namespace
}  // namespace hotbed::test
