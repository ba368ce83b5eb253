#include "kernel_support.h"

using namespace hotbed;
using namespace hotbed::test;

TEST(rms_norm_equals_the_reference_forward_and_backward) {
  struct Case {
    size_t rows, groups, n, odd;
    bool inPlace;
  };
  const Case cases[] = {{1, 1, 1, 0, false},    {3, 1, 15, 0, true},    {5, 1, 16, 0, false},
                        {2, 1, 17, 0, false},   {9, 3, 64, 0, true},    {200, 9, 24, 0, false},
                        {300, 1, 576, 0, true}, {4, 2, 100, 30, false}, {0, 1, 8, 0, false}};
  for (const Case& c : cases) {
    checkAgainstReference("rmsNorm " + std::to_string(c.rows) + "x" + std::to_string(c.groups) +
                              "x" + std::to_string(c.n),
                          [&](const KernelTable& table, ThreadPool& pool) {
                            Random random(c.n);
                            const size_t width = c.groups * c.n;
                            const size_t ld = width + 4;
                            Floats x = randomMatrix(random, c.rows, width, ld);
                            Floats dy = randomMatrix(random, c.rows, width, ld);
                            const Floats w = randomMatrix(random, 1, c.n, c.n);
                            if (c.odd) sprinkle(random, x, c.odd);
                            Floats y(c.rows * ld, 3.0f);
                            Floats dx(c.rows * ld, 4.0f);
                            kernels::RmsNormBackwardArgs back;
                            back.x = x.data();
                            back.ldx = ld;
                            back.rows = c.rows;
                            back.groups = c.groups;
                            back.n = c.n;
                            back.w = w.data();
                            back.eps = 1e-5f;
                            back.dy = dy.data();
                            back.lddy = ld;
                            back.dx = c.inPlace ? dy.data() : dx.data();
                            back.lddx = ld;
                            table.rmsNormBackward(pool, back);
                            kernels::RmsNormArgs args;
                            args.x = x.data();
                            args.ldx = ld;
                            args.rows = c.rows;
                            args.groups = c.groups;
                            args.n = c.n;
                            args.w = w.data();
                            args.eps = 1e-5f;
                            args.y = c.inPlace ? x.data() : y.data();
                            args.ldy = ld;
                            table.rmsNorm(pool, args);
                            return joined(joined(x, y), joined(dx, dy));
                          });
  }
}
