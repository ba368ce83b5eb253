// VDPBF16PS against what bf16-1 promises of it (P1). The instruction's rounding is not part of
// every description of it, so a machine is asked before it is trusted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotbed::kernels {

constexpr size_t kBf16Samples = 10'000'000;

// How many of `samples` lanes differ between the instruction and two fused multiply-adds, the odd
// element first, with denormals read and given as zeros. Inputs are bit patterns of every kind: any
// at all, ones of ordinary size whose sums round, ones whose products and sums are near the
// denormals or the largest number. NaN equals NaN. Only where hasBf16Dot() (machine_burst.h); about
// 0.1 s for kBf16Samples.
size_t bf16DotsThatDiffer(size_t samples, uint64_t seed);

}  // namespace hotbed::kernels
