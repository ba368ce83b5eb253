#include "kernels/path.h"
//
#include "kernels/gemm.h"
#include "kernels/lora_gradient.h"
#include "kernels/path_table.h"
#include "kernels/weight_product.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

constexpr size_t kForwardRows = 56;  // rows of a forward task: 4 register tiles, 112 KiB of logits
constexpr size_t kBackwardRows = 128;  // rows that share a slab of dlogit
// Rows of the slab lie 16 floats off a multiple of 4 KiB, or a register tile's rows would all fall
// into one set of the L1 cache.
constexpr size_t kSlabPadding = 16;
constexpr size_t kSlabTiles = 8;  // tiles of a slab: 4096 ids, 2 MiB for 128 rows

// Logits of rows [rowBegin, rowEnd) and one tile into c.
void tileLogits(const WeightRows& rows, const PackedLinear& weight, size_t rowBegin, size_t rowEnd,
                size_t tile, float* c, size_t ldc) {
  const size_t begin = tile * kVocabTile;
  const size_t width = minSize(kVocabTile, weight.dOut - begin);
  const Finish finish = weight.bias ? Finish::bias : Finish::store;
  const WeightProduct product{rows,  weight, rowBegin, rowEnd, 0,     weight.dIn,
                              begin, width,  c,        ldc,    finish};
  product.run(0, divideUp(width, 16));
}

// u = chain(A x) of all rows that have an adapter (N5).
void shrink(ThreadPool& pool, const HeadArgs& args) {
  const auto rows = [&](const HeadLora& lora, size_t begin, size_t end) {
    FloatEnvironment environment;
    Gemm g;
    g.m = end - begin;
    g.n = lora.rank;
    g.k = args.weight.dIn;
    g.a = args.x + begin * args.ldx;
    g.am = args.ldx;
    g.b = lora.at;
    g.ldb = lora.rank;
    g.c = args.u + begin * args.ldu;
    g.ldc = args.ldu;
    gemmRows(g);
  };
  const size_t blocks = divideUp(args.rows, kForwardRows);
  pool.forEach(blocks, [&](size_t block, size_t) {
    const size_t rowBegin = args.rows * block / blocks;
    const size_t rowEnd = args.rows * (block + 1) / blocks;
    for (size_t s = 0; s < args.loraCount; ++s) {
      const size_t begin = maxSize(args.lora[s].rowBegin, rowBegin);
      const size_t end = minSize(args.lora[s].rowEnd, rowEnd);
      if (begin < end) rows(args.lora[s], begin, end);
    }
  });
}

// The adapters' part of the logits of rows [rowBegin, rowEnd) and one tile, onto c (N5).
template <class Args>
void addDelta(const Args& args, size_t rowBegin, size_t rowEnd, size_t tile, float* c, size_t ldc) {
  const size_t vocab = args.weight.dOut;
  for (size_t s = 0; s < args.loraCount; ++s) {
    const HeadLora& lora = args.lora[s];
    const size_t begin = maxSize(lora.rowBegin, rowBegin);
    const size_t end = minSize(lora.rowEnd, rowEnd);
    if (begin >= end) continue;
    Gemm g;
    g.m = end - begin;
    g.n = minSize(kVocabTile, vocab - tile * kVocabTile);
    g.k = lora.rank;
    g.a = args.u + begin * args.ldu;
    g.am = args.ldu;
    g.b = lora.bt + tile * kVocabTile;
    g.ldb = vocab;
    g.c = c + (begin - rowBegin) * ldc;
    g.ldc = ldc;
    g.finish = Finish::scaledAdd;
    g.s = lora.scale;
    gemmRows(g);
  }
}

