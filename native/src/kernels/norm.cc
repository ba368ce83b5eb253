#include "kernels/path.h"
//
#include "kernels/path_table.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

// body(j, lanes) over [0, n) in runs of 16.
template <class Body>
HOTBED_INLINE void forEachRun(size_t n, const Body& body) {
  size_t j = 0;
  for (; j + 16 <= n; j += 16) body(j, AllLanes{});
  if (j < n) body(j, n - j);
}

HOTBED_INLINE V16 keep(AllLanes, V16 value, V16 /*otherwise*/) { return value; }
HOTBED_INLINE V16 keep(size_t lanes, V16 value, V16 otherwise) {
  return select(firstLanes(lanes), value, otherwise);
}

float inverseRms(const float* x, size_t n, float eps) {
  V16 sum = zero();
  forEachRun(n, [&](size_t j, auto lanes) {
    const V16 v = load(x + j, lanes);
    sum = keep(lanes, fma(v, v, sum), sum);
  });
  const float mean = sumTree(sum) / static_cast<float>(n);
  return 1.0f / firstLane(sqrt(set1(mean + eps)));
}

void normalise(const float* x, const float* w, size_t n, float eps, float* y) {
  const V16 r = set1(inverseRms(x, n, eps));
  forEachRun(n, [&](size_t j, auto lanes) {
    store(y + j, mul(mul(load(x + j, lanes), r), load(w + j, lanes)), lanes);
  });
}

void normaliseBackward(const float* x, const float* w, const float* dy, size_t n, float eps,
                       float* dx) {
  const float r = inverseRms(x, n, eps);
  V16 sum = zero();
  forEachRun(n, [&](size_t j, auto lanes) {
    const V16 gw = mul(load(dy + j, lanes), load(w + j, lanes));
    sum = keep(lanes, fma(gw, load(x + j, lanes), sum), sum);
  });
  const float t = sumTree(sum);
  const V16 factor = set1((((r * r) * r) * t) / static_cast<float>(n));
  const V16 r16 = set1(r);
  forEachRun(n, [&](size_t j, auto lanes) {
    const V16 gw = mul(load(dy + j, lanes), load(w + j, lanes));
    store(dx + j, fma(neg(load(x + j, lanes)), factor, mul(r16, gw)), lanes);
  });
}

// body(row) in chunks of rows that are worth a task.
template <class Body>
void forEachRow(ThreadPool& pool, size_t rows, size_t workPerRow, const Body& body) {
  const size_t perTask = maxSize(1, 65536 / maxSize(1, workPerRow));
  pool.forEach(divideUp(rows, perTask), [&](size_t task, size_t) {
    const size_t end = minSize((task + 1) * perTask, rows);
    for (size_t row = task * perTask; row < end; ++row) body(row);
  });
}

}  // namespace

void rmsNorm(ThreadPool& pool, const RmsNormArgs& args) {
  forEachRow(pool, args.rows, 4 * args.groups * args.n, [&](size_t row) {
    for (size_t group = 0; group < args.groups; ++group) {
      normalise(args.x + row * args.ldx + group * args.n, args.w, args.n, args.eps,
                args.y + row * args.ldy + group * args.n);
    }
  });
}

void rmsNormBackward(ThreadPool& pool, const RmsNormBackwardArgs& args) {
  forEachRow(pool, args.rows, 8 * args.groups * args.n, [&](size_t row) {
    for (size_t group = 0; group < args.groups; ++group) {
      normaliseBackward(args.x + row * args.ldx + group * args.n, args.w,
                        args.dy + row * args.lddy + group * args.n, args.n, args.eps,
                        args.dx + row * args.lddx + group * args.n);
    }
  });
}

}  // namespace hotbed::kernels::HOTBED_PATH
