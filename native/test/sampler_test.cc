#include <algorithm>

#include "kernel_support.h"

using namespace hotbed;
using namespace hotbed::test;
using kernels::SampleArgs;
using kernels::SampleResult;

namespace {

SampleResult sampleOne(const KernelTable& table, const SampleArgs& args) {
  SampleResult result;
  table.sample(poolOf(1), &args, 1, &result);
  return result;
}

}  // namespace

TEST(top_tokens_equal_the_reference) {
  for (const size_t vocab : {1, 15, 16, 17, 600, 3001}) {
    for (const size_t k : {1, 2, 20, 64}) {
      for (const size_t odd : {0, 3}) {
        checkAgainstReference("top tokens", [&](const KernelTable& table, ThreadPool& pool) {
          Random random(vocab + k);
          std::vector<Floats> logits;
          std::vector<kernels::TopTokensArgs> requests(5);
          std::vector<int32_t> tokens(5 * k);
          Floats out(10 * k);
          for (size_t i = 0; i < requests.size(); ++i) {
            logits.push_back(randomMatrix(random, 1, vocab, vocab, 2));
            if (odd) sprinkle(random, logits[i], odd);
            for (size_t v = 0; v + 1 < vocab; v += 7) logits[i][v + 1] = logits[i][v];  // ties
            for (size_t v = 0; i == 4 && v < vocab; ++v) logits[i][v] = 1.0f;
            requests[i].logits = logits[i].data();
            requests[i].idLimit = vocab - (i % 2 == 1 && vocab > 1);
            requests[i].lse = 0.75f;
            requests[i].k = k;
            requests[i].tokens = tokens.data() + i * k;
            requests[i].logprobs = out.data() + i * k;
          }
          table.topTokens(pool, requests.data(), requests.size());
          for (size_t i = 0; i < tokens.size(); ++i) {
            out[5 * k + i] = static_cast<float>(tokens[i]);
          }
          return out;
        });
      }
    }
  }
}

TEST(sampler_equals_the_reference_over_settings) {
  struct Case {
    size_t vocab, limit;
    float spread;
    size_t odd;
  };
  for (const Case& c : {Case{7, 7, 1, 0}, Case{100, 93, 3, 0}, Case{513, 513, 8, 0},
                        Case{3000, 2999, 2, 0}, Case{600, 600, 3, 50}, Case{64, 64, 0, 0}}) {
    for (float temperature : {0.0f, 0.3f, 1.0f, 1.7f}) {
      for (size_t topK : {0, 1, 5, 40}) {
        for (double topP : {1.0, 0.9, 0.3, 1e-9}) {
          checkAgainstReference("sampler", [&](const KernelTable& table, ThreadPool& pool) {
            Random random(c.vocab);
            std::vector<Floats> logits;
            std::vector<SampleArgs> requests;
            for (size_t i = 0; i < 6; ++i) {
              logits.push_back(randomMatrix(random, 1, c.vocab, c.vocab, c.spread));
              if (c.odd) sprinkle(random, logits[i], c.odd);
              for (size_t v = 0; v + 1 < c.vocab; v += 9) logits[i][v + 1] = logits[i][v];  // ties
            }
            for (size_t i = 0; i < 6; ++i) {
              SampleArgs args;
              args.logits = logits[i].data();
              args.vocab = c.vocab;
              args.idLimit = c.limit;
              args.lse = 1.25f;
              args.temperature = temperature;
              args.topK = topK;
              args.topP = topP;
              args.seed = 77 + i;
              args.drawIndex = static_cast<uint32_t>(i * 3);
              args.sampleIndex = static_cast<uint32_t>(i % 2);
              requests.push_back(args);
            }
            std::vector<SampleResult> results(requests.size());
            table.sample(pool, requests.data(), requests.size(), results.data());
            Floats out(3 * results.size());
            for (size_t i = 0; i < results.size(); ++i) {
              out[3 * i] = static_cast<float>(results[i].token);
              out[3 * i + 1] = results[i].policyLogprob;
              out[3 * i + 2] = results[i].samplingLogprob;
            }
            return out;
          });
        }
      }
    }
  }
}

TEST(sampler_draws_with_the_right_frequencies) {
  // Chi-squared over 8 ids, 20000 draws: 7 degrees of freedom exceed 24.3 once in a thousand; the
  // seeds are fixed, so this either always passes or never.
  const float logits[] = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f, -3.0f, 1.5f, 0.25f};
  double total = 0;
  for (float l : logits) total += std::exp(l);
  for (Path path : fastPaths()) {
    size_t seen[8] = {};
    for (uint32_t i = 0; i < 20000; ++i) {
      SampleArgs args;
      args.logits = logits;
      args.vocab = args.idLimit = 8;
      args.seed = 12345;
      args.drawIndex = i;
      ++seen[sampleOne(kernels::kernels(path), args).token];
    }
    double chi = 0;
    for (size_t v = 0; v < 8; ++v) {
      const double expected = 20000 * std::exp(logits[v]) / total;
      chi += (seen[v] - expected) * (seen[v] - expected) / expected;
    }
    CHECK_MESSAGE(chi < 24.3, "chi squared " << chi);
  }
}

TEST(sampler_masks_ids_beyond_the_tokenizer_and_reports_what_cannot_be_drawn) {
  float logits[64];
  for (size_t v = 0; v < 64; ++v) logits[v] = v < 10 ? 0.0f : 50.0f;
  float hopeless[64];
  for (float& l : hopeless) l = kPoison;
  for (Path path : {Path::reference, Path::scalar, Path::avx2, Path::avx512, Path::avx512bf16}) {
    if (!kernels::supports(path)) continue;
    const KernelTable& table = kernels::kernels(path);
    for (uint32_t i = 0; i < 200; ++i) {
      SampleArgs args;
      args.logits = logits;
      args.vocab = 64;
      args.idLimit = 10;
      args.drawIndex = i;
      const SampleResult result = sampleOne(table, args);
      CHECK(result.token >= 0 && result.token < 10);
      args.logits = hopeless;
      CHECK_EQ(sampleOne(table, args).token, -1);
      args.temperature = 0;
      CHECK_EQ(sampleOne(table, args).token, -1);
      args.temperature = 1;
      args.topK = 3;
      CHECK_EQ(sampleOne(table, args).token, -1);
    }
  }
}
