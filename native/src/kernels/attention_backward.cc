#include "kernels/path.h"
//
#include "kernels/attention_page.h"
#include "kernels/gemm.h"
#include "kernels/path_table.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

constexpr size_t kRowTile = 64;
// Keys of one step of dK and dV where rows see only part of a block: smaller wastes less of the
// triangle, larger fills the register tile.
constexpr size_t kKeyStep = 8;
constexpr size_t kRowStep = 8;  // the same for dQ

struct Scratch {
  float* scores;  // [kRowTile][64]: p
  float* slopes;  // [kRowTile][64]: ds
  float* keys;    // [64][hd], the page's keys row by row
  float* values;  // [hd][64], the page's values transposed
  float* d;       // [group][rowCount], tree16(dO*O)
};

size_t scratchFloats(size_t hd, size_t group, size_t rowCount) {
  return 2 * kRowTile * kKeyBlock + 2 * kKeyBlock * hd + group * rowCount;
}

float treeDot(const float* x, const float* y, size_t n) {
  V16 sum = zero();
  for (size_t j = 0; j < n; j += 16) {
    const size_t lanes = minSize(16, n - j);
    sum = select(firstLanes(lanes), fma(load(x + j, lanes), load(y + j, lanes), sum), sum);
  }
  return sumTree(sum);
}

// Rows [rowBegin, rowEnd) of one query head against one key block.
struct Tile {
  size_t head;
  size_t rowBegin;
  size_t rowEnd;
  size_t keyBegin;  // absolute position of the block

  size_t rows() const { return rowEnd - rowBegin; }
};

HOTBED_INLINE size_t keysSeen(const AttentionBackwardArgs& args, const Tile& tile, size_t row) {
  return minSize(kKeyBlock, args.positionBegin + row + 1 - tile.keyBegin);
}

// p and ds of a tile; lanes beyond the keys a row sees hold rubbish that nobody reads.
void softmaxSlopes(const AttentionBackwardArgs& args, const Tile& tile, const float* page,
                   size_t kvHead, size_t d0, const Scratch& s) {
  const size_t hd = args.shape.headDim;
  Gemm g;
  g.m = tile.rows();
  g.n = keysSeen(args, tile, tile.rowEnd - 1);
  g.k = hd;
  g.a = args.q + tile.rowBegin * args.ldq + tile.head * hd;
  g.am = args.ldq;
  g.b = page + keysOffset(args.shape, kvHead);
  g.ldb = kKeyBlock;
  g.c = s.scores;
  g.ldc = kKeyBlock;
  gemmRows(g);
  g.a = args.dout + tile.rowBegin * args.lddout + tile.head * hd;
  g.am = args.lddout;
  g.b = s.values;
  g.c = s.slopes;
  gemmRows(g);
  const V16 scale = set1(scoreScale(args.shape));
  for (size_t i = 0; i < tile.rows(); ++i) {
    const size_t row = tile.rowBegin + i;
    const V16 lse = set1(args.lse[row * args.shape.queryHeads + tile.head]);
    const V16 d = set1(s.d[d0 + row]);
    float* p = s.scores + i * kKeyBlock;
    float* ds = s.slopes + i * kKeyBlock;
    for (size_t j = 0; j < g.n; j += 16) {
      const V16 probability = exp16(sub(mul(load(p + j), scale), lse));
      store(p + j, probability);
      store(ds + j, mul(mul(probability, sub(load(ds + j), d)), scale));
    }
  }
}

// dq of the tile's rows continues over this block's keys. Where rows see different numbers of keys
// they go in steps of a few rows: the keys all of them see in one product, then each row's rest.
void queryGradient(const AttentionBackwardArgs& args, const Tile& tile, const Scratch& s) {
  const size_t hd = args.shape.headDim;
  const bool whole = keysSeen(args, tile, tile.rowBegin) == kKeyBlock;
  const size_t step = whole ? tile.rows() : kRowStep;
  for (size_t from = 0; from < tile.rows(); from += step) {
    const size_t to = minSize(from + step, tile.rows());
    const size_t common = keysSeen(args, tile, tile.rowBegin + from);
    Gemm g;
    g.m = to - from;
    g.n = hd;
    g.k = common;
    g.a = s.slopes + from * kKeyBlock;
    g.am = kKeyBlock;
    g.b = s.keys;
    g.ldb = hd;
    g.c = args.dq + (tile.rowBegin + from) * args.lddq + tile.head * hd;
    g.ldc = args.lddq;
    g.finish = Finish::carry;
    gemmRows(g);
    g.m = 1;
    g.b += common * hd;
    for (size_t i = from + 1; i < to; ++i) {
      g.k = keysSeen(args, tile, tile.rowBegin + i) - common;
      if (g.k == 0) continue;
      g.a = s.slopes + i * kKeyBlock + common;
      g.c = args.dq + (tile.rowBegin + i) * args.lddq + tile.head * hd;
      gemmRows(g);
    }
  }
}

// Continues the accumulators of keys [begin, end) of the block (offsets within it) over the tile's
// rows: acc[key] = chain of left[row][key] * right[row], rows ascending, only rows that see the
// key.
struct KeyAccumulators {
  float* rows;  // row of offset `begin`
  size_t ld;
};

