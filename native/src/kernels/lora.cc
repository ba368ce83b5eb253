#include "kernels/path.h"
//
#include "kernels/gemm.h"
#include "kernels/path_table.h"
#include "kernels/philox.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

constexpr size_t kRowsPerTask = 28;     // two register tiles of the widest path
constexpr size_t kTurnedRows = 32;      // fewer rows do not pay for turning a block of gradB
constexpr size_t kColumnsPerTask = 64;  // of a gradient tensor

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

void loraForward(ThreadPool& pool, const LoraForwardArgs& args) {
  size_t rank = 0;
  for (size_t s = 0; s < args.segmentCount; ++s) rank = maxSize(rank, args.segments[s].rank);
  forEachRowBlock(pool, args.segments, args.segmentCount, rank * (args.dIn + args.dOut),
                  [&](const LoraForwardSegment& segment, size_t begin, size_t end) {
                    FloatEnvironment environment;
                    Gemm shrink;
                    shrink.m = end - begin;
                    shrink.n = segment.rank;
                    shrink.k = args.dIn;
                    shrink.a = args.x + begin * args.ldx;
                    shrink.am = args.ldx;
                    shrink.b = segment.at;
                    shrink.ldb = segment.rank;
                    shrink.c = args.u + begin * args.ldu;
                    shrink.ldc = args.ldu;
                    gemmRows(shrink);
                    Gemm expand;
                    expand.m = end - begin;
                    expand.n = args.dOut;
                    expand.k = segment.rank;
                    expand.a = args.u + begin * args.ldu;
                    expand.am = args.ldu;
                    expand.b = segment.bt;
                    expand.ldb = args.dOut;
                    expand.c = args.y + begin * args.ldy;
                    expand.ldc = args.ldy;
                    expand.finish = Finish::scaledAdd;
                    expand.s = segment.scale;
                    gemmRows(expand);
                  });
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
  const size_t blocksA = divideUp(args.dIn, kColumnsPerTask);
  const size_t blocksB = divideUp(args.dOut, kColumnsPerTask);
  const size_t turnedBytes = kColumnsPerTask * rank * sizeof(float);
  pool.reserveScratch(turnedBytes);
  const auto body = [&](size_t task, size_t worker) {
    const bool isA = task < blocksA;
    const size_t begin = (isA ? task : task - blocksA) * kColumnsPerTask;
    const size_t width = minSize(kColumnsPerTask, (isA ? args.dIn : args.dOut) - begin);
    for (size_t s = 0; s < args.segmentCount; ++s) {
      const LoraBackwardSegment& segment = args.segments[s];
      if (!segment.gradA || segment.rowBegin == segment.rowEnd) continue;
      Gemm g;
      g.k = segment.rowEnd - segment.rowBegin;
      g.am = 1;
      g.finish = Finish::carry;
      if (isA) {
        g.m = segment.rank;
        g.n = width;
        g.a = args.du + segment.rowBegin * args.lddu;
        g.ak = args.lddu;
        g.b = args.x + segment.rowBegin * args.ldx + begin;
        g.ldb = args.ldx;
        g.c = segment.gradA + begin;
        g.ldc = args.dIn;
        gemmRows(g);
      } else {
        g.m = width;
        g.n = segment.rank;
        g.a = args.dy + segment.rowBegin * args.lddy + begin;
        g.ak = args.lddy;
        g.b = su + segment.rowBegin * rank;
        g.ldb = rank;
        g.c = segment.gradB + begin * segment.rank;
        g.ldc = segment.rank;
        if (segment.rank % 16 == 0 || g.k < kTurnedRows) {
          gemmRows(g);
          continue;
        }
        // With B's rows as lanes (contiguous in dy) other ranks fill them too; the block of the
        // gradient is turned on the way in and out.
        float* turned = static_cast<float*>(pool.scratch(worker, turnedBytes));
        transposeBlock(g.c, segment.rank, width, segment.rank, turned, width);
        Gemm t = g;
        t.m = segment.rank;
        t.n = width;
        t.a = g.b;
        t.ak = rank;
        t.b = g.a;
        t.ldb = args.lddy;
        t.c = turned;
        t.ldc = width;
        gemmRows(t);
        transposeBlock(turned, width, segment.rank, width, g.c, segment.rank);
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
    for (size_t element = chunk * kChunk; element < end; element += 4) {
      uint32_t c[4] = {static_cast<uint32_t>(element >> 2), args.layer, args.moduleId, kDomainInit};
      philox1(args.seed, c);
      for (size_t w = 0; w < 4 && element + w < end; ++w) {
        args.a[element + w] = (2.0f * uniformOf(c[w]) - 1.0f) / root;
      }
    }
  });
}

void transpose(ThreadPool& pool, const TransposeArgs& args) {
  constexpr size_t kBlock = 64;
  const size_t blocks = divideUp(args.cols, kBlock);
  const auto body = [&](size_t block, size_t) {
    const size_t begin = block * kBlock;
    const size_t width = minSize(kBlock, args.cols - begin);
    for (size_t row = 0; row < args.rows; row += kBlock) {
      transposeBlock(args.src + row * args.cols + begin, args.cols,
                     minSize(kBlock, args.rows - row), width, args.dst + begin * args.rows + row,
                     args.rows);
    }
  };
  if (args.rows * args.cols < kWorthSharing) {
    for (size_t block = 0; block < blocks; ++block) body(block, 0);
  } else {
    pool.forEach(blocks, body);
  }
}

}  // namespace hotbed::kernels::HOTBED_PATH
