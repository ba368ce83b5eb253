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

// The workers of a process.
class ThreadPool::Crew {
 public:
  // The process's crew, with at least so many workers.
  static std::shared_ptr<Crew> of(size_t workers);
  static size_t size();

  ~Crew() {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      stop_.store(true, std::memory_order_release);
      wake_.notify_all();
    }
    for (std::thread& worker : workers_) worker.join();
  }

  // Waits for its turn, then runs the loop on the caller and on workers 1 .. threads - 1.
  void run(size_t threads, size_t count, Iteration iteration, void* context) {
    takeTurn();
    threads_.store(threads, std::memory_order_relaxed);
    count_ = count;
    iteration_ = iteration;
    context_ = context;
    next_.store(0, std::memory_order_relaxed);
    open();
    work(0);
    close();
    endTurn();
  }

 private:
  // One word says which loop is open and how many workers are inside: generation << 32 | open << 31
  // | workers. A worker enters by compare-and-swap while the loop is open, so one that wakes late
  // is not waited for; the caller closes the loop, then waits only for those inside. Hence nobody
  // is inside when the next loop's fields are written.
  static constexpr uint64_t kOpen = uint64_t{1} << 31;

  // Callers in the order in which they came.
  void takeTurn() {
    const uint64_t mine = tickets_.fetch_add(1);
    for (int spin = 0; spin < kSpins && serving_.load() != mine; ++spin) _mm_pause();
    if (serving_.load() == mine) return;
    std::unique_lock<std::mutex> lock(turn_mutex_);
    ++waiting_;
    turn_.wait(lock, [&] { return serving_.load() == mine; });
    --waiting_;
  }

  void endTurn() {
    serving_.fetch_add(1);
    if (waiting_.load() == 0) return;
    std::unique_lock<std::mutex> lock(turn_mutex_);
    turn_.notify_all();
  }

  void grow(size_t workers) {
    while (workers_.size() < workers) {
      const size_t worker = workers_.size() + 1;
      workers_.emplace_back([this, worker] { loop(worker); });
    }
  }

  void work(size_t worker) {
    for (;;) {
      const size_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count_) return;
      iteration_(context_, index, worker);
    }
  }

  // A loop that wants this worker, other than the one it was in last; or the end.
  bool news(uint64_t seen, size_t worker) const {
    const uint64_t now = word_.load(std::memory_order_acquire);
    return ((now & kOpen) && (now >> 32) != seen &&
            worker < threads_.load(std::memory_order_relaxed)) ||
           stop_.load(std::memory_order_acquire);
  }

  void loop(size_t worker) {
    FloatEnvironment environment;
    uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && !news(seen, worker); ++spin) _mm_pause();
      if (!news(seen, worker)) {
        std::unique_lock<std::mutex> lock(mutex_);
        ++asleep_;
        wake_.wait(lock, [&] { return news(seen, worker); });
        --asleep_;
      }
      if (stop_.load(std::memory_order_acquire)) return;
      uint64_t now = word_.load(std::memory_order_acquire);
      // The count of threads read here is this loop's: the word would have changed with the next.
      while ((now & kOpen) && (now >> 32) != seen &&
             worker < threads_.load(std::memory_order_relaxed)) {
        if (!word_.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) continue;
        seen = now >> 32;
        work(worker);
        word_.fetch_sub(1, std::memory_order_release);
        break;
      }
    }
  }

  void open() {
    const uint64_t generation = (word_.load(std::memory_order_relaxed) >> 32) + 1;
    word_.store(generation << 32 | kOpen, std::memory_order_release);
    std::unique_lock<std::mutex> lock(mutex_);
    if (asleep_) wake_.notify_all();
  }

  void close() {
    word_.fetch_and(~kOpen, std::memory_order_acq_rel);
    for (int spin = 0; (word_.load(std::memory_order_acquire) & (kOpen - 1)) != 0; ++spin) {
      if (spin < kSpins) {
        _mm_pause();
      } else {
        std::this_thread::yield();
      }
    }
  }

  std::atomic<uint64_t> word_{0};
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::atomic<size_t> threads_{0};
  size_t count_ = 0;
  Iteration iteration_ = nullptr;
  void* context_ = nullptr;

  std::atomic<uint64_t> tickets_{0}, serving_{0};
  std::mutex turn_mutex_;
  std::condition_variable turn_;
  std::atomic<size_t> waiting_{0};

  std::mutex mutex_;
  std::condition_variable wake_;
  size_t asleep_ = 0;                 // guarded by mutex_
  std::vector<std::thread> workers_;  // grows under the process's lock
};

namespace {
// Never destroyed: a pool of static lifetime may end after everything else.
std::mutex& crewMutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}
}  // namespace

std::shared_ptr<ThreadPool::Crew> ThreadPool::Crew::of(size_t workers) {
  static std::weak_ptr<Crew>* const crew = new std::weak_ptr<Crew>;
  const std::lock_guard<std::mutex> lock(crewMutex());
  std::shared_ptr<Crew> current = crew->lock();
  if (!current && workers != 0) {
    current = std::make_shared<Crew>();
    *crew = current;
  }
  if (current) current->grow(workers);
  return current;
}

size_t ThreadPool::Crew::size() {
  const std::shared_ptr<Crew> crew = of(0);
  const std::lock_guard<std::mutex> lock(crewMutex());
  return crew ? crew->workers_.size() : 0;
}

size_t poolWorkers() { return ThreadPool::Crew::size(); }

ThreadPool::ThreadPool(size_t threads) : threads_(threads) {
  HOTBED_REQUIRE(threads >= 1 && threads <= 1024, "threads", "threads must be between 1 and 1024");
  scratch_.resize(threads + 1);
  if (threads > 1) crew_ = Crew::of(threads - 1);
}

ThreadPool::~ThreadPool() = default;

void ThreadPool::run(size_t count, Iteration iteration, void* context) {
  FloatEnvironment environment;
  if (threads_ == 1 || count <= 1) {
    for (size_t index = 0; index < count; ++index) iteration(context, index, 0);
    return;
  }
  crew_->run(threads_, count, iteration, context);
}

void* ThreadPool::scratch(size_t worker, size_t bytes) {
  AlignedBuffer<unsigned char>& buffer = scratch_[worker];
  if (buffer.size() < bytes) buffer = AlignedBuffer<unsigned char>(bytes);
  return buffer.data();
}

void ThreadPool::reserveScratch(size_t bytes) {
  for (size_t worker = 0; worker < threads_; ++worker) scratch(worker, bytes);
}

}  // namespace hotbed
