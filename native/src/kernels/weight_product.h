// Products with packed weights, whatever their panels: what linear layers and the head share.
#pragma once

#include "kernels/path.h"
//
#include "kernels/gemm.h"
#include "kernels/gemm_pairs.h"

namespace hotbed::kernels::HOTBED_PATH {

// The rows that products read: as they are, or rounded once for pair panels.
struct WeightRows {
  const float* x;
  size_t ldx;
  const uint32_t* pairs;  // null: not rounded
  size_t ldpairs;
};

// Words that the rounded rows take; none where the weights take them as they are.
HOTBED_INLINE size_t roundedWords(const PackedLinear& weight, size_t rows) {
  return weight.pairPanels ? rows * pairStride(weight.dIn) : 0;
}

// x of all rows, rounded into `words` where the weights need it.
HOTBED_INLINE WeightRows weightRows(ThreadPool& pool, const float* x, size_t ldx, size_t rows,
                                    const PackedLinear& weight, uint32_t* words) {
  if (!weight.pairPanels) return {x, ldx, nullptr, 0};
  const size_t ldpairs = pairStride(weight.dIn);
  roundRows(pool, x, ldx, rows, weight.dIn, words, ldpairs);
  return {x, ldx, words, ldpairs};
}

// c = rows [rowBegin, rowEnd) of x times columns of the weights: k of their dIn from k0 on, outputs
// [column0, column0 + n).
struct WeightProduct {
  const WeightRows& rows;
  const PackedLinear& weight;
  size_t rowBegin, rowEnd;
  size_t k0, k;
  size_t column0, n;
  float* c;
  size_t ldc;
  Finish finish;
  FetchCursor* fetch = nullptr;

  // Of the outputs those in 16-lane columns [columnBegin, columnEnd), as gemmPanels counts them.
  void run(size_t columnBegin, size_t columnEnd) const {
    const auto describe = [&](auto& g) {
      g.m = rowEnd - rowBegin;
      g.n = n;
      g.k = k;
      g.c = c;
      g.ldc = ldc;
      g.finish = finish;
      g.bias = finish == Finish::bias ? weight.bias + column0 : nullptr;
      g.fetch = fetch;
    };
    if (weight.pairPanels) {
      PairGemm g;
      describe(g);
      g.a = rows.pairs + rowBegin * rows.ldpairs;
      g.am = rows.ldpairs;
      setPairPanels(g, weight, k0, column0);
      gemmPairs(g, columnBegin, columnEnd);
    } else {
      Gemm g;
      describe(g);
      g.a = rows.x + rowBegin * rows.ldx;
      g.am = rows.ldx;
      setPanels(g, weight, k0, column0);
      gemmPanels(g, columnBegin, columnEnd);
    }
  }
};

}  // namespace hotbed::kernels::HOTBED_PATH
