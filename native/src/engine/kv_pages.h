// Bookkeeping of key/value pages: which are in use, free, or kept for what they hold. Knows no
// memory.
//
// 1. A page is in use (one user or more), free, or idle: without users, but kept for its content.
// 2. Idle pages stand in the order in which their last users left; the oldest is given up first.
#ifndef HOTBED_ENGINE_KV_PAGES_H_
#define HOTBED_ENGINE_KV_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hotbed {

class KvPages {
 public:
  explicit KvPages(size_t count);

  size_t count() const { return pages_.size(); }
  size_t in_use() const { return in_use_; }
  size_t idle() const { return idle_; }

  // A free page, with one user; -1 when none is free (an idle one may be forgotten first).
  int32_t TakeFree();
  void AddUser(int32_t page);
  void Drop(int32_t page);
  // Once without users the page becomes idle instead of free.
  void Keep(int32_t page) { pages_[page].kept = true; }
  // No longer kept; free at once if it is idle.
  void Forget(int32_t page);
  // -1 when no page is idle.
  int32_t OldestIdle() const { return first_idle_; }

 private:
  struct Page {
    int32_t users = 0;
    bool kept = false;
    int32_t before = -1;  // neighbours in the order of idle pages
    int32_t after = -1;
  };

  void AddIdle(int32_t page);
  void RemoveIdle(int32_t page);

  std::vector<Page> pages_;
  std::vector<int32_t> free_;  // used before and free again: taken first, so memory stays small
  size_t next_fresh_ = 0;
  size_t in_use_ = 0;
  size_t idle_ = 0;
  int32_t first_idle_ = -1;
  int32_t last_idle_ = -1;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_KV_PAGES_H_
