// The matrix kernel of bf16-1 (P1): C[m, n] = chain over pairs of k of a(m, k) * B[k][n], on one
// thread. linear.h gives the layout of B's pair panels and what a pair adds to a chain.
//
// a's rows are rounded to bf16 beforehand, two elements a word (roundRows), so that a row is
// rounded once for all columns. Register tiles are those of gemm.h and show as little in the
// result.
#pragma once

#include "kernels/path.h"
//
#include "kernels/gemm.h"
#include "util/thread_pool.h"

namespace hotbed::kernels::HOTBED_PATH {

// Words from one row of pairs to the next: an odd number of cache lines, or the rows of a register
// tile could all fall into one set of the L1 cache.
HOTBED_INLINE size_t pairStride(size_t k) { return (divideUp(k, 32) | 1) * 16; }

// out[row] = the pairs of x[row][0, k); the second half of the last pair of an odd k is +0.
void roundRows(const float* x, size_t ldx, size_t rows, size_t k, uint32_t* out, size_t ldout);
// The same on all threads, where the work is worth it.
void roundRows(ThreadPool& pool, const float* x, size_t ldx, size_t rows, size_t k, uint32_t* out,
               size_t ldout);

struct PairGemm {
  size_t m = 0;
  size_t n = 0;
  size_t k = 0;                 // elements, not pairs
  const uint32_t* a = nullptr;  // [m] rows of pairs, row stride am words
  size_t am = 0;
  const uint32_t* b = nullptr;  // the first pair panel
  size_t panelStride = 0;       // in words
  float* c = nullptr;
  size_t ldc = 0;
  Finish finish = Finish::store;  // or bias, or carry
  const float* bias = nullptr;
  FetchCursor* fetch = nullptr;
};

// B = the pair panels of w, from row k0 (even) on and from panel column0 / 32 on.
HOTBED_INLINE void setPairPanels(PairGemm& g, const PackedLinear& w, size_t k0, size_t column0) {
  g.panelStride = divideUp(w.dIn, 2) * kPanelWidth;
  g.b = w.pairPanels + column0 / kPanelWidth * g.panelStride + k0 / 2 * kPanelWidth;
}

// Columns [columnBegin, columnEnd) of C as gemmPanels counts them.
void gemmPairs(const PairGemm& g, size_t columnBegin, size_t columnEnd);

}  // namespace hotbed::kernels::HOTBED_PATH
