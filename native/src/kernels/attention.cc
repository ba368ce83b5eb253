#include "kernels/path.h"
//
#include "kernels/attention_page.h"
#include "kernels/gemm.h"
#include "kernels/path_table.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

// (row, query head) pairs of one task: three register tiles of the widest path, and little enough
// that queries, outputs and scores stay in the L1 cache.
constexpr size_t kPairs = 42;
constexpr size_t kStepPairs = 12;

// p = exp(score - max) in place of unscaled scores, over kColumns*16 places of which the last 16
// hold `last` keys; also max and tree16 of p. Places beyond the keys take rubbish.
template <int kColumns>
HOTBED_INLINE void softmaxColumns(float* scores, size_t last, V16 scale, float& blockMax,
                                  float& blockSum) {
  const M16 present = firstLanes(last);
  V16 x[kColumns];
  V16 m = set1(-kInfinity);
#pragma GCC unroll 4
  for (int j = 0; j < kColumns; ++j) {
    x[j] = mul(load(scores + 16 * j), scale);
    m = j < kColumns - 1 ? maxKeep(m, x[j]) : select(present, maxKeep(m, x[j]), m);
  }
  blockMax = maxTree(m);
  const V16 max = set1(blockMax);
  V16 sum = zero();
#pragma GCC unroll 4
  for (int j = 0; j < kColumns; ++j) {
    const V16 p = exp16(sub(x[j], max));
    store(scores + 16 * j, p);
    sum = j < kColumns - 1 ? add(sum, p) : select(present, add(sum, p), sum);
  }
  blockSum = sumTree(sum);
}

HOTBED_INLINE void softmaxBlock(float* scores, size_t n, V16 scale, float& max, float& sum) {
  static_assert(kKeyBlock == 64, "four columns of 16");
  if (n > 48) return softmaxColumns<4>(scores, n - 48, scale, max, sum);
  if (n > 32) return softmaxColumns<3>(scores, n - 32, scale, max, sum);
  if (n > 16) return softmaxColumns<2>(scores, n - 16, scale, max, sum);
  softmaxColumns<1>(scores, n, scale, max, sum);
}

struct Task {
  const AttentionRows* sequence;
  size_t kvHead;
  size_t firstRow;  // within the sequence
  size_t rowCount;
};

// Pair i is row i / group, head i % group of the kv head's group.
void attendRows(const AttentionArgs& args, const Task& task, float* scratch) {
  const size_t hd = args.shape.headDim;
  const size_t group = args.shape.queryHeads / args.shape.kvHeads;
  const size_t pairs = task.rowCount * group;
  float* queries = scratch;
  float* outputs = queries + pairs * hd;
  float* blockOutputs = outputs + pairs * hd;
  float* scores = blockOutputs + pairs * hd;
  float* maxima = scores + pairs * kKeyBlock;
  float* sums = maxima + pairs;
  float* blockMax = sums + pairs;
  float* blockSum = blockMax + pairs;
  const size_t firstPosition = task.sequence->positionBegin + task.firstRow;
  const size_t rowBase = task.sequence->rowBegin + task.firstRow;
  const size_t headColumn = task.kvHead * group * hd;
  for (size_t row = 0; row < task.rowCount; ++row) {
    __builtin_memcpy(queries + row * group * hd, args.q + (rowBase + row) * args.ldq + headColumn,
                     group * hd * sizeof(float));
  }
  const V16 scale = set1(scoreScale(args.shape));
  const size_t keysOfLast = firstPosition + task.rowCount;
  for (size_t begin = 0; begin < keysOfLast; begin += kKeyBlock) {
    const float* page = task.sequence->pages[begin / kKeyBlock];
    // Rows before the block see none of it.
    const size_t skipped = begin > firstPosition ? begin - firstPosition : 0;
    const size_t firstPair = skipped * group;
    const auto keysSeen = [&](size_t pair) {
      return minSize(kKeyBlock, firstPosition + pair / group + 1 - begin);
    };
    Gemm score;
    score.m = pairs - firstPair;
    score.n = keysSeen(pairs - 1);
    score.k = hd;
    score.a = queries + firstPair * hd;
    score.am = hd;
    score.b = page + keysOffset(args.shape, task.kvHead);
    score.ldb = kKeyBlock;
    score.c = scores + firstPair * kKeyBlock;
    score.ldc = kKeyBlock;
    gemmRows(score);
    float* target = begin == 0 ? outputs : blockOutputs;
    for (size_t pair = firstPair; pair < pairs; ++pair) {
      softmaxBlock(scores + pair * kKeyBlock, keysSeen(pair), scale, blockMax[pair],
                   blockSum[pair]);
    }
    // Where rows see different numbers of keys they go in steps of about a register tile: the keys
    // that all of them see in one product, then the rest continues each row's chain.
    const bool whole = keysSeen(firstPair) == kKeyBlock;
    const size_t step = whole ? task.rowCount : maxSize(1, kStepPairs / group);
    for (size_t row = skipped; row < task.rowCount; row += step) {
      const size_t rowEnd = minSize(row + step, task.rowCount);
      const size_t common = keysSeen(row * group);
      Gemm value;
      value.m = (rowEnd - row) * group;
      value.n = hd;
      value.k = common;
      value.a = scores + row * group * kKeyBlock;
      value.am = kKeyBlock;
      value.b = page + valuesOffset(args.shape, task.kvHead);
      value.ldb = hd;
      value.c = target + row * group * hd;
      value.ldc = hd;
      gemmRows(value);
      value.m = group;
      value.finish = Finish::carry;
      value.b += common * hd;
      for (size_t later = row + 1; later < rowEnd; ++later) {
        value.k = keysSeen(later * group) - common;
        if (value.k == 0) continue;
        value.a = scores + later * group * kKeyBlock + common;
        value.c = target + later * group * hd;
        gemmRows(value);
      }
    }
    for (size_t pair = firstPair; pair < pairs; ++pair) {
      if (begin == 0) {
        maxima[pair] = blockMax[pair];
        sums[pair] = blockSum[pair];
        continue;
      }
      const float max = blockMax[pair] > maxima[pair] ? blockMax[pair] : maxima[pair];
      const V16 a = exp16(set1(maxima[pair] - max));
      const V16 b = exp16(set1(blockMax[pair] - max));
      sums[pair] = firstLane(fma(set1(sums[pair]), a, mul(set1(blockSum[pair]), b)));
      maxima[pair] = max;
      for (size_t c = 0; c < hd; c += 16) {
        const size_t lanes = minSize(16, hd - c);
        float* o = outputs + pair * hd + c;
        store(o, fma(load(o, lanes), a, mul(load(blockOutputs + pair * hd + c, lanes), b)), lanes);
      }
    }
  }
  for (size_t pair = 0; pair < pairs; ++pair) {
    const size_t row = rowBase + pair / group;
    float* o = args.o + row * args.ldo + headColumn + pair % group * hd;
    const V16 sum = set1(sums[pair]);
    for (size_t c = 0; c < hd; c += 16) {
      const size_t lanes = minSize(16, hd - c);
      store(o + c, div(load(outputs + pair * hd + c, lanes), sum), lanes);
    }
    if (args.lse) {
      args.lse[row * args.shape.queryHeads + task.kvHead * group + pair % group] =
          maxima[pair] + log1(sums[pair]);
    }
  }
}

}  // namespace

