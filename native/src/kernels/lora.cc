#include "kernels/path.h"
//
#include "kernels/gemm.h"
#include "kernels/lora_gradient.h"
#include "kernels/path_table.h"
#include "kernels/philox.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

constexpr size_t kRowsPerTask = 28;  // two register tiles of the widest path

// Runs body(segment, rowBegin, rowEnd) over all segments' rows, cut into blocks; as one task when
// the work is small.
template <class Segment, class Body>
void forEachRowBlock(ThreadPool& pool, const Segment* segments, size_t count, size_t workPerRow,
                     const Body& body) {
  size_t blocks = 0;
  size_t rows = 0;
  for (size_t s = 0; s < count; ++s) {
    rows += segments[s].rowEnd - segments[s].rowBegin;
    blocks += divideUp(segments[s].rowEnd - segments[s].rowBegin, kRowsPerTask);
  }
  if (rows * workPerRow < kWorthSharing) {
    for (size_t s = 0; s < count; ++s) {
      if (segments[s].rowBegin < segments[s].rowEnd) {
        body(segments[s], segments[s].rowBegin, segments[s].rowEnd);
      }
    }
    return;
  }
  pool.forEach(blocks, [&](size_t task, size_t) {
    size_t s = 0;
    for (;; ++s) {
      const size_t own = divideUp(segments[s].rowEnd - segments[s].rowBegin, kRowsPerTask);
      if (task < own) break;
      task -= own;
    }
    const size_t begin = segments[s].rowBegin + task * kRowsPerTask;
    body(segments[s], begin, minSize(begin + kRowsPerTask, segments[s].rowEnd));
  });
}

}  // namespace

namespace {

// Rows [begin, end) of one segment of one call.
struct ForwardUnit {
  const LoraForwardArgs* call;
  const LoraForwardSegment* segment;
  size_t begin;
  size_t end;
};

// A single row and a small rank make one chain of 16 lanes, which waits for its own last step; four
// of them side by side do not. They may belong to any modules and adapters of equal dIn.
constexpr size_t kSideBySide = 4;

bool isNarrow(const ForwardUnit& unit) {
  return unit.end - unit.begin == 1 && unit.segment->rank <= 16;
}

template <size_t N, bool kEight>
HOTBED_INLINE void shrinkSideBySide(const ForwardUnit* units) {
  V16 u[N];
  const float* x[N];
  const float* at[N];
  size_t rank[N];
#pragma GCC unroll 4
  for (size_t i = 0; i < N; ++i) {
    u[i] = zero();
    x[i] = units[i].call->x + units[i].begin * units[i].call->ldx;
    at[i] = units[i].segment->at;
    rank[i] = units[i].segment->rank;
  }
  const size_t dIn = units[0].call->dIn;
  for (size_t k = 0; k < dIn; ++k) {
#pragma GCC unroll 4
    for (size_t i = 0; i < N; ++i) {
      const V16 a = kEight ? load8(at[i]) : load(at[i], rank[i]);
      u[i] = fma(set1(x[i][k]), a, u[i]);
      at[i] += kEight ? 8 : rank[i];
    }
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < N; ++i) {
    store(units[i].call->u + units[i].begin * units[i].call->ldu, u[i], rank[i]);
  }
}

template <size_t N>
void shrinkNarrow(const ForwardUnit* units) {
  bool eight = true;
  for (size_t i = 0; i < N; ++i) eight = eight && units[i].segment->rank == 8;
  if (eight) {
    shrinkSideBySide<N, true>(units);
  } else {
    shrinkSideBySide<N, false>(units);
  }
}

void shrink(const ForwardUnit& unit) {
  const LoraForwardArgs& call = *unit.call;
  Gemm g;
  g.m = unit.end - unit.begin;
  g.n = unit.segment->rank;
  g.k = call.dIn;
  g.a = call.x + unit.begin * call.ldx;
  g.am = call.ldx;
  g.b = unit.segment->at;
  g.ldb = unit.segment->rank;
  g.c = call.u + unit.begin * call.ldu;
  g.ldc = call.ldu;
  gemmRows(g);
}

void expand(const ForwardUnit& unit) {
  const LoraForwardArgs& call = *unit.call;
  Gemm g;
  g.m = unit.end - unit.begin;
  g.n = call.dOut;
  g.k = unit.segment->rank;
  g.a = call.u + unit.begin * call.ldu;
  g.am = call.ldu;
  g.b = unit.segment->bt;
  g.ldb = call.dOut;
  g.c = call.y + unit.begin * call.ldy;
  g.ldc = call.ldy;
  g.finish = Finish::scaledAdd;
  g.s = unit.segment->scale;
  gemmRows(g);
}

// Up to kSideBySide units; more than one only where all are narrow.
void forwardUnits(const ForwardUnit* units, size_t count) {
  FloatEnvironment environment;
  if (!isNarrow(units[0])) {
    shrink(units[0]);
  } else if (count == 4) {
    shrinkNarrow<4>(units);
  } else if (count == 3) {
    shrinkNarrow<3>(units);
  } else if (count == 2) {
    shrinkNarrow<2>(units);
  } else {
    shrinkNarrow<1>(units);
  }
  for (size_t i = 0; i < count; ++i) expand(units[i]);
}

}  // namespace

