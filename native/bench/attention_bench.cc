// Attention, LoRA, head and the elementwise kernels at the shapes of a small model, in GFLOP/s (or
// GB/s) beside the FMA ceiling of the same run.
//   attention_bench [threads] [path]

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/kernel_table.h"
#include "util/aligned_buffer.h"

using namespace hotbed;
using namespace hotbed::kernels;
using Clock = std::chrono::steady_clock;

namespace {

// With one thread the time on the CPU, which a busy machine disturbs less; else the wall's.
bool oneThread = false;

double seconds() {
  timespec now;
  clock_gettime(oneThread ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double bestSeconds(const std::function<void()>& run) {
  double best = 1e9;
  const auto begin = Clock::now();
  for (int round = 0; round < 200; ++round) {
    const double start = seconds();
    run();
    best = std::min(best, seconds() - start);
    const std::chrono::duration<double> all = Clock::now() - begin;
    if (all.count() > 0.5 && round > 5) break;
  }
  return best;
}

AlignedBuffer<float> filled(size_t n) {
  AlignedBuffer<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i * 7 % 23) * 0.05f - 0.5f;
  return x;
}

void report(const char* what, double work, double seconds) {
  std::printf("%-34s %9.1f us %8.1f G/s\n", what, seconds * 1e6, work / seconds * 1e-9);
}

struct Model {
  size_t d, ff, heads, kvHeads, headDim, vocab;
};

void benchAttention(const KernelTable& table, ThreadPool& pool, const Model& m, size_t sequences,
                    size_t length, size_t rowsEach, bool backward) {
  const AttentionShape shape{m.heads, m.kvHeads, m.headDim};
  const size_t qWidth = m.heads * m.headDim, kWidth = m.kvHeads * m.headDim;
  const size_t rows = sequences * rowsEach;
  const auto k = filled(length * kWidth), v = filled(length * kWidth);
  const size_t pageCount = (length + kKeyBlock - 1) / kKeyBlock;
  auto pages = AlignedBuffer<float>(sequences * pageCount * kvPageFloats(m.kvHeads, m.headDim));
  std::vector<float*> pointers;
  for (size_t i = 0; i < sequences * pageCount; ++i) {
    pointers.push_back(pages.data() + i * kvPageFloats(m.kvHeads, m.headDim));
  }
  std::vector<AttentionRows> parts;
  for (size_t s = 0; s < sequences; ++s) {
    const KvWriteRows write{0, length, 0, &pointers[s * pageCount]};
    table.writeKv(pool, {shape, k.data(), kWidth, v.data(), kWidth, &write, 1});
    parts.push_back({s * rowsEach, rowsEach, length - rowsEach, &pointers[s * pageCount]});
  }
  const auto q = filled(rows * qWidth), dout = filled(rows * qWidth);
  AlignedBuffer<float> o(rows * qWidth), lse(rows * m.heads), dq(rows * qWidth);
  AlignedBuffer<float> dk(rows * kWidth), dv(rows * kWidth);
  const AttentionArgs args{shape,  q.data(),   qWidth,       o.data(),
                           qWidth, lse.data(), parts.data(), parts.size()};
  const double first = static_cast<double>(length - rowsEach + 1);
  const double pairs = static_cast<double>(rows) * (first + static_cast<double>(length)) / 2;
  const double flops = 4.0 * pairs * static_cast<double>(qWidth);
  char name[64];
  std::snprintf(name, sizeof name, "attention %zux%zu rows, ctx %zu", sequences, rowsEach, length);
  report(name, flops, bestSeconds([&] { table.attention(pool, args); }));
  if (!backward) return;
  std::vector<KvGradientRange> ranges;
  std::vector<AttentionBackwardArgs> runs;
  std::vector<AttentionBackwardGroup> groups;
  for (size_t s = 0; s < sequences; ++s) {
    const size_t at = s * rowsEach;
    ranges.push_back({0, length, dk.data() + at * kWidth, kWidth, dv.data() + at * kWidth, kWidth});
  }
  for (size_t s = 0; s < sequences; ++s) {
    const size_t at = s * rowsEach;
    runs.push_back({shape, rowsEach, 0, &pointers[s * pageCount], q.data() + at * qWidth, qWidth,
                    o.data() + at * qWidth, qWidth, lse.data() + at * m.heads,
                    dout.data() + at * qWidth, qWidth, dq.data() + at * qWidth, qWidth, &ranges[s],
                    1});
  }
  for (size_t s = 0; s < sequences; ++s) groups.push_back({&runs[s], 1});
  report("  backward", 2.5 * flops,
         bestSeconds([&] { table.attentionBackwardGroups(pool, groups.data(), groups.size()); }));
}

void benchLora(const KernelTable& table, ThreadPool& pool, size_t segments, size_t rowsEach,
               size_t rank, size_t dIn, size_t dOut) {
  const size_t rows = segments * rowsEach;
  const auto x = filled(rows * dIn), dy = filled(rows * dOut);
  AlignedBuffer<float> y(rows * dOut), u(rows * rank), du(rows * rank), dx(rows * dIn);
  auto weights = filled(segments * rank * (dIn + dOut));
  auto gradients = filled(segments * rank * (dIn + dOut));
  std::vector<LoraForwardSegment> forward;
  std::vector<LoraBackwardSegment> backward;
  for (size_t s = 0; s < segments; ++s) {
    float* a = weights.data() + s * rank * (dIn + dOut);
    float* g = gradients.data() + s * rank * (dIn + dOut);
    forward.push_back({s * rowsEach, (s + 1) * rowsEach, a, a + rank * dIn, rank, 0.5f});
    backward.push_back(
        {s * rowsEach, (s + 1) * rowsEach, a, a + rank * dIn, rank, 0.5f, g, g + rank * dIn});
  }
  const double flops = 2.0 * static_cast<double>(rows * rank * (dIn + dOut));
  char name[64];
  std::snprintf(name, sizeof name, "lora %zux%zu rows r%zu %zu->%zu", segments, rowsEach, rank, dIn,
                dOut);
  report(name, flops, bestSeconds([&] {
           table.loraForward(pool, {x.data(), dIn, dIn, y.data(), dOut, dOut, u.data(), rank,
                                    forward.data(), segments});
         }));
  report("  backward", 2 * flops, bestSeconds([&] {
           table.loraBackward(pool, {x.data(), dIn, dIn, u.data(), rank, dy.data(), dOut, dOut,
                                     du.data(), rank, dx.data(), dIn, backward.data(), segments});
         }));
}

void benchHead(const KernelTable& table, ThreadPool& pool, const Model& m, size_t rows) {
  const auto x = filled(rows * m.d);
  const auto panels = filled(packedLinearFloats(m.vocab, m.d));
  const auto panelsT = filled(packedLinearFloats(m.d, m.vocab));
  AlignedBuffer<float> lse(rows), logprobs(rows), c(rows), dx(rows * m.d);
  std::vector<size_t> offsets(rows + 1);
  std::vector<int32_t> targets(rows);
  for (size_t i = 0; i < rows; ++i) {
    offsets[i + 1] = i + 1;
    targets[i] = static_cast<int32_t>(i % m.vocab);
    c[i] = 1;
  }
  const PackedLinear weight{panels.data(), m.vocab, m.d, nullptr};
  const PackedLinear transposed{panelsT.data(), m.d, m.vocab, nullptr};
  const double flops = 2.0 * static_cast<double>(rows * m.d * m.vocab);
  char name[64];
  std::snprintf(name, sizeof name, "head %zu rows V %zu", rows, m.vocab);
  report(name, flops, bestSeconds([&] {
           table.head(pool, {x.data(), m.d, rows, weight, lse.data(), nullptr, 0, offsets.data(),
                             targets.data(), logprobs.data()});
         }));
  report("  backward", 2 * flops, bestSeconds([&] {
           table.headBackward(pool, {x.data(), m.d, rows, weight, transposed, lse.data(), nullptr,
                                     0, offsets.data(), targets.data(), c.data(), dx.data(), m.d});
         }));
}

void benchSampler(const KernelTable& table, ThreadPool& pool, const Model& m, size_t rows) {
  const auto logits = filled(m.vocab);
  for (const bool masks : {false, true}) {
    std::vector<SampleArgs> requests(rows);
    std::vector<SampleResult> results(rows);
    for (size_t i = 0; i < rows; ++i) {
      requests[i].logits = logits.data();
      requests[i].vocab = requests[i].idLimit = m.vocab;
      requests[i].seed = i;
      requests[i].topP = masks ? 0.9 : 1.0;
      requests[i].topK = masks ? 50 : 0;
    }
    report(masks ? "sampler, top-k and top-p" : "sampler, flat logits",
           static_cast<double>(rows * m.vocab),
           bestSeconds([&] { table.sample(pool, requests.data(), rows, results.data()); }));
  }
}

void benchElementwise(const KernelTable& table, ThreadPool& pool, const Model& m, size_t rows) {
  const auto both = filled(rows * 2 * m.ff), x = filled(rows * m.d), w = filled(m.d);
  AlignedBuffer<float> h(rows * m.ff), y(rows * m.d), dBoth(rows * 2 * m.ff);
  report(
      "swiglu", static_cast<double>(rows * m.ff), bestSeconds([&] {
        table.swiglu(pool, {both.data(), both.data() + m.ff, 2 * m.ff, rows, m.ff, h.data(), m.ff});
      }));
  report("swiglu backward", static_cast<double>(rows * m.ff), bestSeconds([&] {
           table.swigluBackward(
               pool, {both.data(), both.data() + m.ff, 2 * m.ff, rows, m.ff, h.data(), m.ff,
                      dBoth.data(), dBoth.data() + m.ff, 2 * m.ff});
         }));
  report("rmsNorm", static_cast<double>(rows * m.d), bestSeconds([&] {
           table.rmsNorm(pool, {x.data(), m.d, rows, 1, m.d, w.data(), 1e-5f, y.data(), m.d});
         }));
  report("add", static_cast<double>(rows * m.d), bestSeconds([&] {
           table.add(pool, {x.data(), m.d, x.data(), m.d, y.data(), m.d, rows, m.d});
         }));
}

}  // namespace

int main(int argc, char** argv) {
  const size_t threads = argc > 1 ? static_cast<size_t>(std::atoi(argv[1]))
                                  : std::max(1u, std::thread::hardware_concurrency());
  const KernelTable& table = kernels::kernels(parsePath(argc > 2 ? argv[2] : nullptr));
  ThreadPool pool(threads);
  oneThread = threads == 1;
  double flops = 0;
  const double burst = bestSeconds([&] { flops = table.fmaBurst(100000); });
  std::printf("path %s, %zu threads, FMA ceiling %.1f GFLOP/s a thread\n", table.name, threads,
              flops / burst * 1e-9);
  const Model models[] = {{576, 1536, 9, 3, 64, 8192}, {128, 384, 4, 2, 32, 100}};
  for (const Model& m : models) {
    std::printf("-- d %zu, heads %zu/%zu x %zu\n", m.d, m.heads, m.kvHeads, m.headDim);
    benchAttention(table, pool, m, 1, 256, 256, true);
    benchAttention(table, pool, m, 8, 40, 40, true);
    benchAttention(table, pool, m, 32, 256, 1, false);
    benchAttention(table, pool, m, 32, 32, 1, false);
    benchLora(table, pool, 1, 256, 8, m.d, m.ff);
    benchLora(table, pool, 64, 1, 8, m.d, m.ff);
    benchLora(table, pool, 8, 40, 16, m.d, m.d);
    benchHead(table, pool, m, 1);
    benchHead(table, pool, m, 64);
    benchHead(table, pool, m, 256);
    benchSampler(table, pool, m, 16);
    benchElementwise(table, pool, m, 256);
  }
  return 0;
}
