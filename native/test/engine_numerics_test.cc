// The contract an engine is opened under: what bf16-1 asks for, and how far it is from f32-1.
#include <cmath>

#include "engine/numerics.h"
#include "engine_support.h"
#include "kernels/machine_burst.h"

using namespace hotbed;
using namespace hotbed::test;

namespace {

struct Trained {
  ForwardBackwardResult result;
  std::shared_ptr<const AdapterState> state;
};

Trained TrainUnder(const char* numerics, const Loss& loss, const std::vector<Datum>& datums) {
  TinyBase base = PairBase();
  base.numerics = numerics;
  TestEngine engine(base);
  AdapterSpec spec;
  spec.rank = 4;
  spec.alpha = 8;
  for (int m = 0; m < kModuleCount; ++m) spec.targets.push_back(static_cast<Module>(m));
  auto state = ZeroAdapterState(engine.raw().config(), spec);
  Inputs values(3);
  for (float& value : state->weights->values) value = values.Float(-0.2f, 0.2f);
  const AdapterHandle adapter = engine.Adopt(std::move(state));
  Trained trained;
  trained.result = engine.Train(adapter, loss, datums).Get();
  trained.state = engine.State(adapter);
  return trained;
}

}  // namespace

TEST(numerics_offers_agree_with_this_machine) {
  const std::vector<NumericsOffer>& offers = NumericsOffers();
  CHECK_EQ(offers.size(), size_t{2});
  CHECK(offers[0].numerics == Numerics::kF32 && !offers[0].refusal);
  CHECK(offers[1].numerics == Numerics::kBf16);
  if (!kernels::hasBf16Dot()) CHECK(offers[1].refusal.has_value());
  if (offers[1].refusal) {
    CHECK_FAULT(ChooseNumerics("bf16-1", std::nullopt), FaultCode::kUnsupportedCpu,
                *offers[1].refusal);
  } else {
    CHECK(ChooseNumerics("bf16-1", std::nullopt).path == kernels::Path::avx512bf16);
  }
}

TEST(numerics_a_named_path_keeps_either_contract) {
  for (const char* path : {"scalar", "avx2", "avx512", "reference"}) {
    if (!kernels::supports(kernels::parsePath(path))) continue;
    for (const char* numerics : {"f32-1", "bf16-1"}) {
      const NumericsChoice choice = ChooseNumerics(numerics, path);
      CHECK_EQ(std::string(NumericsId(choice.numerics)), std::string(numerics));
      CHECK(choice.path == kernels::parsePath(path));
    }
  }
  CHECK(ChooseNumerics("f32-1", std::nullopt).path == kernels::bestPath());
}

TEST(numerics_refuses_what_it_does_not_know) {
  CHECK_FAULT(ChooseNumerics("bf16", std::nullopt), FaultCode::kInvalidArgument, "numerics");
  CHECK_FAULT(ChooseNumerics("f32-1", "sse2"), FaultCode::kInvalidArgument, "kernels");
  TinyBase base = LlamaBase();  // fp32 weights
  base.numerics = "bf16-1";
  CHECK_FAULT(TestEngine{base}, FaultCode::kUnsupportedModel, "layer 0");
}

TEST(numerics_id_is_what_the_engine_was_opened_under) {
  TinyBase base = PairBase();
  TestEngine pairs(base);
  CHECK_EQ(pairs.raw().info().numerics_id, std::string("bf16-1"));
  base.numerics = "f32-1";
  CHECK_EQ(TestEngine(base).raw().info().numerics_id, std::string("f32-1"));
}

// bf16 keeps 8 bits: two contracts on the same numbers are close, and never the same.
TEST(numerics_bf16_is_near_f32_and_not_equal) {
  Inputs inputs(44);
  Loss loss;
  loss.name = LossName::kCrossEntropy;
  const std::vector<Datum> datums = inputs.Datums(loss, 6);
  const Trained wide = TrainUnder("f32-1", loss, datums);
  const Trained pairs = TrainUnder("bf16-1", loss, datums);
  CHECK(wide.result.loss_sum != pairs.result.loss_sum);
  CHECK(std::fabs(wide.result.loss_sum - pairs.result.loss_sum) <
        0.02 * std::fabs(wide.result.loss_sum));
  double product = 0, of_wide = 0, of_pairs = 0;
  for (size_t i = 0; i < wide.state->gradient.size(); ++i) {
    const double a = wide.state->gradient[i], b = pairs.state->gradient[i];
    product += a * b;
    of_wide += a * a;
    of_pairs += b * b;
  }
  const double cosine = product / std::sqrt(of_wide * of_pairs);
  CHECK_MESSAGE(cosine > 0.999, "cosine " << cosine);
}
