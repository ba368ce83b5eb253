// The slow obvious twin of every operation: one loop per formula, one thread, the trees of N1-N16
// written out. Faster paths must give the same bits. Shares nothing with them but constants.h and
// the argument structs.
#pragma once

#include "kernels/kernel_table.h"

namespace hotbed::kernels::reference {

// Trees and primitives that several files need.
uint32_t bitsOf(float x);
float floatOf(uint32_t bits);
float fmaf1(float a, float b, float c);  // one hardware fused multiply-add
float exp1(float x);
float log1(float x);
// 16 lanes, lane l takes elements l, l+16, ...; then 8+8, 4+4, 2+2, 1+1.
float treeSum(const float* x, size_t n);
float treeDot(const float* x, const float* y, size_t n);
float treeMax(const float* x, size_t n);

// (max, sum of exp(x - max)) of one block, and the online merge of N3.
struct Partial {
  float max;
  float sum;
};
Partial softmaxPartial(const float* x, size_t n);
// Merges `block` into `carried` and returns the factors a (of what was carried) and b (of block).
struct MergeFactors {
  float a;
  float b;
};
MergeFactors mergePartial(Partial& carried, const Partial& block);

void philox(uint64_t seed, const uint32_t counter[4], uint32_t out[4]);
float uniformOf(uint32_t word);

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

}  // namespace hotbed::kernels::reference
