// Every loss, several targets per token and adapters on the head, through the engine.
#include <cmath>

#include "engine_support.h"

namespace hotbed::test {
namespace {

AdapterSpec HeadSpec(std::vector<Module> targets, uint64_t seed = 3, bool rslora = false) {
  AdapterSpec spec;
  spec.rank = 5;
  spec.alpha = 9;
  spec.rslora = rslora;
  spec.targets = std::move(targets);
  spec.seed = seed;
  return spec;
}

// Weights that are not at their start: B of the head would be zero.
AdapterHandle Moved(TestEngine& engine, const AdapterSpec& spec, unsigned seed = 61) {
  auto state = ZeroAdapterState(engine.raw().config(), spec);
  Inputs inputs(seed);
  for (const AdapterTensor& tensor : state->layout->tensors()) {
    for (size_t i = 0; i < tensor.size(); ++i) {
      state->weights->at(tensor)[i] = inputs.Float(-0.2f, 0.2f);
    }
  }
  return engine.Adopt(std::move(state));
}

const std::vector<Module> kSome = {Module::kQ, Module::kDown, Module::kLmHead};

TEST(losses_of_the_engine_may_be_cut_at_any_datum) {
  Inputs inputs(62);
  for (int name = 0; name < kLossCount; ++name) {
    const Loss loss = Inputs::LossNamed(static_cast<LossName>(name));
    const std::vector<Datum> datums = inputs.Datums(loss, 5);
    TestEngine engine;
    const AdapterHandle whole = Moved(engine, HeadSpec(kSome));
    const ForwardBackwardResult all = engine.Train(whole, loss, datums).Get();
    const auto expected = engine.State(whole);
    for (size_t cut = 1; cut < datums.size(); ++cut) {
      const AdapterHandle parts = Moved(engine, HeadSpec(kSome));
      auto head = engine.Train(parts, loss, {datums.begin(), datums.begin() + cut});
      auto tail = engine.Train(parts, loss, {datums.begin() + cut, datums.end()});
      const double sum = head.Get().loss_sum + tail.Get().loss_sum;
      // Two fp64 sums instead of one.
      CHECK(std::fabs(sum - all.loss_sum) <= 1e-12 * (1 + std::fabs(all.loss_sum)));
      SAME_STATE(engine.State(parts), expected);
      engine.Drop(parts);
    }
  }
}

TEST(given_gradient_is_cross_entropy_of_the_negated_weight) {
  Inputs inputs(63);
  const Loss plain = Inputs::LossNamed(LossName::kCrossEntropy);
  const Loss given = Inputs::LossNamed(LossName::kGivenGradient);
  std::vector<Datum> datums = inputs.Datums(plain, 4);
  std::vector<Datum> other = datums;
  for (Datum& datum : other) {
    for (Branch& branch : datum.branches) {
      for (float& w : *branch.weights) w = -w;
      std::swap(branch.gradients, branch.weights);
    }
  }
  TestEngine engine;
  const AdapterHandle a = Moved(engine, HeadSpec(kSome)), b = Moved(engine, HeadSpec(kSome));
  const ForwardBackwardResult one = engine.Train(a, plain, datums).Get();
  const ForwardBackwardResult two = engine.Train(b, given, other).Get();
  SAME_RESULT(two, one);
  SAME_STATE(engine.State(b), engine.State(a));
}

// One softmax per position, read at K ids.
TEST(several_targets_have_the_logprobs_of_one_each) {
  Inputs inputs(64);
  for (const TinyBase& base : AllBases()) {
    TestEngine engine(base);
    const AdapterHandle adapter = Moved(engine, HeadSpec(kSome));
    for (const LossName name : {LossName::kCrossEntropy, LossName::kImportanceSampling}) {
      const Loss loss = Inputs::LossNamed(name);
      const int k = 3;
      const Datum datum = inputs.OneDatum(loss, 7, {6, 1, 20}, k);
      const ForwardBackwardResult all = engine.Forward(adapter, loss, {datum}).Get();
      double sum = 0;
      for (int j = 0; j < k; ++j) {
        Datum single = datum;
        for (Branch& branch : single.branches) {
          const auto column = [&](auto& values) {
            if (!values) return;
            for (size_t i = 0; i * k < values->size(); ++i) (*values)[i] = (*values)[i * k + j];
            values->resize(values->size() / k);
          };
          column(branch.targets);
          column(branch.weights);
          column(branch.logprobs);
          column(branch.advantages);
        }
        const ForwardBackwardResult one = engine.Forward(adapter, loss, {single}).Get();
        CHECK_EQ(one.tokens, all.tokens);
        sum += one.loss_sum;
        for (size_t b = 0; b < datum.branches.size(); ++b) {
          for (size_t i = 0; i < datum.branches[b].tokens.size(); ++i) {
            SAME_BITS(std::vector<float>{all.logprobs[0][b][i * k + j]},
                      std::vector<float>{one.logprobs[0][b][i]});
          }
        }
      }
      CHECK(std::fabs(sum - all.loss_sum) <= 1e-12 * (1 + std::fabs(sum)));
    }
  }
}

TEST(one_target_given_is_the_token_itself) {
  Inputs inputs(65);
  const Loss loss = Inputs::LossNamed(LossName::kGspo);
  std::vector<Datum> datums = inputs.Datums(loss, 3);
  TestEngine engine;
  const AdapterHandle a = Moved(engine, HeadSpec(kSome)), b = Moved(engine, HeadSpec(kSome));
  const ForwardBackwardResult one = engine.Train(a, loss, datums).Get();
  for (Datum& datum : datums) {
    for (Branch& branch : datum.branches) branch.targets = branch.tokens;
  }
  SAME_RESULT(engine.Train(b, loss, datums).Get(), one);
  SAME_STATE(engine.State(b), engine.State(a));
}

TEST(head_adapters_and_others_share_steps_and_passes) {
  Inputs inputs(66);
  const Loss loss = Inputs::LossNamed(LossName::kCispo);
  const std::vector<std::vector<Module>> targets = {
      {Module::kLmHead}, {Module::kQ, Module::kDown}, kSome, {Module::kV}};
  for (TinyBase base : AllBases()) {
    base.vocab = 1100;  // several tiles, the last not full
    base.tokenizer = 1100;
    std::vector<std::vector<Datum>> datums;
    std::vector<SampleRequest> requests;
    for (size_t i = 0; i <= targets.size(); ++i) {
      datums.push_back(inputs.Datums(loss, 2));
      requests.push_back(inputs.Request(std::nullopt));
      requests.back().prompt_logprobs = true;
    }
    struct Seen {
      std::vector<ForwardBackwardResult> results;
      std::vector<std::shared_ptr<const AdapterState>> states;
      std::vector<SampleResult> samples;
    };
    const auto live = [&](bool together) {
      EngineOptions options = SmallOptions();
      options.threads = 2;
      options.max_train_rows = 1000;
      options.max_step_rows = 200;
      TestEngine engine(base, options);
      std::vector<AdapterHandle> adapters;
      for (const auto& its : targets) {
        const bool rslora = adapters.size() == 2;
        adapters.push_back(Moved(engine, HeadSpec(its, 5, rslora), 70));
      }
      std::vector<Pending<ForwardBackwardResult>> training;
      std::vector<Pending<SampleResult>> sampling;
      Seen seen;
      for (size_t i = 0; i <= targets.size(); ++i) {
        SampleRequest request = requests[i];
        if (i < targets.size()) request.policy = engine.Pin(adapters[i]);
        sampling.push_back(engine.Sample(request));
        if (!together) sampling.back().Get();
        if (!together) sampling.back() = engine.Sample(request);
        training.push_back(i < targets.size() ? engine.Train(adapters[i], loss, datums[i])
                                              : engine.Forward(std::nullopt, loss, datums[i]));
        if (!together) seen.results.push_back(training.back().Get());
      }
      for (auto& one : training) {
        if (together) seen.results.push_back(one.Get());
      }
      for (auto& one : sampling) seen.samples.push_back(one.Get());
      for (AdapterHandle adapter : adapters) {
        engine.Step(adapter, Adam()).Get();
        seen.states.push_back(engine.State(adapter));
      }
      return seen;
    };
    const Seen alone = live(false), together = live(true);
    for (size_t i = 0; i <= targets.size(); ++i) {
      SAME_RESULT(together.results[i], alone.results[i]);
      SAME_SAMPLES(together.samples[i], alone.samples[i]);
      if (i < targets.size()) SAME_STATE(together.states[i], alone.states[i]);
    }
  }
}

TEST(head_adapter_changes_the_head_alone) {
  TestEngine engine;
  const AdapterHandle adapter = engine.Create(HeadSpec({Module::kLmHead}));
  const auto state = engine.State(adapter);
  const ModelConfig& config = engine.raw().config();
  CHECK_EQ(state->layout->tensors().size(), size_t{2});
  const AdapterTensor& a = state->layout->tensors()[0];
  const AdapterTensor& b = state->layout->tensors()[1];
  CHECK_EQ(a.layer, config.num_layers);
  CHECK_EQ(a.cols, config.hidden_size);
  CHECK_EQ(b.rows, config.vocab_size);
  // B = 0: the base's own logits, to the bit.
  const std::vector<int32_t> text = {5, 9, 2};
  SAME_BITS(engine.Logits(engine.Pin(adapter), text).Get(),
            engine.Logits(std::nullopt, text).Get());
}

TEST(losses_refuse_what_they_do_not_take) {
  TestEngine engine;
  const AdapterHandle adapter = engine.Create(HeadSpec(kSome));
  const auto before = engine.State(adapter);
  Inputs inputs(67);
  const auto refused = [&](LossName name, const char* words,
                           const std::function<void(Loss&, Branch&)>& spoil, int k = 1) {
    Loss loss = Inputs::LossNamed(name);
    Datum datum = inputs.OneDatum(loss, 3, {4}, k);
    spoil(loss, datum.branches[0]);
    CHECK_FAULT(engine.Train(adapter, loss, {datum}).Get(), FaultCode::kInvalidArgument, words);
  };
  const std::vector<float> four(4, 0.5f);
  for (const LossName name : {LossName::kPpo, LossName::kCispo, LossName::kGspo}) {
    refused(name, "loss.clipLow", [](Loss& l, Branch&) { l.clip_low.reset(); });
    refused(name, "loss.clipHigh", [](Loss& l, Branch&) { l.clip_high.reset(); });
    refused(name, "loss.clipHigh", [](Loss& l, Branch&) { l.clip_high = 0.5; });
    refused(name, "loss.clipLow", [](Loss& l, Branch&) { l.clip_low = -0.5; });
    refused(name, "loss.clipHigh", [](Loss& l, Branch&) { l.clip_high = INFINITY; });
    refused(name, "loss.beta", [](Loss& l, Branch&) { l.beta = 0.1; });
  }
  refused(LossName::kDro, "loss.beta", [](Loss& l, Branch&) { l.beta.reset(); });
  refused(LossName::kDro, "loss.beta", [](Loss& l, Branch&) { l.beta = -1; });
  refused(LossName::kDro, "loss.beta", [](Loss& l, Branch&) { l.beta = std::nan(""); });
  refused(LossName::kDro, "loss.beta", [](Loss& l, Branch&) { l.beta = 1e300; });
  refused(LossName::kDro, "loss.clipLow", [](Loss& l, Branch&) { l.clip_low = 1; });
  for (int i = 0; i < kLossCount; ++i) {
    const LossName name = static_cast<LossName>(i);
    const LossFields& fields = FieldsOf(name);
    const auto toggled = [&](const char* words, std::optional<std::vector<float>> Branch::*field,
                             bool takes) {
      refused(name, words, [&](Loss&, Branch& b) {
        takes ? (b.*field).reset() : static_cast<void>(b.*field = four);
      });
      if (!takes) return;
      refused(name, words, [&](Loss&, Branch& b) { (b.*field)->pop_back(); });
      refused(name, words, [&](Loss&, Branch& b) { (*(b.*field))[2] = std::nanf(""); });
      refused(name, words, [&](Loss&, Branch& b) { (*(b.*field))[1] = INFINITY; });
    };
    toggled("branches[0].weights", &Branch::weights, fields.weights);
    toggled("branches[0].advantages", &Branch::advantages, fields.advantages);
    toggled("branches[0].logprobs", &Branch::logprobs, fields.advantages);
    toggled("branches[0].gradients", &Branch::gradients, fields.gradients);
    toggled("branches[0].mask", &Branch::mask, fields.mask);
    refused(name, "branches[0].targets[1]", [](Loss&, Branch& b) { b.targets = {1, 61, 2, 3}; });
    refused(name, "branches[0].targets[0]", [](Loss&, Branch& b) { b.targets = {-1, 6, 2, 3}; });
    refused(name, "branches[0].targets", [](Loss&, Branch& b) { b.targets = {1, 6, 2, 3, 4}; });
    refused(name, "branches[0].targets",
            [](Loss&, Branch& b) { b.targets = std::vector<int32_t>(); });
    if (fields.mask) continue;
    refused(name, "expected 8 numbers, one per target",
            [](Loss&, Branch& b) { b.targets = {1, 6, 2, 3, 4, 1, 1, 1}; });
  }
  refused(
      LossName::kGspo, "one target per token", [](Loss&, Branch&) {}, 2);
  refused(LossName::kDro, "exceed the vocabulary",
          [](Loss&, Branch& b) { b.targets = std::vector<int32_t>(4 * 62, 1); });
  SAME_STATE(engine.State(adapter), before);
}

// Section by section of a long branch: the head's tiles, its slices of 256 rows and several passes.
TEST(head_gradients_follow_row_order_over_slices_and_passes) {
  Inputs inputs(68);
  TinyBase base = LlamaBase();
  base.context = 700;
  const Loss loss = Inputs::LossNamed(LossName::kDro);
  const std::vector<Datum> datums = {inputs.OneDatum(loss, 3, {300, 290}, 2),
                                     inputs.OneDatum(loss, 9, {30})};
  const auto run = [&](const char* path, int rows) {
    EngineOptions options = SmallOptions();
    options.kernels = path;
    options.max_train_rows = rows;
    TestEngine engine(base, options);
    const AdapterHandle adapter = Moved(engine, HeadSpec({Module::kV, Module::kLmHead}));
    engine.Train(adapter, loss, datums).Get();
    return engine.State(adapter);
  };
  const auto expected = run("reference", 2000);
  SAME_STATE(run("scalar", 100), expected);
  SAME_STATE(run("scalar", 2000), expected);
}

// Moments go on where no gradient came: theta still moves by them.
TEST(a_step_without_gradient_moves_by_the_moments) {
  TestEngine engine;
  Inputs inputs(69);
  Loss loss;
  AdamParams params = Adam();
  params.weight_decay = 0;
  const AdapterHandle adapter = Moved(engine, HeadSpec(kSome));
  engine.Train(adapter, loss, inputs.Datums(loss, 3)).Get();
  engine.Step(adapter, params).Get();
  const auto before = engine.State(adapter);
  const OptimStepResult result = engine.Step(adapter, params).Get();
  CHECK_EQ(result.grad_norm, 0.0);
  CHECK_EQ(result.step, uint64_t{2});
  const auto after = engine.State(adapter);
  const double bc1 = 1 - std::pow(params.beta1, 2), bc2 = 1 - std::pow(params.beta2, 2);
  bool moved = false;
  for (size_t i = 0; i < before->m.size(); ++i) {
    const double m = params.beta1 * before->m[i], v = params.beta2 * before->v[i];
    CHECK(std::fabs(after->m[i] - m) <= 1e-7 * std::fabs(m) + 1e-37);
    const double theta = before->weights->values[i] -
                         params.learning_rate * (m / bc1) / (std::sqrt(v / bc2) + params.eps);
    CHECK(std::fabs(after->weights->values[i] - theta) < 2e-7);
    moved |= after->weights->values[i] != before->weights->values[i];
  }
  CHECK(moved);
}

}  // namespace
}  // namespace hotbed::test
