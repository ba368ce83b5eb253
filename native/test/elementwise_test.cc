#include "kernel_support.h"

using namespace hotbed;
using namespace hotbed::test;

TEST(swiglu_equals_the_reference_forward_and_backward) {
  for (size_t rows : {0, 1, 7, 90}) {
    for (size_t n : {1, 16, 31, 384, 1536}) {
      for (size_t odd : {0, 40}) {
        checkAgainstReference(
            "swiglu " + std::to_string(rows) + "x" + std::to_string(n),
            [&](const KernelTable& table, ThreadPool& pool) {
              Random random(rows * 7 + n);
              const size_t ld = 2 * n + 1;  // gate and up side by side
              Floats gateUp = randomMatrix(random, rows, 2 * n, ld, 4.0f);
              if (odd) sprinkle(random, gateUp, odd);
              const Floats dh = randomMatrix(random, rows, n, n);
              Floats h(rows * n), dGateUp(rows * ld, 9.0f);
              kernels::SwigluArgs args;
              args.gate = gateUp.data();
              args.up = gateUp.data() + n;
              args.ldin = ld;
              args.rows = rows;
              args.n = n;
              args.h = h.data();
              args.ldh = n;
              table.swiglu(pool, args);
              kernels::SwigluBackwardArgs back;
              back.gate = args.gate;
              back.up = args.up;
              back.ldin = ld;
              back.rows = rows;
              back.n = n;
              back.dh = dh.data();
              back.lddh = n;
              back.dgate = dGateUp.data();
              back.dup = dGateUp.data() + n;
              back.ldout = ld;
              table.swigluBackward(pool, back);
              Floats sum(rows * n);
              table.add(pool, {h.data(), n, dGateUp.data(), ld, sum.data(), n, rows, n});
              // In place, as the engine may.
              back.dgate = gateUp.data();
              back.dup = gateUp.data() + n;
              table.swigluBackward(pool, back);
              return joined(joined(h, sum), joined(dGateUp, gateUp));
            });
      }
    }
  }
}