void loraForward(ThreadPool& pool, const LoraForwardArgs& args) { loraForwardMany(pool, &args, 1); }

void loraForwardMany(ThreadPool& pool, const LoraForwardArgs* calls, size_t count) {
  size_t most = 0;
  size_t work = 0;
  for (size_t i = 0; i < count; ++i) {
    for (size_t s = 0; s < calls[i].segmentCount; ++s) {
      const LoraForwardSegment& segment = calls[i].segments[s];
      const size_t rows = segment.rowEnd - segment.rowBegin;
      most += divideUp(rows, kRowsPerTask);
      work += rows * segment.rank * (calls[i].dIn + calls[i].dOut);
    }
  }
  if (most == 0) return;
  // The units, then where each task's begin.
  ForwardUnit* units = static_cast<ForwardUnit*>(
      pool.shared(most * sizeof(ForwardUnit) + (most + 1) * sizeof(size_t)));
  size_t* taskBegin = reinterpret_cast<size_t*>(units + most);
  size_t unitCount = 0;
  size_t taskCount = 0;
  for (size_t i = 0; i < count; ++i) {
    for (size_t s = 0; s < calls[i].segmentCount; ++s) {
      const LoraForwardSegment& segment = calls[i].segments[s];
      for (size_t row = segment.rowBegin; row < segment.rowEnd; row += kRowsPerTask) {
        const ForwardUnit unit{&calls[i], &segment, row,
                               minSize(row + kRowsPerTask, segment.rowEnd)};
        const bool joins = taskCount > 0 && isNarrow(unit) && isNarrow(units[unitCount - 1]) &&
                           unitCount - taskBegin[taskCount - 1] < kSideBySide;
        if (!joins) taskBegin[taskCount++] = unitCount;
        units[unitCount++] = unit;
      }
    }
  }
  taskBegin[taskCount] = unitCount;
  const auto body = [=](size_t task, size_t) {
    forwardUnits(units + taskBegin[task], taskBegin[task + 1] - taskBegin[task]);
  };
  if (work < kWorthSharing) {
    for (size_t task = 0; task < taskCount; ++task) body(task, 0);
  } else {
    pool.forEach(taskCount, body);
  }
}

