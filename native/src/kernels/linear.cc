#include "kernels/path.h"
//
#include "kernels/gemm.h"
#include "kernels/path_table.h"
#include "kernels/weight_product.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

// Rows that share one reading of the panels; 192 rows of 1536 floats still fit a 2 MiB L2 cache.
constexpr size_t kRowBlock = 192;
constexpr size_t kFewestRows = 28;  // two register tiles

// One panel of 32 columns from a matrix whose element (column, k) is w[column*columnStride +
// k*kStride], in blocks of 64 k so that the scattered side stays in the L1 cache.
void packPanel(const float* w, size_t columnStride, size_t kStride, size_t columns, size_t k,
               float* panel) {
  for (size_t begin = 0; begin < k; begin += 64) {
    const size_t end = minSize(begin + 64, k);
    for (size_t c = 0; c < kPanelWidth; ++c) {
      for (size_t i = begin; i < end; ++i) {
        panel[i * kPanelWidth + c] = c < columns ? w[c * columnStride + i * kStride] : 0.0f;
      }
    }
  }
}

void pack(ThreadPool& pool, const float* w, size_t columnStride, size_t kStride, size_t columns,
          size_t k, float* panels) {
  pool.forEach(divideUp(columns, kPanelWidth), [=](size_t p, size_t) {
    const size_t first = p * kPanelWidth;
    packPanel(w + first * columnStride, columnStride, kStride,
              minSize(kPanelWidth, columns - first), k, panels + first * k);
  });
}

}  // namespace

void packLinear(ThreadPool& pool, const PackLinearArgs& args) {
  pack(pool, args.w, args.ldw, 1, args.dOut, args.dIn, args.panels);
}

void packLinearTransposed(ThreadPool& pool, const PackLinearArgs& args) {
  pack(pool, args.w, 1, args.ldw, args.dIn, args.dOut, args.panels);
}

bool narrowPanels(ThreadPool& pool, const float* panels, size_t floats, uint32_t* out) {
  constexpr size_t kRowsPerTask = 4096;
  const size_t rows = floats / kPanelWidth;
  // Set by any task, to the same value: the order does not matter.
  bool* inexact = static_cast<bool*>(pool.shared(sizeof(bool)));
  *inexact = false;
  pool.forEach(divideUp(rows, kRowsPerTask), [=](size_t task, size_t) {
    uint32_t rest = 0;
    const size_t end = minSize((task + 1) * kRowsPerTask, rows);
    for (size_t row = task * kRowsPerTask; row < end; ++row) {
      uint32_t bits[kPanelWidth];
      __builtin_memcpy(bits, panels + row * kPanelWidth, sizeof bits);
      for (size_t l = 0; l < kPanelWidth / 2; ++l) {
        rest |= bits[l] | bits[16 + l];
        out[row * 16 + l] = bits[l] >> 16 | (bits[16 + l] & 0xFFFF0000u);
      }
    }
    if (rest & 0xFFFFu) __atomic_store_n(inexact, true, __ATOMIC_RELAXED);
  });
  return !*inexact;
}

bool pairPanels(ThreadPool& pool, const float* panels, size_t dOut, size_t dIn, uint32_t* out) {
  const size_t pairs = divideUp(dIn, 2);
  bool* inexact = static_cast<bool*>(pool.shared(sizeof(bool)));
  *inexact = false;
  pool.forEach(divideUp(dOut, kPanelWidth), [=](size_t panel, size_t) {
    const float* from = panels + panel * dIn * kPanelWidth;
    uint32_t* to = out + panel * pairs * kPanelWidth;
    uint32_t rest = 0;
    for (size_t i = 0; i < pairs; ++i) {
      uint32_t even[kPanelWidth];
      uint32_t odd[kPanelWidth] = {};
      __builtin_memcpy(even, from + 2 * i * kPanelWidth, sizeof even);
      if (2 * i + 1 < dIn) __builtin_memcpy(odd, from + (2 * i + 1) * kPanelWidth, sizeof odd);
      for (size_t c = 0; c < kPanelWidth; ++c) {
        rest |= even[c] | odd[c];
        to[i * kPanelWidth + c] = even[c] >> 16 | (odd[c] & 0xFFFF0000u);
      }
    }
    if (rest & 0xFFFFu) __atomic_store_n(inexact, true, __ATOMIC_RELAXED);
  });
  return !*inexact;
}

