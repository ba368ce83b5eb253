// Every operation of one path, chosen at run time. All paths give the same bits (N1-N16), NaN
// payloads excepted, for any number of threads.
//
// Operations check nothing that would cost time per element; shapes are the caller's contract,
// stated in each header. They throw only for memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/head.h"
#include "kernels/linear.h"
#include "kernels/lora.h"
#include "kernels/loss.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/rope.h"
#include "kernels/sampler.h"
#include "kernels/top_tokens.h"
#include "util/thread_pool.h"

namespace hotbed::kernels {

// reference: the slow obvious twin that the others are compared with. avx512bf16: avx512 whose pair
// panels (linear.h) use VDPBF16PS; the other paths give that instruction's bits without it.
enum class Path { scalar, avx2, avx512, avx512bf16, reference };

struct KernelTable {
  Path path;
  const char* name;

  void (*packLinear)(ThreadPool&, const PackLinearArgs&);
  void (*packLinearTransposed)(ThreadPool&, const PackLinearArgs&);
  // Narrows `floats` packed floats to bf16; false, with `out` undefined, when one of them is not
  // exactly a bf16 number.
  bool (*narrowPanels)(ThreadPool&, const float* panels, size_t floats, uint32_t* out);
  // Pair panels of a packed [dOut, dIn] matrix; false, with `out` undefined, when one element is
  // not exactly a bf16 number.
  bool (*pairPanels)(ThreadPool&, const float* panels, size_t dOut, size_t dIn, uint32_t* out);
  void (*linear)(ThreadPool&, const LinearArgs&);

  void (*loraForward)(ThreadPool&, const LoraForwardArgs&);
  void (*loraForwardMany)(ThreadPool&, const LoraForwardArgs*, size_t count);
  void (*loraBackward)(ThreadPool&, const LoraBackwardArgs&);
  void (*loraInit)(ThreadPool&, const LoraInitArgs&);
  void (*transpose)(ThreadPool&, const TransposeArgs&);
  void (*transposeMany)(ThreadPool&, const TransposeArgs*, size_t count);

  void (*rmsNorm)(ThreadPool&, const RmsNormArgs&);
  void (*rmsNormBackward)(ThreadPool&, const RmsNormBackwardArgs&);
  void (*ropeFrequencies)(const RopeFrequencyArgs&);
  void (*ropeTable)(ThreadPool&, const RopeTableArgs&);
  void (*rope)(ThreadPool&, const RopeArgs&);
  void (*swiglu)(ThreadPool&, const SwigluArgs&);
  void (*swigluBackward)(ThreadPool&, const SwigluBackwardArgs&);
  void (*add)(ThreadPool&, const AddArgs&);

  void (*writeKv)(ThreadPool&, const KvWriteArgs&);
  void (*attention)(ThreadPool&, const AttentionArgs&);
  void (*attentionBackward)(ThreadPool&, const AttentionBackwardArgs&);
  void (*attentionBackwardGroups)(ThreadPool&, const AttentionBackwardGroup*, size_t count);

  void (*head)(ThreadPool&, const HeadArgs&);
  void (*headBackward)(ThreadPool&, const HeadBackwardArgs&);
  // One result per request, in parallel over requests.
  void (*sample)(ThreadPool&, const SampleArgs* requests, size_t count, SampleResult* results);
  // Each request writes its own outputs, in parallel over requests.
  void (*topTokens)(ThreadPool&, const TopTokensArgs* requests, size_t count);
  // Returns sum + the terms, added in order.
  double (*loss)(const LossArgs&);

  // out[i] = fp64 sum of squares of tensor i; the caller adds them in N8's order and takes sqrt.
  void (*sumSquares)(ThreadPool&, const GradientTensor*, size_t count, double* out);
  AdamWScalars (*adamWScalars)(const AdamWHyper&, uint64_t step);
  // min(1, c / (norm + 1e-6)) in fp64, rounded once. clip <= 0 is off: 1.
  float (*clipFactor)(double norm, double clip);
  void (*adamW)(ThreadPool&, const AdamWTensor*, size_t count, const AdamWScalars&,
                float clipFactor);

  // Primitives (N4, N9), for tests and golden digests.
  void (*expArray)(const float* x, float* y, size_t n);
  void (*logArray)(const float* x, float* y, size_t n);
  // u at (counter0, counter1, counter2, counter3), word 0..3.
  float (*uniform)(uint64_t seed, const uint32_t counter[4], unsigned word);

  // Runs independent fma chains on registers and returns the floating-point operations done: the
  // ceiling that benchmarks divide by.
  double (*fmaBurst)(size_t repeats);
};

// Throws Error "unsupported_cpu" naming the missing features when this machine cannot run `path`.
const KernelTable& kernels(Path path);
bool supports(Path path);
// The fastest path of f32-1 that this machine supports; throws Error "unsupported_cpu" below
// x86-64-v3.
Path bestPath();
// "scalar" | "avx2" | "avx512" | "avx512bf16" | "reference"; null or empty: bestPath(). Throws
// Error "invalid_argument" for another word.
Path parsePath(const char* word);

}  // namespace hotbed::kernels
