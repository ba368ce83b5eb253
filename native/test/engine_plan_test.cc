// Plans are data: cut, merged and reordered ones give the same rows, directly on the executor.
#include <algorithm>

#include "engine/cpu_executor.h"
#include "engine_support.h"

namespace hotbed::test {
namespace {

constexpr size_t kVocabulary = 61;

struct Text {
  std::vector<int32_t> tokens;
  const AdapterWeights* weights = nullptr;
  std::vector<int32_t> pages;
  size_t fed = 0;
};

std::unique_ptr<CpuExecutor> NewExecutor(const TinyBase& base) {
  CpuExecutorOptions options;
  options.path = kernels::bestPath();
  return std::make_unique<CpuExecutor>(options, ConfigOf(base), WeightsOf(base));
}

// One plan with the next `chunk` tokens of each text; logits after every text's last token.
void RunPlan(CpuExecutor& executor, const std::vector<Text*>& texts, size_t chunk,
             std::vector<std::vector<float>>* logits, const std::vector<Text*>& names) {
  SamplingPlan plan;
  std::vector<Text*> ended;
  for (Text* text : texts) {
    const size_t count = std::min(chunk, text->tokens.size() - text->fed);
    if (count == 0) continue;
    const size_t begin = plan.rows();
    plan.spans.push_back({begin, count, text->fed, plan.page_ids.size()});
    plan.page_ids.insert(plan.page_ids.end(), text->pages.begin(), text->pages.end());
    for (size_t i = 0; i < count; ++i) {
      plan.tokens.push_back(text->tokens[text->fed + i]);
      plan.positions.push_back(static_cast<int32_t>(text->fed + i));
    }
    text->fed += count;
    plan.segments.push_back({text->weights, begin, plan.rows()});
    if (text->fed == text->tokens.size()) {
      plan.logits_rows.push_back(plan.rows() - 1);
      ended.push_back(text);
    }
  }
  SamplingOutput output;
  executor.RunSampling(plan, &output);
  for (size_t i = 0; i < ended.size(); ++i) {
    const auto at = std::find(names.begin(), names.end(), ended[i]) - names.begin();
    (*logits)[at].assign(output.logits.begin() + i * kVocabulary,
                         output.logits.begin() + (i + 1) * kVocabulary);
  }
}

TEST(plan_rows_do_not_depend_on_their_plan) {
  for (const TinyBase& base : AllBases()) {
    const ModelConfig config = ConfigOf(base);
    auto executor = NewExecutor(base);
    Inputs inputs(91);
    std::vector<std::unique_ptr<AdapterState>> adapters;
    for (int i = 0; i < 3; ++i) {
      adapters.push_back(ZeroAdapterState(config, inputs.Spec()));
      for (float& value : adapters.back()->weights->values) value = inputs.Float(-0.2f, 0.2f);
    }
    std::vector<Text> texts(6);
    std::vector<Text*> all;
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i].tokens = inputs.Tokens(inputs.Int(1, 150));
      if (i % 4 != 3) texts[i].weights = adapters[i % 4]->weights.get();
      all.push_back(&texts[i]);
    }
    const auto run = [&](std::vector<Text*> order, size_t chunk, bool together,
                         int32_t first_page) {
      // Other pages each time: where keys lie is nobody's business.
      for (Text* text : order) {
        text->pages.clear();
        text->fed = 0;
        for (size_t p = 0; p * kPagePositions < text->tokens.size(); ++p) {
          text->pages.push_back(first_page++);
        }
      }
      std::vector<std::vector<float>> logits(texts.size());
      for (size_t round = 0; round < 150; ++round) {
        if (together) {
          RunPlan(*executor, order, chunk, &logits, all);
        } else {
          for (Text* text : order) RunPlan(*executor, {text}, chunk, &logits, all);
        }
        if (std::all_of(order.begin(), order.end(),
                        [](const Text* text) { return text->fed == text->tokens.size(); })) {
          break;
        }
      }
      return logits;
    };
    const auto expected = run(all, 1000, false, 0);
    std::vector<Text*> reversed(all.rbegin(), all.rend());
    for (size_t chunk : {1, 7, 64, 1000}) {
      for (const auto& order : {all, reversed}) {
        const auto actual = run(order, chunk, true, static_cast<int32_t>(chunk % 5));
        for (size_t i = 0; i < expected.size(); ++i) SAME_BITS(actual[i], expected[i]);
      }
    }
  }
}

// A copied page holds what the original held, and no more is needed.
TEST(plan_page_copies_carry_the_keys) {
  const TinyBase base = LlamaBase();
  auto executor = NewExecutor(base);
  Inputs inputs(92);
  Text text;
  text.tokens = inputs.Tokens(101);
  text.pages = {0, 1};
  std::vector<std::vector<float>> whole(1), copied(1);
  RunPlan(*executor, {&text}, 1000, &whole, {&text});
  // The last token again, on a copy of the second page.
  SamplingPlan plan;
  plan.copies.push_back({1, 7, 36});
  plan.tokens = {text.tokens.back()};
  plan.positions = {100};
  plan.spans.push_back({0, 1, 100, 0});
  plan.page_ids = {0, 7};
  plan.segments.push_back({nullptr, 0, 1});
  plan.logits_rows = {0};
  SamplingOutput output;
  executor->RunSampling(plan, &output);
  SAME_BITS(output.logits, whole[0]);
}

}  // namespace
}  // namespace hotbed::test
