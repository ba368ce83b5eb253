#include "engine/kv_pages.h"

namespace hotbed {

KvPages::KvPages(size_t count) : pages_(count) {}

int32_t KvPages::TakeFree() {
  int32_t page;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else if (next_fresh_ < pages_.size()) {
    page = static_cast<int32_t>(next_fresh_++);
  } else {
    return -1;
  }
  pages_[page].users = 1;
  ++in_use_;
  return page;
}

void KvPages::AddUser(int32_t page) {
  if (pages_[page].users++ != 0) return;
  RemoveIdle(page);
  ++in_use_;
}

void KvPages::Drop(int32_t page) {
  if (--pages_[page].users != 0) return;
  --in_use_;
  if (pages_[page].kept) {
    AddIdle(page);
  } else {
    free_.push_back(page);
  }
}

void KvPages::Forget(int32_t page) {
  pages_[page].kept = false;
  if (pages_[page].users != 0) return;
  RemoveIdle(page);
  free_.push_back(page);
}

void KvPages::AddIdle(int32_t page) {
  pages_[page].before = last_idle_;
  pages_[page].after = -1;
  (last_idle_ < 0 ? first_idle_ : pages_[last_idle_].after) = page;
  last_idle_ = page;
  ++idle_;
}

void KvPages::RemoveIdle(int32_t page) {
  const Page& gone = pages_[page];
  (gone.before < 0 ? first_idle_ : pages_[gone.before].after) = gone.after;
  (gone.after < 0 ? last_idle_ : pages_[gone.after].before) = gone.before;
  --idle_;
}

}  // namespace hotbed
