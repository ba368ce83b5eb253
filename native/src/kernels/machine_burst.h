// Bursts that measure what one core can do at most; benchmarks divide by them. They compute nothing
// that the engine uses. (The fp32 multiply-add burst is KernelTable::fmaBurst: it uses the lanes of
// its path.)
#pragma once

#include <cstddef>

namespace hotbed::kernels {

// Whether this CPU multiplies pairs of bf16 into fp32 (VDPBF16PS).
bool hasBf16Dot();

// Independent VDPBF16PS chains on registers; returns the floating-point operations done. Only where
// hasBf16Dot().
double bf16DotBurst(size_t repeats);

// Reads x[0, count) once and returns some sum of it; count is a multiple of 512 floats, x 64-byte
// aligned. Needs AVX2.
float readBurst(const float* x, size_t count);

}  // namespace hotbed::kernels
