#include "engine/kv_pages.h"

namespace hotbed {

KvPages::KvPages(size_t count) : references_(count, 0) {}

bool KvPages::Reserve(size_t n) {
  if (free_count() - reserved_ < n) return false;
  reserved_ += n;
  return true;
}

int32_t KvPages::Take() {
  --reserved_;
  int32_t page;
  if (free_.empty()) {
    page = static_cast<int32_t>(next_fresh_++);
  } else {
    page = free_.back();
    free_.pop_back();
  }
  references_[page] = 1;
  return page;
}

void KvPages::Drop(int32_t page) {
  if (--references_[page] == 0) free_.push_back(page);
}

}  // namespace hotbed