namespace {

struct Split {
  size_t rowBlocks;
  size_t columnBlocks;
};

// Cuts a layer into tasks: of all cuts the one whose slowest thread has the least to do when all
// run at one speed; of those that are nearly as good, the one with most tasks up to about four for
// each thread, so that a thread that is held up is helped. No task is below a few microseconds.
Split splitOf(const LinearArgs& args, size_t groups, size_t threads) {
  const size_t fewest = divideUp(args.rows, kRowBlock);
  Split best{fewest, 1};
  if (threads == 1) return best;
  // Few rows wait for the weights rather than for the arithmetic.
  const size_t effort = maxSize(args.rows, 8) * args.weight.dOut * args.weight.dIn;
  const size_t worth = maxSize(1, effort / kWorthSharing);
  const size_t wanted = 4 * threads;
  const size_t most = maxSize(fewest, divideUp(args.rows, kFewestRows));
  size_t bestCost = SIZE_MAX;
  for (size_t rowBlocks = fewest; rowBlocks <= most; ++rowBlocks) {
    const size_t rows = divideUp(args.rows, rowBlocks);
    for (size_t columnBlocks = 1; columnBlocks <= groups; ++columnBlocks) {
      const size_t tasks = rowBlocks * columnBlocks;
      if (tasks > 1 && (tasks > worth || tasks > 2 * maxSize(wanted, fewest))) break;
      // 1/64 of slack for each halving of the number of tasks below the wanted one.
      const size_t rounds = divideUp(tasks, threads);
      size_t cost = rounds * rows * divideUp(groups, columnBlocks) * 64;
      for (size_t n = tasks; n < wanted; n *= 2) cost += cost / 64;
      if (cost >= bestCost) continue;
      bestCost = cost;
      best = {rowBlocks, columnBlocks};
    }
    // Wider blocks of rows read the panels fewer times.
    if (bestCost <= divideUp(args.rows * groups, threads) * 66) break;
  }
  return best;
}

}  // namespace

void linear(ThreadPool& pool, const LinearArgs& args) {
  const PackedLinear& w = args.weight;
  const size_t panels = divideUp(w.dOut, kPanelWidth);
  if (args.rows == 0 || panels == 0) return;
  const size_t groupPanels = args.rows <= 2 ? 4 : args.rows <= 3 ? 2 : 1;
  const size_t groups = divideUp(panels, groupPanels);
  const Split split = splitOf(args, groups, pool.threads());
  const size_t rowBlocks = split.rowBlocks;
  const size_t columnBlocks = split.columnBlocks;
  const size_t columns = divideUp(w.dOut, 16);
  const size_t tasks = rowBlocks * columnBlocks;
  size_t fetchBytes = 0;
  for (size_t i = 0; i < args.fetchCount; ++i) fetchBytes += args.fetch[i].bytes;
  const size_t words = roundedWords(w, args.rows);
  uint32_t* rounded =
      words == 0 ? nullptr : static_cast<uint32_t*>(pool.shared(words * sizeof(uint32_t)));
  const WeightRows x = weightRows(pool, args.x, args.ldx, args.rows, w, rounded);
  pool.forEach(tasks, [&](size_t task, size_t) {
    const size_t rowBlock = task / columnBlocks;
    const size_t columnBlock = task % columnBlocks;
    const size_t rowBegin = args.rows * rowBlock / rowBlocks;
    const size_t rowEnd = args.rows * (rowBlock + 1) / rowBlocks;
    FetchCursor fetch;
    if (fetchBytes != 0) {
      const size_t begin = fetchBytes * task / tasks;
      fetch = {args.fetch, args.fetchCount, 0, begin, fetchBytes * (task + 1) / tasks - begin};
    }
    const size_t groupColumns = 2 * groupPanels;
    const size_t columnBegin = minSize(columns, groups * columnBlock / columnBlocks * groupColumns);
    const size_t columnEnd =
        minSize(columns, groups * (columnBlock + 1) / columnBlocks * groupColumns);
    const WeightProduct product{x,
                                w,
                                rowBegin,
                                rowEnd,
                                0,
                                w.dIn,
                                0,
                                w.dOut,
                                args.y + rowBegin * args.ldy,
                                args.ldy,
                                w.bias ? Finish::bias : Finish::store,
                                fetchBytes != 0 ? &fetch : nullptr};
    product.run(columnBegin, columnEnd);
  });
}

}  // namespace hotbed::kernels::HOTBED_PATH
