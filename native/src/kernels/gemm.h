// The matrix kernel inside every product: C[m, n] = chain over k of a(m, k) * B[k][n], on one
// thread.
//
// a(m, k) = a[m*am + k*ak]. B is row-major (row stride ldb) or panels of 32 columns (linear.h),
// `panelStride` floats apart, row stride 32. Register tiles of up to 14 x 32 outputs; each output
// is its own ascending chain, so tiling never shows in the result.
#pragma once

#include "kernels/path.h"
//
#include "kernels/linear.h"

namespace hotbed::kernels::HOTBED_PATH {

enum class Finish {
  store,      // c = chain
  bias,       // c = chain + bias[n]
  carry,      // c = chain continued from c
  scale,      // c = s * chain
  addTo,      // c = c + chain
  scaledAdd,  // c = fma(s, chain, c)
};

// Lines of memory to fetch on the way, in pieces of one span each.
struct FetchCursor {
  const FetchSpan* spans = nullptr;
  size_t count = 0;
  size_t span = 0;
  size_t at = 0;    // bytes into the span
  size_t left = 0;  // bytes to take in all

  // Where the next `bytes` begin (a piece may run on past its span, which only wastes it), or null.
  const char* take(size_t bytes) {
    while (span < count && at >= spans[span].bytes) {
      at -= spans[span].bytes;
      ++span;
    }
    if (span == count || left == 0) return nullptr;
    const char* piece = static_cast<const char*>(spans[span].begin) + at;
    const size_t rest = spans[span].bytes - at;
    const size_t taken = bytes < rest ? bytes : rest;
    at += taken;
    left -= taken < left ? taken : left;
    return piece;
  }
};

struct Gemm {
  size_t m = 0;
  size_t n = 0;
  size_t k = 0;
  const float* a = nullptr;
  size_t am = 0;
  size_t ak = 1;
  const float* b = nullptr;
  size_t ldb = 0;
  const uint32_t* narrow = nullptr;  // narrow panels, in place of b where set
  size_t panelStride = 0;            // in elements of b or narrow
  float* c = nullptr;
  size_t ldc = 0;
  Finish finish = Finish::store;
  float s = 1;
  const float* bias = nullptr;
  FetchCursor* fetch = nullptr;  // panels only
};

// B = the panels of w, from row k0 on and from panel column0 / 32 on.
HOTBED_INLINE void setPanels(Gemm& g, const PackedLinear& w, size_t k0, size_t column0) {
  const size_t row = column0 / kPanelWidth * w.dIn + k0;
  const size_t width = w.narrowPanels ? kPanelWidth / 2 : kPanelWidth;
  g.b = w.narrowPanels ? nullptr : w.panels + row * width;
  g.narrow = w.narrowPanels ? w.narrowPanels + row * width : nullptr;
  g.panelStride = w.dIn * width;
}

// All of C, B row-major.
void gemmRows(const Gemm& g);
// Columns [columnBegin, columnEnd) of C, counted in 16 lanes, B in panels; columnBegin is even, g.n
// bounds the last one.
// The padding columns of the last panel are computed and dropped.
void gemmPanels(const Gemm& g, size_t columnBegin, size_t columnEnd);

}  // namespace hotbed::kernels::HOTBED_PATH
