// The operations of one path, as path_table.cc collects them.
#pragma once

#include "kernels/path.h"
//
#include "kernels/kernel_table.h"

namespace hotbed::kernels::HOTBED_PATH {

// Work below this many multiply-adds (a few microseconds) is not worth waking a worker for.
constexpr size_t kWorthSharing = 200000;

void packLinear(ThreadPool&, const PackLinearArgs&);
void packLinearTransposed(ThreadPool&, const PackLinearArgs&);
bool narrowPanels(ThreadPool&, const float* panels, size_t floats, uint32_t* out);
bool pairPanels(ThreadPool&, const float* panels, size_t dOut, size_t dIn, uint32_t* out);
void linear(ThreadPool&, const LinearArgs&);
void loraForward(ThreadPool&, const LoraForwardArgs&);
void loraForwardMany(ThreadPool&, const LoraForwardArgs*, size_t count);
void loraBackward(ThreadPool&, const LoraBackwardArgs&);
void loraInit(ThreadPool&, const LoraInitArgs&);
void transpose(ThreadPool&, const TransposeArgs&);
void transposeMany(ThreadPool&, const TransposeArgs*, size_t count);
void rmsNorm(ThreadPool&, const RmsNormArgs&);
void rmsNormBackward(ThreadPool&, const RmsNormBackwardArgs&);
void ropeFrequencies(const RopeFrequencyArgs&);
void ropeTable(ThreadPool&, const RopeTableArgs&);
void rope(ThreadPool&, const RopeArgs&);
void swiglu(ThreadPool&, const SwigluArgs&);
void swigluBackward(ThreadPool&, const SwigluBackwardArgs&);
void add(ThreadPool&, const AddArgs&);
void writeKv(ThreadPool&, const KvWriteArgs&);
void attention(ThreadPool&, const AttentionArgs&);
void attentionBackward(ThreadPool&, const AttentionBackwardArgs&);
void attentionBackwardGroups(ThreadPool&, const AttentionBackwardGroup*, size_t count);
void head(ThreadPool&, const HeadArgs&);
void headBackward(ThreadPool&, const HeadBackwardArgs&);
void sample(ThreadPool&, const SampleArgs*, size_t count, SampleResult*);
void topTokens(ThreadPool&, const TopTokensArgs*, size_t count);
double loss(const LossArgs&);
void sumSquares(ThreadPool&, const GradientTensor*, size_t count, double* out);
AdamWScalars adamWScalars(const AdamWHyper&, uint64_t step);
float clipFactor(double norm, double clip);
void adamW(ThreadPool&, const AdamWTensor*, size_t count, const AdamWScalars&, float factor);
void expArray(const float* x, float* y, size_t n);
void logArray(const float* x, float* y, size_t n);
float uniform(uint64_t seed, const uint32_t counter[4], unsigned word);
double fmaBurst(size_t repeats);

const KernelTable& table();

}  // namespace hotbed::kernels::HOTBED_PATH