// max and tree16 of exp(l - max) over one tile of one row.
void tilePartial(const float* logits, size_t n, float& max, float& sum) {
  V16 m = set1(-kInfinity);
  for (size_t j = 0; j < n; j += 16) {
    const size_t lanes = minSize(16, n - j);
    m = maxKeep(m, load(logits + j, lanes, set1(-kInfinity)));
  }
  max = maxTree(m);
  const V16 max16 = set1(max);
  V16 s = zero();
  for (size_t j = 0; j < n; j += 16) {
    const size_t lanes = minSize(16, n - j);
    const V16 p = exp16(sub(load(logits + j, lanes), max16));
    s = select(firstLanes(lanes), add(s, p), s);
  }
  sum = sumTree(s);
}

// lse of 16 rows from their tiles' partials, [tiles][rows].
void mergeTiles(const float* maxima, const float* sums, size_t rows, size_t tiles, size_t row,
                size_t lanes, float* lse) {
  V16 m = load(maxima + row, lanes);
  V16 s = load(sums + row, lanes);
  for (size_t tile = 1; tile < tiles; ++tile) {
    const V16 mb = load(maxima + tile * rows + row, lanes);
    const V16 sb = load(sums + tile * rows + row, lanes);
    const V16 merged = maxKeep(m, mb);
    s = fma(s, exp16(sub(m, merged)), mul(sb, exp16(sub(mb, merged))));
    m = merged;
  }
  store(lse + row, add(m, log16(s)), lanes);
}

// dlogit of one row and tile in place of its logits.
void tileGradient(const HeadBackwardArgs& args, size_t row, size_t tile, float* logits, size_t n) {
  const size_t first = args.targetOffsets[row];
  const size_t last = args.targetOffsets[row + 1];
  const size_t begin = tile * kVocabTile;
  if (first == last) {
    __builtin_memset(logits, 0, n * sizeof(float));
    return;
  }
  const auto inTile = [&](size_t t) {
    const size_t id = static_cast<size_t>(args.targets[t]);
    return id >= begin && id < begin + n;
  };
  const V16 lse = set1(args.lse[row]);
  if (last - first == 1) {
    const V16 c = set1(args.c[first]);
    const bool hit = inTile(first);
    const size_t at = hit ? static_cast<size_t>(args.targets[first]) - begin : 0;
    const float targetLogit = hit ? logits[at] : 0.0f;
    for (size_t j = 0; j < n; j += 16) {
      const size_t lanes = minSize(16, n - j);
      const V16 p = exp16(sub(load(logits + j, lanes), lse));
      store(logits + j, mul(c, sub(zero(), p)), lanes);
    }
    if (hit) logits[at] = args.c[first] * (1.0f - exp1(targetLogit - args.lse[row]));
    return;
  }
  float total = 0.0f;
  for (size_t t = first; t < last; ++t) total = total + args.c[t];
  for (size_t j = 0; j < n; j += 16) {
    const size_t lanes = minSize(16, n - j);
    const V16 p = exp16(sub(load(logits + j, lanes), lse));
    store(logits + j, neg(mul(set1(total), p)), lanes);
  }
  for (size_t t = first; t < last; ++t) {
    if (!inTile(t)) continue;
    float& logit = logits[static_cast<size_t>(args.targets[t]) - begin];
    logit = logit + args.c[t];
  }
}

// The adapters' part of the backward pass over one block of rows: du and gradB slab by slab, then
// dx and gradA.
struct HeadLoraBlock {
  const HeadBackwardArgs& args;
  size_t rowBegin;
  size_t rowEnd;
  size_t rank;  // the largest
  float* su;    // [rows of the block, rank]

  // body(lora, begin, end) for each adapter's rows of [from, to), ascending.
  template <class Body>
  void forEachPart(size_t from, size_t to, const Body& body) const {
    for (size_t s = 0; s < args.loraCount; ++s) {
      const size_t begin = maxSize(args.lora[s].rowBegin, from);
      const size_t end = minSize(args.lora[s].rowEnd, to);
      if (begin < end) body(args.lora[s], begin, end);
    }
  }

