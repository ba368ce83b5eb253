#include "kernels/path.h"
//
#include "kernels/path_table.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

// body(row, column, lanes) over [rows, n] in runs of 16, in chunks of rows worth a task.
template <class Body>
void forEachLane(ThreadPool& pool, size_t rows, size_t n, size_t workPerElement, const Body& body) {
  if (n == 0) return;
  const size_t perTask = maxSize(1, 65536 / (n * workPerElement));
  pool.forEach(divideUp(rows, perTask), [&](size_t task, size_t) {
    const size_t end = minSize((task + 1) * perTask, rows);
    for (size_t row = task * perTask; row < end; ++row) {
      size_t j = 0;
      for (; j + 16 <= n; j += 16) body(row, j, AllLanes{});
      if (j < n) body(row, j, n - j);
    }
  });
}

HOTBED_INLINE V16 sigmoid(V16 g) { return div(set1(1.0f), add(set1(1.0f), exp16(neg(g)))); }

}  // namespace

void swiglu(ThreadPool& pool, const SwigluArgs& args) {
  forEachLane(pool, args.rows, args.n, 4, [&](size_t row, size_t j, auto lanes) {
    const V16 g = load(args.gate + row * args.ldin + j, lanes);
    const V16 up = load(args.up + row * args.ldin + j, lanes);
    const V16 a = mul(g, sigmoid(g));
    store(args.h + row * args.ldh + j, mul(a, up), lanes);
  });
}

void swigluBackward(ThreadPool& pool, const SwigluBackwardArgs& args) {
  forEachLane(pool, args.rows, args.n, 6, [&](size_t row, size_t j, auto lanes) {
    const V16 g = load(args.gate + row * args.ldin + j, lanes);
    const V16 up = load(args.up + row * args.ldin + j, lanes);
    const V16 dh = load(args.dh + row * args.lddh + j, lanes);
    const V16 one = set1(1.0f);
    const V16 sg = sigmoid(g);
    const V16 a = mul(g, sg);
    const V16 slope = mul(sg, fma(g, sub(one, sg), one));
    store(args.dup + row * args.ldout + j, mul(dh, a), lanes);
    store(args.dgate + row * args.ldout + j, mul(mul(dh, up), slope), lanes);
  });
}

void add(ThreadPool& pool, const AddArgs& args) {
  forEachLane(pool, args.rows, args.n, 1, [&](size_t row, size_t j, auto lanes) {
    const V16 a = load(args.a + row * args.lda + j, lanes);
    const V16 b = load(args.b + row * args.ldb + j, lanes);
    store(args.y + row * args.ldy + j, add(a, b), lanes);
  });
}

}  // namespace hotbed::kernels::HOTBED_PATH