void attention(ThreadPool& pool, const AttentionArgs& args) {
  const size_t hd = args.shape.headDim;
  const size_t kvHeads = args.shape.kvHeads;
  const size_t group = args.shape.queryHeads / kvHeads;
  const size_t rowsPerTask = maxSize(1, kPairs / group);
  const size_t pairs = rowsPerTask * group;
  const size_t floats = pairs * (3 * hd + kKeyBlock + 4);
  pool.reserveScratch(floats * sizeof(float));
  size_t tasks = 0;
  for (size_t s = 0; s < args.sequenceCount; ++s) {
    tasks += divideUp(args.sequences[s].rowCount, rowsPerTask) * kvHeads;
  }
  pool.forEach(tasks, [&](size_t index, size_t worker) {
    size_t s = 0;
    for (;; ++s) {
      const size_t own = divideUp(args.sequences[s].rowCount, rowsPerTask) * kvHeads;
      if (index < own) break;
      index -= own;
    }
    // Later rows see more keys: the longest tasks first.
    const AttentionRows& sequence = args.sequences[s];
    const size_t blocks = divideUp(sequence.rowCount, rowsPerTask);
    const size_t block = blocks - 1 - index / kvHeads;
    const size_t firstRow = block * rowsPerTask;
    const Task task{&sequence, index % kvHeads, firstRow,
                    minSize(rowsPerTask, sequence.rowCount - firstRow)};
    attendRows(args, task, static_cast<float*>(pool.scratch(worker, floats * sizeof(float))));
  });
}

void writeKv(ThreadPool& pool, const KvWriteArgs& args) {
  const AttentionShape& shape = args.shape;
  const size_t hd = shape.headDim;
  const auto writeSequence = [&](size_t s, size_t) {
    const KvWriteRows& rows = args.sequences[s];
    for (size_t i = 0; i < rows.rowCount; ++i) {
      const size_t position = rows.positionBegin + i;
      float* page = rows.pages[position / kKeyBlock];
      const size_t slot = position % kKeyBlock;
      const float* k = args.k + (rows.rowBegin + i) * args.ldk;
      const float* v = args.v + (rows.rowBegin + i) * args.ldv;
      for (size_t kvHead = 0; kvHead < shape.kvHeads; ++kvHead) {
        float* keys = page + keysOffset(shape, kvHead) + slot;
        for (size_t c = 0; c < hd; ++c) keys[c * kKeyBlock] = k[kvHead * hd + c];
        __builtin_memcpy(page + valuesOffset(shape, kvHead) + slot * hd, v + kvHead * hd,
                         hd * sizeof(float));
      }
    }
  };
  pool.forEach(args.sequenceCount, writeSequence);
}

}  // namespace hotbed::kernels::HOTBED_PATH