  void scaleU() const {
    FloatEnvironment environment;
    forEachPart(rowBegin, rowEnd, [&](const HeadLora& lora, size_t begin, size_t end) {
      const V16 scale = set1(lora.scale);
      for (size_t row = begin; row < end; ++row) {
        for (size_t j = 0; j < lora.rank; j += 16) {
          const size_t lanes = minSize(16, lora.rank - j);
          store(su + (row - rowBegin) * rank + j,
                mul(scale, load(args.u + row * args.ldu + j, lanes)), lanes);
        }
      }
    });
  }

  // dlogits of ids [firstId, firstId + ids) of the block's rows: du's chains go on over the ids,
  // gradB's of these ids over the rows.
  void carrySlab(ThreadPool& pool, const float* slab, size_t slabWidth, size_t firstId,
                 size_t ids) const {
    if (args.loraCount == 0) return;
    const size_t rowParts = divideUp(rowEnd - rowBegin, kForwardRows / 2);
    const size_t idParts = divideUp(ids, kGradientColumns);
    pool.forEach(rowParts + idParts, [&](size_t task, size_t worker) {
      if (task < rowParts) {
        const size_t from = rowBegin + (rowEnd - rowBegin) * task / rowParts;
        const size_t to = rowBegin + (rowEnd - rowBegin) * (task + 1) / rowParts;
        forEachPart(from, to, [&](const HeadLora& lora, size_t begin, size_t end) {
          Gemm g;
          g.m = end - begin;
          g.n = lora.rank;
          g.k = ids;
          g.a = slab + (begin - rowBegin) * slabWidth;
          g.am = slabWidth;
          g.b = lora.b + firstId * lora.rank;
          g.ldb = lora.rank;
          g.c = args.du + begin * args.lddu;
          g.ldc = args.lddu;
          g.finish = firstId == 0 ? Finish::store : Finish::carry;
          gemmRows(g);
        });
        return;
      }
      const size_t id = (task - rowParts) * kGradientColumns;
      const size_t width = minSize(kGradientColumns, ids - id);
      float* turned =
          static_cast<float*>(pool.scratch(worker, kGradientColumns * rank * sizeof(float)));
      forEachPart(rowBegin, rowEnd, [&](const HeadLora& lora, size_t begin, size_t end) {
        if (!lora.gradB) return;
        carryGradB(end - begin, lora.rank, width, slab + (begin - rowBegin) * slabWidth + id,
                   slabWidth, su + (begin - rowBegin) * rank, rank,
                   lora.gradB + (firstId + id) * lora.rank, turned);
      });
    });
  }

  void finish(ThreadPool& pool) const {
    if (args.loraCount == 0) return;
    const size_t d = args.weight.dIn;
    {
      FloatEnvironment environment;
      forEachPart(rowBegin, rowEnd, [&](const HeadLora& lora, size_t begin, size_t end) {
        const V16 scale = set1(lora.scale);
        for (size_t row = begin; row < end; ++row) {
          float* du = args.du + row * args.lddu;
          for (size_t j = 0; j < lora.rank; j += 16) {
            const size_t lanes = minSize(16, lora.rank - j);
            store(du + j, mul(scale, load(du + j, lanes)), lanes);
          }
        }
      });
    }
    pool.forEach(divideUp(d, kGradientColumns), [&](size_t task, size_t) {
      const size_t column = task * kGradientColumns;
      const size_t width = minSize(kGradientColumns, d - column);
      forEachPart(rowBegin, rowEnd, [&](const HeadLora& lora, size_t begin, size_t end) {
        Gemm g;
        g.m = end - begin;
        g.n = width;
        g.k = lora.rank;
        g.a = args.du + begin * args.lddu;
        g.am = args.lddu;
        g.b = lora.a + column;
        g.ldb = d;
        g.c = args.dx + begin * args.lddx + column;
        g.ldc = args.lddx;
        g.finish = Finish::addTo;
        gemmRows(g);
        if (!lora.gradA) return;
        carryGradA(end - begin, lora.rank, width, args.du + begin * args.lddu, args.lddu,
                   args.x + begin * args.ldx + column, args.ldx, lora.gradA + column, d);
      });
    });
  }
};

}  // namespace

