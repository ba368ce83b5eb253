#include "util/thread_pool.h"

#include <immintrin.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "util/aligned_buffer.h"
#include "util/check.h"

namespace hotbed {

namespace {
// Round to nearest, all exceptions masked, flush-to-zero and denormals-are-zero off.
constexpr unsigned kMxcsr = 0x1F80;
// A loop of a few microseconds usually follows the last one; after about 20 us of spinning a worker
// sleeps, so that an idle engine costs nothing.
constexpr int kSpins = 2000;
}  // namespace

FloatEnvironment::FloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(kMxcsr); }
FloatEnvironment::~FloatEnvironment() { _mm_setcsr(saved_); }

struct ThreadPool::State {
  // One word says which loop is open and how many workers are inside: generation << 32 | open << 31
  // | workers. A worker enters by compare-and-swap while the loop is open, so one that wakes late
  // is not waited for; the caller closes the loop, then waits only for those inside. Hence nobody
  // is inside when the next loop's fields are written.
  static constexpr uint64_t kOpen = uint64_t{1} << 31;
  std::atomic<uint64_t> word{0};
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  size_t count = 0;
  Iteration iteration = nullptr;
  void* context = nullptr;

  std::mutex mutex;
  std::condition_variable wake;
  size_t asleep = 0;  // guarded by mutex

  std::vector<std::thread> workers;
  std::vector<AlignedBuffer<unsigned char>> scratch;

  void work(size_t worker) {
    for (;;) {
      const size_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) return;
      iteration(context, index, worker);
    }
  }

  bool news(uint64_t seen) const {
    const uint64_t now = word.load(std::memory_order_acquire);
    return ((now & kOpen) && (now >> 32) != seen) || stop.load(std::memory_order_acquire);
  }

  void loop(size_t worker) {
    FloatEnvironment environment;
    uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && !news(seen); ++spin) _mm_pause();
      if (!news(seen)) {
        std::unique_lock<std::mutex> lock(mutex);
        ++asleep;
        wake.wait(lock, [&] { return news(seen); });
        --asleep;
      }
      if (stop.load(std::memory_order_acquire)) return;
      uint64_t now = word.load(std::memory_order_acquire);
      while ((now & kOpen) && (now >> 32) != seen) {
        if (!word.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) continue;
        seen = now >> 32;
        work(worker);
        word.fetch_sub(1, std::memory_order_release);
        break;
      }
    }
  }

  void open() {
    const uint64_t generation = (word.load(std::memory_order_relaxed) >> 32) + 1;
    word.store(generation << 32 | kOpen, std::memory_order_release);
    std::unique_lock<std::mutex> lock(mutex);
    if (asleep) wake.notify_all();
  }

  void close() {
    word.fetch_and(~kOpen, std::memory_order_acq_rel);
    for (int spin = 0; (word.load(std::memory_order_acquire) & (kOpen - 1)) != 0; ++spin) {
      if (spin < kSpins) {
        _mm_pause();
      } else {
        std::this_thread::yield();
      }
    }
  }
};

ThreadPool::ThreadPool(size_t threads) : threads_(threads), state_(std::make_unique<State>()) {
  HOTBED_REQUIRE(threads >= 1 && threads <= 1024, "threads", "threads must be between 1 and 1024");
  state_->scratch.resize(threads + 1);  // the last one is shared
  state_->workers.reserve(threads - 1);
  for (size_t worker = 1; worker < threads; ++worker) {
    state_->workers.emplace_back([this, worker] { state_->loop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->stop.store(true, std::memory_order_release);
    state_->wake.notify_all();
  }
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::run(size_t count, Iteration iteration, void* context) {
  FloatEnvironment environment;
  if (threads_ == 1 || count <= 1) {
    for (size_t index = 0; index < count; ++index) iteration(context, index, 0);
    return;
  }
  State& state = *state_;
  state.count = count;
  state.iteration = iteration;
  state.context = context;
  state.next.store(0, std::memory_order_relaxed);
  state.open();
  state.work(0);
  state.close();
}

void* ThreadPool::scratch(size_t worker, size_t bytes) {
  AlignedBuffer<unsigned char>& buffer = state_->scratch[worker];
  if (buffer.size() < bytes) buffer = AlignedBuffer<unsigned char>(bytes);
  return buffer.data();
}

void ThreadPool::reserveScratch(size_t bytes) {
  for (size_t worker = 0; worker < threads_; ++worker) scratch(worker, bytes);
}

}  // namespace hotbed
