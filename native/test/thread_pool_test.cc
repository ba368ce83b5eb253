#include "util/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
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

// Two engines of one process: loops take turns, and there are no more workers than one needs.
TEST(thread_pool_pools_share_one_crew_without_oversubscription) {
  const size_t before = hotbed::poolWorkers();  // other tests may keep pools
  std::vector<std::unique_ptr<ThreadPool>> pools;
  for (int i = 0; i < 10; ++i) pools.push_back(std::make_unique<ThreadPool>(i % 2 == 0 ? 3 : 2));
  CHECK_EQ(hotbed::poolWorkers(), std::max<size_t>(before, 2));
  std::atomic<int> inside{0}, most{0}, wrong{0};
  std::vector<std::thread> callers;
  for (size_t p = 0; p < pools.size(); ++p) {
    callers.emplace_back([&, p] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<int> ran{0};
        pools[p]->forEach(20, [&](size_t, size_t worker) {
          if (worker >= pools[p]->threads()) ++wrong;
          const int now = ++inside;
          int seen = most.load();
          while (seen < now && !most.compare_exchange_weak(seen, now)) {
          }
          ++ran;
          --inside;
        });
        if (ran != 20) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK_EQ(wrong.load(), 0);
  CHECK_MESSAGE(most.load() <= 3, most.load() << " threads at a time");
  pools.clear();
  CHECK_EQ(hotbed::poolWorkers(), before);
}

// A pool of one thread neither waits for others nor starts anybody.
TEST(thread_pool_of_one_thread_takes_no_turns) {
  ThreadPool large(2), small(1);
  int inner = 0;
  large.forEach(2, [&](size_t index, size_t) {
    if (index == 0) small.forEach(5, [&](size_t, size_t) { ++inner; });
  });
  CHECK_EQ(inner, 5);
}
