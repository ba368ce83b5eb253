// One background thread that runs jobs in the order in which they came: files, digests, loading.
// Keeps them off the engine thread, which must not wait for a disk, and off Node's own pool, which
// others need.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace hotbed {

class JobThread {
 public:
  JobThread();
  ~JobThread();
  JobThread(const JobThread&) = delete;
  JobThread& operator=(const JobThread&) = delete;

  // From any thread, the jobs' own included, until Finish has returned. Jobs do not throw.
  void Post(std::function<void()> job);
  // Runs what is queued and what those jobs bring, then ends the thread. Idempotent; never on the
  // thread itself.
  void Finish();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool closing_ = false;
  std::thread thread_;  // last: it reads the members above
};

}  // namespace hotbed
