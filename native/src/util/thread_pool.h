// Runs the iterations of a loop on several threads; the caller takes part as worker 0.
//
// 1. Iterations are claimed dynamically: no result may depend on which worker runs which.
// 2. Every thread that runs iterations has round-to-nearest and denormals on (N4).
// 3. One loop at a time: forEach is called by one thread and does not nest.
// 4. Iterations do not throw; kernels check their arguments before they start a loop.
// 5. All pools of a process share one crew of workers, as many as the largest of them needs beside
// its caller. Loops of several pools take turns in the order in which they ask, so two engines
// never run more threads than one. The crew ends with the last pool.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include "util/aligned_buffer.h"

namespace hotbed {

class ThreadPool {
 public:
  // `threads` >= 1 counts the caller; 1 needs no worker and takes no turns. Throws Error
  // "invalid_argument".
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const { return threads_; }

  // body(index, worker) for each index in [0, count), worker in [0, threads()). Returns when all
  // are done. A single iteration runs on the caller without waking anyone.
  template <class Body>
  void forEach(size_t count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(
        count,
        [](void* context, size_t index, size_t worker) {
          (*static_cast<Plain*>(context))(index, worker);
        },
        const_cast<std::remove_const_t<Plain>*>(&body));
  }

  // Scratch of one worker: 64-byte aligned, grows and stays. Contents are undefined. The pointer
  // is valid until the worker's next call. Throws Error "out_of_memory": reserve before the loop.
  void* scratch(size_t worker, size_t bytes);
  // One block more, shared by all workers of a loop; the caller takes it before the loop.
  void* shared(size_t bytes) { return scratch(threads_, bytes); }
  // Makes scratch(w, bytes) succeed for every worker; called outside loops.
  void reserveScratch(size_t bytes);

 private:
  using Iteration = void (*)(void* context, size_t index, size_t worker);
  friend size_t poolWorkers();
  void run(size_t count, Iteration iteration, void* context);

  class Crew;
  size_t threads_;
  std::vector<AlignedBuffer<unsigned char>> scratch_;  // by worker; the last one is shared
  std::shared_ptr<Crew> crew_;                         // null: threads_ == 1
};

// Workers of the process's crew now, for tests and figures.
size_t poolWorkers();

// Sets the calling thread's floating-point environment to N4's for its lifetime.
class FloatEnvironment {
 public:
  FloatEnvironment();
  ~FloatEnvironment();
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  unsigned saved_;
};

}  // namespace hotbed