void keyGradient(const AttentionBackwardArgs& args, const Tile& tile, size_t begin, size_t end,
                 const float* left, const float* right, size_t ldRight, KeyAccumulators acc) {
  Gemm g;
  g.n = args.shape.headDim;
  g.am = 1;
  g.ak = kKeyBlock;
  g.ldb = ldRight;
  g.ldc = acc.ld;
  g.finish = Finish::carry;
  // The first row of the tile that sees all keys below `end`.
  const size_t seenByFirst = keysSeen(args, tile, tile.rowBegin);
  const bool whole = seenByFirst >= end;
  const size_t step = whole ? end - begin : kKeyStep;
  for (size_t k0 = begin; k0 < end; k0 += step) {
    const size_t k1 = minSize(k0 + step, end);
    size_t i = 0;
    for (; i < tile.rows(); ++i) {
      const size_t seen = keysSeen(args, tile, tile.rowBegin + i);
      if (seen >= k1) break;
      if (seen <= k0) continue;
      g.m = seen - k0;
      g.k = 1;
      g.a = left + i * kKeyBlock + k0;
      g.b = right + i * ldRight;
      g.c = acc.rows + (k0 - begin) * acc.ld;
      gemmRows(g);
    }
    if (i == tile.rows()) continue;
    g.m = k1 - k0;
    g.k = tile.rows() - i;
    g.a = left + i * kKeyBlock + k0;
    g.b = right + i * ldRight;
    g.c = acc.rows + (k0 - begin) * acc.ld;
    gemmRows(g);
  }
}

// Everything of one kv head: its dK and dV, and dQ of its query heads. Blocks ascend outermost, so
// dQ sees keys ascending; within a block heads, then rows ascend, which is N15's order for dK, dV.
void backwardKvHead(const AttentionBackwardArgs& args, size_t kvHead, float* scratch) {
  const size_t hd = args.shape.headDim;
  const size_t group = args.shape.queryHeads / args.shape.kvHeads;
  Scratch s;
  s.scores = scratch;
  s.slopes = s.scores + kRowTile * kKeyBlock;
  s.keys = s.slopes + kRowTile * kKeyBlock;
  s.values = s.keys + kKeyBlock * hd;
  s.d = s.values + kKeyBlock * hd;
  for (size_t h = 0; h < group; ++h) {
    const size_t column = (kvHead * group + h) * hd;
    for (size_t row = 0; row < args.rowCount; ++row) {
      s.d[h * args.rowCount + row] =
          treeDot(args.dout + row * args.lddout + column, args.o + row * args.ldo + column, hd);
      __builtin_memset(args.dq + row * args.lddq + column, 0, hd * sizeof(float));
    }
  }
  const size_t keyEnd = args.positionBegin + args.rowCount;
  for (size_t keyBegin = 0; keyBegin < keyEnd; keyBegin += kKeyBlock) {
    const float* page = args.pages[keyBegin / kKeyBlock];
    const size_t keys = minSize(kKeyBlock, keyEnd - keyBegin);
    transposeBlock(page + keysOffset(args.shape, kvHead), kKeyBlock, hd, keys, s.keys, hd);
    transposeBlock(page + valuesOffset(args.shape, kvHead), hd, keys, hd, s.values, kKeyBlock);
    const size_t firstRow = keyBegin > args.positionBegin ? keyBegin - args.positionBegin : 0;
    for (size_t h = 0; h < group; ++h) {
      for (size_t row = firstRow; row < args.rowCount; row += kRowTile) {
        const Tile tile{kvHead * group + h, row, minSize(row + kRowTile, args.rowCount), keyBegin};
        softmaxSlopes(args, tile, page, kvHead, h * args.rowCount, s);
        queryGradient(args, tile, s);
        const float* q = args.q + row * args.ldq + tile.head * hd;
        const float* dout = args.dout + row * args.lddout + tile.head * hd;
        for (size_t r = 0; r < args.rangeCount; ++r) {
          const KvGradientRange& range = args.ranges[r];
          const size_t from = maxSize(range.positionBegin, keyBegin);
          const size_t to = minSize(range.positionEnd, keyBegin + keys);
          if (from >= to) continue;
          const size_t at = from - range.positionBegin;
          keyGradient(args, tile, from - keyBegin, to - keyBegin, s.slopes, q, args.ldq,
                      {range.dk + at * range.lddk + kvHead * hd, range.lddk});
          keyGradient(args, tile, from - keyBegin, to - keyBegin, s.scores, dout, args.lddout,
                      {range.dv + at * range.lddv + kvHead * hd, range.lddv});
        }
      }
    }
  }
}

}  // namespace

void attentionBackwardGroups(ThreadPool& pool, const AttentionBackwardGroup* groups, size_t count) {
  size_t floats = 0;
  size_t tasks = 0;
  for (size_t g = 0; g < count; ++g) {
    if (groups[g].runCount == 0) continue;
    const AttentionShape& shape = groups[g].runs[0].shape;
    tasks = maxSize(tasks, shape.kvHeads);
    for (size_t r = 0; r < groups[g].runCount; ++r) {
      floats = maxSize(floats, scratchFloats(shape.headDim, shape.queryHeads / shape.kvHeads,
                                             groups[g].runs[r].rowCount));
    }
  }
  pool.reserveScratch(floats * sizeof(float));
  pool.forEach(count * tasks, [=, &pool](size_t task, size_t worker) {
    const AttentionBackwardGroup& group = groups[task / tasks];
    const size_t kvHead = task % tasks;
    float* scratch = static_cast<float*>(pool.scratch(worker, floats * sizeof(float)));
    for (size_t r = 0; r < group.runCount; ++r) {
      if (kvHead < group.runs[r].shape.kvHeads) backwardKvHead(group.runs[r], kvHead, scratch);
    }
  });
}

void attentionBackward(ThreadPool& pool, const AttentionBackwardArgs& args) {
  const AttentionBackwardGroup group{&args, 1};
  attentionBackwardGroups(pool, &group, 1);
}

}  // namespace hotbed::kernels::HOTBED_PATH
