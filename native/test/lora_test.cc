#include "kernel_support.h"

using namespace hotbed;
using namespace hotbed::test;
using kernels::LoraBackwardArgs;
using kernels::LoraBackwardSegment;
using kernels::LoraForwardArgs;
using kernels::LoraForwardSegment;

namespace {

struct Adapter {
  size_t rank, dIn, dOut;
  float scale;
  Floats a, b, at, bt;

  Adapter(Random& random, size_t rank_, size_t dIn_, size_t dOut_, float scale_)
      : rank(rank_), dIn(dIn_), dOut(dOut_), scale(scale_) {
    a = randomMatrix(random, rank, dIn, dIn, 0.2f);
    b = randomMatrix(random, dOut, rank, rank, 0.2f);
    at = transposed(a, rank, dIn);
    bt = transposed(b, dOut, rank);
  }
  static Floats transposed(const Floats& m, size_t rows, size_t cols) {
    Floats t(m.size());
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < cols; ++c) t[c * rows + r] = m[r * cols + c];
    }
    return t;
  }
};

struct LoraCase {
  size_t dIn, dOut;
  std::vector<size_t> rowsOf;  // of each segment
  std::vector<size_t> rankOf;
  size_t gap = 0;  // rows without an adapter between segments
  size_t odd = 0;
};

// y, u, then du, dx, gradA and gradB of all adapters.
Floats runLora(const KernelTable& table, ThreadPool& pool, const LoraCase& c) {
  Random random(c.dIn * 131 + c.dOut + c.rowsOf.size());
  size_t rows = c.gap;
  size_t maxRank = 1;
  for (size_t i = 0; i < c.rowsOf.size(); ++i) {
    rows += c.rowsOf[i] + c.gap;
    maxRank = std::max(maxRank, c.rankOf[i]);
  }
  const size_t ldx = c.dIn + 2, ldy = c.dOut + 3, ldu = maxRank + 1;
  Floats x = randomMatrix(random, rows, c.dIn, ldx);
  Floats y = randomMatrix(random, rows, c.dOut, ldy);
  Floats dy = randomMatrix(random, rows, c.dOut, ldy);
  Floats dx = randomMatrix(random, rows, c.dIn, ldx);
  if (c.odd) sprinkle(random, x, c.odd);
  if (c.odd) sprinkle(random, dy, c.odd);
  Floats u(rows * ldu, -5.0f), du(rows * ldu, -6.0f);
  std::vector<Adapter> adapters;
  adapters.reserve(c.rowsOf.size());
  std::vector<Floats> gradA, gradB;
  std::vector<LoraForwardSegment> forward;
  std::vector<LoraBackwardSegment> backward;
  size_t row = c.gap;
  for (size_t i = 0; i < c.rowsOf.size(); ++i) {
    adapters.emplace_back(random, c.rankOf[i], c.dIn, c.dOut, 0.25f + random.uniform());
    gradA.push_back(randomMatrix(random, c.rankOf[i], c.dIn, c.dIn));
    gradB.push_back(randomMatrix(random, c.dOut, c.rankOf[i], c.rankOf[i]));
  }
  for (size_t i = 0; i < adapters.size(); ++i) {
    Adapter& adapter = adapters[i];
    LoraForwardSegment f;
    f.rowBegin = row;
    f.rowEnd = row + c.rowsOf[i];
    f.at = adapter.at.data();
    f.bt = adapter.bt.data();
    f.rank = adapter.rank;
    f.scale = adapter.scale;
    forward.push_back(f);
    LoraBackwardSegment b;
    b.rowBegin = f.rowBegin;
    b.rowEnd = f.rowEnd;
    b.a = adapter.a.data();
    b.b = adapter.b.data();
    b.rank = adapter.rank;
    b.scale = adapter.scale;
    if (i % 4 != 3) {  // some want no gradients
      b.gradA = gradA[i].data();
      b.gradB = gradB[i].data();
    }
    backward.push_back(b);
    row = f.rowEnd + c.gap;
  }
  LoraForwardArgs fa;
  fa.x = x.data();
  fa.ldx = ldx;
  fa.dIn = c.dIn;
  fa.y = y.data();
  fa.ldy = ldy;
  fa.dOut = c.dOut;
  fa.u = u.data();
  fa.ldu = ldu;
  fa.segments = forward.data();
  fa.segmentCount = forward.size();
  table.loraForward(pool, fa);
  LoraBackwardArgs ba;
  ba.x = x.data();
  ba.ldx = ldx;
  ba.dIn = c.dIn;
  ba.u = u.data();
  ba.ldu = ldu;
  ba.dy = dy.data();
  ba.lddy = ldy;
  ba.dOut = c.dOut;
  ba.du = du.data();
  ba.lddu = ldu;
  ba.dx = dx.data();
  ba.lddx = ldx;
  ba.segments = backward.data();
  ba.segmentCount = backward.size();
  table.loraBackward(pool, ba);
  Floats all = joined(joined(y, u), joined(du, dx));
  for (const Floats& g : gradA) all = joined(all, g);
  for (const Floats& g : gradB) all = joined(all, g);
  return all;
}

}  // namespace