void loraBackward(ThreadPool& pool, const LoraBackwardArgs& args) {
  size_t rank = 0;
  size_t rows = 0;
  bool gradients = false;
  for (size_t s = 0; s < args.segmentCount; ++s) {
    rank = maxSize(rank, args.segments[s].rank);
    rows = maxSize(rows, args.segments[s].rowEnd);
    gradients |= args.segments[s].gradA != nullptr;
  }
  // s*u of every row, for dB.
  float* su = gradients ? static_cast<float*>(pool.shared(rows * rank * sizeof(float))) : nullptr;
  forEachRowBlock(pool, args.segments, args.segmentCount, rank * (args.dIn + args.dOut),
                  [&](const LoraBackwardSegment& segment, size_t begin, size_t end) {
                    FloatEnvironment environment;
                    Gemm shrink;
                    shrink.m = end - begin;
                    shrink.n = segment.rank;
                    shrink.k = args.dOut;
                    shrink.a = args.dy + begin * args.lddy;
                    shrink.am = args.lddy;
                    shrink.b = segment.b;
                    shrink.ldb = segment.rank;
                    shrink.c = args.du + begin * args.lddu;
                    shrink.ldc = args.lddu;
                    shrink.finish = Finish::scale;
                    shrink.s = segment.scale;
                    gemmRows(shrink);
                    if (args.dx) {
                      Gemm expand;
                      expand.m = end - begin;
                      expand.n = args.dIn;
                      expand.k = segment.rank;
                      expand.a = args.du + begin * args.lddu;
                      expand.am = args.lddu;
                      expand.b = segment.a;
                      expand.ldb = args.dIn;
                      expand.c = args.dx + begin * args.lddx;
                      expand.ldc = args.lddx;
                      expand.finish = Finish::addTo;
                      gemmRows(expand);
                    }
                    if (!segment.gradA) return;
                    const V16 scale = set1(segment.scale);
                    for (size_t row = begin; row < end; ++row) {
                      for (size_t j = 0; j < segment.rank; j += 16) {
                        const size_t lanes = minSize(16, segment.rank - j);
                        store(su + row * rank + j,
                              mul(scale, load(args.u + row * args.ldu + j, lanes)), lanes);
                      }
                    }
                  });
  if (!gradients) return;
  // One owner per block of a tensor's columns (A) or rows (B); it takes the segments in order, so
  // segments of the same adapter continue one chain.
  const size_t blocksA = divideUp(args.dIn, kGradientColumns);
  const size_t blocksB = divideUp(args.dOut, kGradientColumns);
  const size_t turnedBytes = kGradientColumns * rank * sizeof(float);
  pool.reserveScratch(turnedBytes);
  const auto body = [&](size_t task, size_t worker) {
    const bool isA = task < blocksA;
    const size_t begin = (isA ? task : task - blocksA) * kGradientColumns;
    const size_t width = minSize(kGradientColumns, (isA ? args.dIn : args.dOut) - begin);
    for (size_t s = 0; s < args.segmentCount; ++s) {
      const LoraBackwardSegment& segment = args.segments[s];
      if (!segment.gradA || segment.rowBegin == segment.rowEnd) continue;
      const size_t count = segment.rowEnd - segment.rowBegin;
      if (isA) {
        carryGradA(count, segment.rank, width, args.du + segment.rowBegin * args.lddu, args.lddu,
                   args.x + segment.rowBegin * args.ldx + begin, args.ldx, segment.gradA + begin,
                   args.dIn);
      } else {
        carryGradB(count, segment.rank, width, args.dy + segment.rowBegin * args.lddy + begin,
                   args.lddy, su + segment.rowBegin * rank, rank,
                   segment.gradB + begin * segment.rank,
                   static_cast<float*>(pool.scratch(worker, turnedBytes)));
      }
    }
  };
  if (rows * rank * (args.dIn + args.dOut) < kWorthSharing) {
    FloatEnvironment environment;
    for (size_t task = 0; task < blocksA + blocksB; ++task) body(task, 0);
  } else {
    pool.forEach(blocksA + blocksB, body);
  }
}

void loraInit(ThreadPool& pool, const LoraInitArgs& args) {
  const float root = firstLane(sqrt(set1(static_cast<float>(args.dIn))));
  const size_t size = args.rank * args.dIn;
  constexpr size_t kChunk = 4096;
  pool.forEach(divideUp(size, kChunk), [&](size_t chunk, size_t) {
    const size_t end = minSize((chunk + 1) * kChunk, size);
    for (size_t element = chunk * kChunk; element < end; element += 64) {
      uint32_t words[64];
      philox16(args.seed, static_cast<uint32_t>(element >> 2), args.layer, args.moduleId,
               kDomainInit, words);
      for (size_t w = 0; w < 64 && element + w < end; ++w) {
        args.a[element + w] = (2.0f * uniformOf(words[w]) - 1.0f) / root;
      }
    }
  });
}

void transpose(ThreadPool& pool, const TransposeArgs& args) { transposeMany(pool, &args, 1); }

void transposeMany(ThreadPool& pool, const TransposeArgs* matrices, size_t count) {
  constexpr size_t kBlock = 64;
  const auto blocksOf = [](const TransposeArgs& m) { return divideUp(m.cols, kBlock); };
  const auto block = [](const TransposeArgs& m, size_t index) {
    const size_t begin = index * kBlock;
    const size_t width = minSize(kBlock, m.cols - begin);
    for (size_t row = 0; row < m.rows; row += kBlock) {
      transposeBlock(m.src + row * m.cols + begin, m.cols, minSize(kBlock, m.rows - row), width,
                     m.dst + begin * m.rows + row, m.rows);
    }
  };
  if (count == 1 && matrices->rows * matrices->cols >= kWorthSharing) {
    pool.forEach(blocksOf(*matrices), [&](size_t index, size_t) { block(*matrices, index); });
    return;
  }
  // A few matrices a task: those of adapters are small.
  constexpr size_t kMatrices = 4;
  pool.forEach(divideUp(count, kMatrices), [&](size_t task, size_t) {
    const size_t end = minSize((task + 1) * kMatrices, count);
    for (size_t m = task * kMatrices; m < end; ++m) {
      for (size_t index = 0; index < blocksOf(matrices[m]); ++index) block(matrices[m], index);
    }
  });
}

}  // namespace hotbed::kernels::HOTBED_PATH
