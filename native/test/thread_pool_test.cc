#include "util/thread_pool.h"

#include <atomic>
#include <vector>

#include "harness.h"
#include "util/check.h"

using hotbed::ThreadPool;

TEST(thread_pool_runs_every_iteration_once) {
  for (size_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (size_t round = 0; round < 300; ++round) {
      const size_t count = round % 37;
      std::vector<std::atomic<int>> seen(count);
      pool.forEach(count,
                   [&](size_t i, size_t worker) { seen[i].fetch_add(worker < threads ? 1 : 100); });
      for (size_t i = 0; i < count; ++i) CHECK_EQ(seen[i].load(), 1);
    }
  }
}

TEST(thread_pool_refuses_zero_threads) { CHECK_THROWS(ThreadPool(0), "invalid_argument"); }

TEST(thread_pool_runs_with_denormals_and_round_to_nearest) {
  // N4: whatever the caller's environment is.
  ThreadPool pool(4);
  volatile float small = 1e-38f;
  std::vector<float> halves(64);
  pool.forEach(halves.size(), [&](size_t i, size_t) { halves[i] = small * 0.01f; });
  for (float half : halves) CHECK(half > 0.0f);
}
