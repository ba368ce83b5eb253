// Attention (N3, N15) over paged keys and values in fp32.
//
// A page holds 64 consecutive positions of one layer, page i of a sequence the absolute positions
// [64i, 64i + 64): K as [kvHeads][headDim][64] (each kv head transposed: lanes are keys), then V as
// [kvHeads][64][headDim]. Slots that no key was written to are never read into a result. Pages may
// be shared by sequences; a page in which a branch's keys follow shared ones is the branch's copy.
// A query at position t sees keys 0..t, so all of them must have been written before.
// headDim is a multiple of 8 up to 256; queryHeads a multiple of kvHeads.
//
// Forward: per key block of 64: score = chain(q.k) * scale, mb = max, p = exp(score - mb),
// Sb = tree16(p), Ob = chain over keys of p*v, merged online as N3 says; o = O / S, lse = m + log
// S. Backward: p = exp(score - lse), D = tree16(dO*O), dp = chain(dO.v), ds = (p*(dp - D))*scale,
// dQ = chain over keys of ds*k; dK, dV carry on the accumulators they are given, in the order
// query head (of the kv head), then position ascending. For a group call branch 0, 1, ..., then the
// shared rows, each with the same accumulators for the shared positions.
#pragma once

#include <cstddef>

namespace hotbed::kernels {

constexpr size_t kKeyBlock = 64;

inline constexpr size_t kvPageFloats(size_t kvHeads, size_t headDim) {
  return 2 * kvHeads * headDim * kKeyBlock;
}

struct AttentionShape {
  size_t queryHeads = 0;
  size_t kvHeads = 0;
  size_t headDim = 0;
};

// Rows of one sequence: row rowBegin + i has position positionBegin + i.
struct KvWriteRows {
  size_t rowBegin = 0;
  size_t rowCount = 0;
  size_t positionBegin = 0;
  float* const* pages = nullptr;  // pages[position / 64]
};

struct KvWriteArgs {
  AttentionShape shape;
  const float* k = nullptr;  // [rows, kvHeads * headDim], after RoPE
  size_t ldk = 0;
  const float* v = nullptr;
  size_t ldv = 0;
  const KvWriteRows* sequences = nullptr;
  size_t sequenceCount = 0;
};

struct AttentionRows {
  size_t rowBegin = 0;
  size_t rowCount = 0;
  size_t positionBegin = 0;
  const float* const* pages = nullptr;
};

struct AttentionArgs {
  AttentionShape shape;
  const float* q = nullptr;  // [rows, queryHeads * headDim], after RoPE
  size_t ldq = 0;
  float* o = nullptr;  // [rows, queryHeads * headDim], not q
  size_t ldo = 0;
  float* lse = nullptr;  // [rows, queryHeads] (row stride queryHeads), or null
  const AttentionRows* sequences = nullptr;
  size_t sequenceCount = 0;
};

// Accumulators of dK and dV for positions [positionBegin, positionEnd): row position -
// positionBegin, [kvHeads * headDim] each. Ranges ascend and together cover every visible key.
struct KvGradientRange {
  size_t positionBegin = 0;
  size_t positionEnd = 0;
  float* dk = nullptr;
  size_t lddk = 0;
  float* dv = nullptr;
  size_t lddv = 0;
};

// One run of rows at consecutive positions (a branch, or the shared rows of a group).
struct AttentionBackwardArgs {
  AttentionShape shape;
  size_t rowCount = 0;
  size_t positionBegin = 0;
  const float* const* pages = nullptr;
  const float* q = nullptr;  // [rowCount, queryHeads * headDim]
  size_t ldq = 0;
  const float* o = nullptr;
  size_t ldo = 0;
  const float* lse = nullptr;  // [rowCount, queryHeads]
  const float* dout = nullptr;
  size_t lddout = 0;
  float* dq = nullptr;  // written
  size_t lddq = 0;
  const KvGradientRange* ranges = nullptr;
  size_t rangeCount = 0;
};

// Runs that carry on shared accumulators, in the order given; groups are independent of each other
// (no accumulator in common) and run in parallel.
struct AttentionBackwardGroup {
  const AttentionBackwardArgs* runs = nullptr;
  size_t runCount = 0;
};

}  // namespace hotbed::kernels