TEST(lora_equals_the_reference_over_shapes_and_segments) {
  const LoraCase cases[] = {
      {8, 8, {1}, {1}},
      {40, 24, {3, 1, 0, 5}, {4, 8, 2, 16}, 1},
      {128, 384, {1, 1, 1, 1, 1, 1, 1, 1}, {8, 4, 16, 8, 32, 1, 3, 5}},
      {96, 70, {64, 33}, {8, 20}, 2},
      {33, 65, {150}, {17}},
      {20, 30, {200, 7, 90}, {256, 9, 8}},
      {64, 64, {40, 40}, {8, 8}, 0, 60},
      {64, 64, {}, {}, 3},
  };
  for (const LoraCase& c : cases) {
    checkAgainstReference(
        "lora " + std::to_string(c.dIn) + "x" + std::to_string(c.dOut) + ", " +
            std::to_string(c.rowsOf.size()) + " segments",
        [&](const KernelTable& table, ThreadPool& pool) { return runLora(table, pool, c); });
  }
}

TEST(lora_modules_of_one_input_equal_separate_calls) {
  // Decode rows of many adapters: every mix of ranks and rows, three modules at once.
  const size_t dIn = 40, dOuts[] = {33, 16, 70};
  const std::vector<size_t> rowsOf = {1, 1, 1, 3, 1, 0, 1, 1, 30, 1};
  const std::vector<size_t> rankOf = {8, 8, 8, 8, 4, 8, 16, 17, 8, 1};
  const size_t rows = 40, ldu = 20;
  const auto run = [&](const KernelTable& table, ThreadPool& pool, bool together) {
    Random random(17);
    const Floats x = randomMatrix(random, rows, dIn, dIn);
    std::vector<Adapter> adapters;
    adapters.reserve(3 * rowsOf.size());
    std::vector<Floats> y, u;
    std::vector<std::vector<LoraForwardSegment>> segments(3);
    std::vector<LoraForwardArgs> calls(3);
    for (size_t module = 0; module < 3; ++module) {
      y.push_back(randomMatrix(random, rows, dOuts[module], dOuts[module]));
      u.push_back(Floats(rows * ldu, kPoison));
      size_t row = 0;
      for (size_t i = 0; i < rowsOf.size(); ++i) {
        adapters.emplace_back(random, rankOf[i], dIn, dOuts[module], 0.5f + random.uniform());
        const Adapter& adapter = adapters.back();
        if (i % 4 != module) {  // not every adapter has every module
          segments[module].push_back({row, row + rowsOf[i], adapter.at.data(), adapter.bt.data(),
                                      adapter.rank, adapter.scale});
        }
        row += rowsOf[i];
      }
    }
    for (size_t module = 0; module < 3; ++module) {
      calls[module] = {x.data(),
                       dIn,
                       dIn,
                       y[module].data(),
                       dOuts[module],
                       dOuts[module],
                       u[module].data(),
                       ldu,
                       segments[module].data(),
                       segments[module].size()};
    }
    if (together) {
      table.loraForwardMany(pool, calls.data(), calls.size());
    } else {
      for (const LoraForwardArgs& call : calls) table.loraForward(pool, call);
    }
    Floats all;
    for (size_t module = 0; module < 3; ++module) all = joined(all, joined(y[module], u[module]));
    return all;
  };
  for (const bool together : {false, true}) {
    checkAgainstReference("lora modules", [&](const KernelTable& table, ThreadPool& pool) {
      return run(table, pool, together);
    });
  }
}

