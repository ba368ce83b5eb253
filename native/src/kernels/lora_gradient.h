// Blocks of the gradients of A and B (N6), each the work of one owner: chains over rows, carried
// on.
#pragma once

#include "kernels/path.h"
//
#include "kernels/gemm.h"
#include "kernels/path_table.h"

namespace hotbed::kernels::HOTBED_PATH {

constexpr size_t kGradientColumns = 64;  // of a gradient tensor, in a task
constexpr size_t kTurnedRows = 32;       // fewer rows do not pay for turning a block of gradB

// gradA[rank, width] (row stride ld) += chain over rows of du[rows, rank] * x[rows, width].
HOTBED_INLINE void carryGradA(size_t rows, size_t rank, size_t width, const float* du, size_t lddu,
                              const float* x, size_t ldx, float* gradA, size_t ld) {
  Gemm g;
  g.k = rows;
  g.am = 1;
  g.finish = Finish::carry;
  g.m = rank;
  g.n = width;
  g.a = du;
  g.ak = lddu;
  g.b = x;
  g.ldb = ldx;
  g.c = gradA;
  g.ldc = ld;
  gemmRows(g);
}

// gradB[width, rank] += chain over rows of dy[rows, width] * su[rows, rank]. `turned`: scratch of
// width * rank floats.
HOTBED_INLINE void carryGradB(size_t rows, size_t rank, size_t width, const float* dy, size_t lddy,
                              const float* su, size_t ldsu, float* gradB, float* turned) {
  Gemm g;
  g.k = rows;
  g.am = 1;
  g.finish = Finish::carry;
  if (rank % 16 == 0 || rows < kTurnedRows) {
    g.m = width;
    g.n = rank;
    g.a = dy;
    g.ak = lddy;
    g.b = su;
    g.ldb = ldsu;
    g.c = gradB;
    g.ldc = rank;
    gemmRows(g);
    return;
  }
  // With B's rows as lanes (contiguous in dy) other ranks fill them too; the block of the gradient
  // is turned on the way in and out.
  transposeBlock(gradB, rank, width, rank, turned, width);
  g.m = rank;
  g.n = width;
  g.a = su;
  g.ak = ldsu;
  g.b = dy;
  g.ldb = lddy;
  g.c = turned;
  g.ldc = width;
  gemmRows(g);
  transposeBlock(turned, width, rank, width, gradB, rank);
}

}  // namespace hotbed::kernels::HOTBED_PATH
