// Bookkeeping of key/value pages: which are free, who refers to which, how many are promised. Knows
// no memory.
//
// 1. A page is free or has at least one reference.
// 2. Take() succeeds as often as was reserved: a sequence that was admitted never runs out of
// pages.
#ifndef HOTBED_ENGINE_KV_PAGES_H_
#define HOTBED_ENGINE_KV_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hotbed {

class KvPages {
 public:
  explicit KvPages(size_t count);

  size_t count() const { return references_.size(); }
  size_t used() const { return references_.size() - free_count(); }

  // Promises `n` pages; false when so many are not left.
  bool Reserve(size_t n);
  // Gives promised pages back that were not taken.
  void Unreserve(size_t n) { reserved_ -= n; }
  // One page of those promised, with one reference.
  int32_t Take();
  void AddReference(int32_t page) { ++references_[page]; }
  void Drop(int32_t page);

 private:
  size_t free_count() const { return free_.size() + (references_.size() - next_fresh_); }

  std::vector<int32_t> references_;
  std::vector<int32_t> free_;  // used before and free again: taken first, so memory stays small
  size_t next_fresh_ = 0;
  size_t reserved_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_KV_PAGES_H_