TEST(lora_gradients_do_not_depend_on_where_a_batch_is_cut) {
  // N6: one call with all rows, or several calls, or several segments of one call.
  const size_t rows = 90, dIn = 48, dOut = 80, rank = 8;
  for (Path path : fastPaths()) {
    const KernelTable& table = kernels::kernels(path);
    const auto run = [&](const std::vector<size_t>& cuts, bool oneCall) {
      Random random(11);
      Adapter adapter(random, rank, dIn, dOut, 2.0f);
      const Floats x = randomMatrix(random, rows, dIn, dIn);
      const Floats dy = randomMatrix(random, rows, dOut, dOut);
      const Floats u = randomMatrix(random, rows, rank, rank);
      Floats du(rows * rank), gradA(rank * dIn, 0.5f), gradB(dOut * rank, 0.25f);
      std::vector<LoraBackwardSegment> segments;
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        LoraBackwardSegment s;
        s.rowBegin = cuts[i];
        s.rowEnd = cuts[i + 1];
        s.a = adapter.a.data();
        s.b = adapter.b.data();
        s.rank = rank;
        s.scale = adapter.scale;
        s.gradA = gradA.data();
        s.gradB = gradB.data();
        segments.push_back(s);
      }
      LoraBackwardArgs args;
      args.x = x.data();
      args.ldx = dIn;
      args.dIn = dIn;
      args.u = u.data();
      args.ldu = rank;
      args.dy = dy.data();
      args.lddy = dOut;
      args.dOut = dOut;
      args.du = du.data();
      args.lddu = rank;
      args.segments = segments.data();
      args.segmentCount = segments.size();
      if (oneCall) {
        table.loraBackward(poolOf(5), args);
      } else {
        for (LoraBackwardSegment& segment : segments) {
          args.segments = &segment;
          args.segmentCount = 1;
          table.loraBackward(poolOf(2), args);
        }
      }
      return joined(gradA, gradB);
    };
    const Floats whole = run({0, rows}, true);
    checkSame(std::string("two segments, ") + table.name, run({0, 31, rows}, true), whole);
    checkSame(std::string("many segments, ") + table.name, run({0, 1, 2, 40, 41, rows}, true),
              whole);
    checkSame(std::string("many calls, ") + table.name, run({0, 13, 14, 77, rows}, false), whole);
  }
}

TEST(lora_init_equals_the_reference_and_stays_in_range) {
  for (size_t dIn : {1, 30, 128, 577}) {
    for (size_t rank : {1, 3, 8, 40}) {
      const auto run = [&](const KernelTable& table, ThreadPool& pool) {
        Floats a(rank * dIn, kPoison);
        kernels::LoraInitArgs args;
        args.a = a.data();
        args.rank = rank;
        args.dIn = dIn;
        args.layer = 3;
        args.moduleId = 5;
        args.seed = 0x123456789ABCDEFu;
        table.loraInit(pool, args);
        return a;
      };
      checkAgainstReference("lora init", run);
      const Floats a = run(kernels::kernels(Path::reference), poolOf(1));
      const float bound = 1.0f / std::sqrt(static_cast<float>(dIn));
      for (size_t i = 0; i < a.size(); ++i) CHECK(std::fabs(a[i]) <= bound);
    }
  }
}

TEST(transposes_of_many_matrices_equal_the_reference) {
  const size_t shapes[][2] = {{1, 1}, {8, 70}, {70, 8}, {3, 200}, {16, 16}, {333, 8}, {1, 65}};
  checkAgainstReference("transposes", [&](const KernelTable& table, ThreadPool& pool) {
    Random random(5);
    std::vector<Floats> from, to;
    std::vector<kernels::TransposeArgs> args;
    for (const auto& shape : shapes) {
      from.push_back(randomMatrix(random, shape[0], shape[1], shape[1]));
      to.push_back(Floats(from.back().size()));
      args.push_back({from.back().data(), shape[0], shape[1], to.back().data()});
    }
    table.transposeMany(pool, args.data(), args.size());
    Floats all;
    for (const Floats& t : to) all = joined(all, t);
    return all;
  });
}

TEST(transpose_equals_the_reference) {
  for (size_t rows : {1, 8, 70, 333}) {
    for (size_t cols : {1, 16, 65, 700}) {
      Random random(rows + cols);
      const Floats m = randomMatrix(random, rows, cols, cols);
      checkAgainstReference("transpose", [&](const KernelTable& table, ThreadPool& pool) {
        Floats t(m.size());
        table.transpose(pool, {m.data(), rows, cols, t.data()});
        return t;
      });
    }
  }
}