void head(ThreadPool& pool, const HeadArgs& args) {
  const size_t rows = args.rows;
  const size_t vocab = args.weight.dOut;
  const size_t tiles = divideUp(vocab, kVocabTile);
  if (rows == 0) return;
  const size_t rowBlocks = divideUp(rows, kForwardRows);
  if (args.loraCount != 0) shrink(pool, args);
  const size_t partials = 2 * tiles * rows;
  float* maxima = static_cast<float*>(
      pool.shared((partials + roundedWords(args.weight, rows)) * sizeof(float)));
  float* sums = maxima + tiles * rows;
  const WeightRows x = weightRows(pool, args.x, args.ldx, rows, args.weight,
                                  reinterpret_cast<uint32_t*>(maxima + partials));
  const size_t scratchBytes = kForwardRows * kVocabTile * sizeof(float);
  if (!args.logits) pool.reserveScratch(scratchBytes);
  pool.forEach(tiles * rowBlocks, [&](size_t task, size_t worker) {
    const size_t tile = task / rowBlocks;
    const size_t block = task % rowBlocks;
    const size_t rowBegin = rows * block / rowBlocks;
    const size_t rowEnd = rows * (block + 1) / rowBlocks;
    const size_t begin = tile * kVocabTile;
    const size_t width = minSize(kVocabTile, vocab - begin);
    float* c = args.logits ? args.logits + rowBegin * args.ldlogits + begin
                           : static_cast<float*>(pool.scratch(worker, scratchBytes));
    const size_t ldc = args.logits ? args.ldlogits : kVocabTile;
    tileLogits(x, args.weight, rowBegin, rowEnd, tile, c, ldc);
    addDelta(args, rowBegin, rowEnd, tile, c, ldc);
    for (size_t row = rowBegin; row < rowEnd; ++row) {
      const float* logits = c + (row - rowBegin) * ldc;
      tilePartial(logits, width, maxima[tile * rows + row], sums[tile * rows + row]);
      if (!args.targetOffsets) continue;
      for (size_t t = args.targetOffsets[row]; t < args.targetOffsets[row + 1]; ++t) {
        const size_t id = static_cast<size_t>(args.targets[t]);
        if (id >= begin && id < begin + width) args.logprobs[t] = logits[id - begin];
      }
    }
  });
  FloatEnvironment environment;
  for (size_t row = 0; row < rows; row += 16) {
    mergeTiles(maxima, sums, rows, tiles, row, minSize(16, rows - row), args.lse);
  }
  if (!args.targetOffsets) return;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t t = args.targetOffsets[row]; t < args.targetOffsets[row + 1]; ++t) {
      args.logprobs[t] = args.logprobs[t] - args.lse[row];
    }
  }
}

// Slab by slab of the vocabulary: dlogit of up to 128 rows in parallel over tiles, then dx
// continues its chain over the slab's ids in parallel over columns. Logits that the caller kept
// become dlogit where they lie; otherwise the slab's are computed again.
void headBackward(ThreadPool& pool, const HeadBackwardArgs& args) {
  const size_t vocab = args.weight.dOut;
  const size_t d = args.weight.dIn;
  const size_t tiles = divideUp(vocab, kVocabTile);
  const size_t slabWidth = minSize(kSlabTiles, tiles) * kVocabTile + kSlabPadding;
  const size_t blockRows = minSize(kBackwardRows, args.rows);
  size_t rank = 0;
  for (size_t s = 0; s < args.loraCount; ++s) rank = maxSize(rank, args.lora[s].rank);
  const bool kept = args.logits != nullptr;
  const size_t ownFloats = kept ? 0 : blockRows * slabWidth;
  const size_t xWords = kept ? 0 : roundedWords(args.weight, args.rows);
  const size_t ldrounded = pairStride(kSlabTiles * kVocabTile);
  const size_t slabWords = args.weightTransposed.pairPanels ? blockRows * ldrounded : 0;
  float* own = static_cast<float*>(
      pool.shared((ownFloats + xWords + slabWords + blockRows * rank) * sizeof(float)));
  uint32_t* roundedX = reinterpret_cast<uint32_t*>(own + ownFloats);
  uint32_t* roundedSlab = roundedX + xWords;                      // dlogit for weights of pairs
  float* su = reinterpret_cast<float*>(roundedSlab + slabWords);  // s*u of the block's rows
  WeightRows x{};
  if (!kept) x = weightRows(pool, args.x, args.ldx, args.rows, args.weight, roundedX);
  const size_t ld = kept ? args.ldlogits : slabWidth;
  if (args.loraCount != 0) pool.reserveScratch(kGradientColumns * rank * sizeof(float));
  for (size_t rowBegin = 0; rowBegin < args.rows; rowBegin += kBackwardRows) {
    const size_t rowEnd = minSize(rowBegin + kBackwardRows, args.rows);
    const size_t rowParts = divideUp(rowEnd - rowBegin, kForwardRows / 2);
    HeadLoraBlock lora{args, rowBegin, rowEnd, rank, su};
    lora.scaleU();
    for (size_t firstTile = 0; firstTile < tiles; firstTile += kSlabTiles) {
      const size_t slabTiles = minSize(kSlabTiles, tiles - firstTile);
      const size_t slabIds = minSize(slabTiles * kVocabTile, vocab - firstTile * kVocabTile);
      float* slab = kept ? args.logits + rowBegin * ld + firstTile * kVocabTile : own;
      pool.forEach(slabTiles * rowParts, [&](size_t task, size_t) {
        const size_t tile = firstTile + task / rowParts;
        const size_t part = task % rowParts;
        const size_t from = rowBegin + (rowEnd - rowBegin) * part / rowParts;
        const size_t to = rowBegin + (rowEnd - rowBegin) * (part + 1) / rowParts;
        float* c = slab + (from - rowBegin) * ld + (tile - firstTile) * kVocabTile;
        if (!kept) {
          tileLogits(x, args.weight, from, to, tile, c, ld);
          addDelta(args, from, to, tile, c, ld);
        }
        const size_t width = minSize(kVocabTile, vocab - tile * kVocabTile);
        for (size_t row = from; row < to; ++row) {
          tileGradient(args, row, tile, c + (row - from) * ld, width);
        }
        if (slabWords != 0) {
          roundRows(
              c, ld, to - from, width,
              roundedSlab + (from - rowBegin) * ldrounded + (tile - firstTile) * (kVocabTile / 2),
              ldrounded);
        }
      });
      const size_t columns = divideUp(d, 16);
      const size_t groups = divideUp(columns, 2);
      pool.forEach(groups, [&](size_t group, size_t) {
        const WeightRows dlogits{slab, ld, roundedSlab, ldrounded};
        const WeightProduct product{dlogits,
                                    args.weightTransposed,
                                    0,
                                    rowEnd - rowBegin,
                                    firstTile * kVocabTile,
                                    slabIds,
                                    0,
                                    d,
                                    args.dx + rowBegin * args.lddx,
                                    args.lddx,
                                    firstTile == 0 ? Finish::store : Finish::carry};
        product.run(group * 2, minSize(columns, group * 2 + 2));
      });
      lora.carrySlab(pool, slab, ld, firstTile * kVocabTile, slabIds);
    }
    lora.finish(pool);
  }
}

}  // namespace hotbed::kernels::HOTBED_PATH
