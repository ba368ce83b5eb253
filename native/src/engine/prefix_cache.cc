#include "engine/prefix_cache.h"

namespace hotbed {

PrefixCache::PrefixCache(size_t page_count) : pages_(page_count), blocks_(page_count) {}

int32_t PrefixCache::Take() {
  int32_t page = pages_.TakeFree();
  if (page >= 0 || pages_.OldestIdle() < 0) return page;
  DropUnreachable();
  page = pages_.TakeFree();
  if (page >= 0) return page;
  Forget(pages_.OldestIdle());
  ++evictions_;
  return pages_.TakeFree();
}

PrefixCache::Serial PrefixCache::RootOf(const std::shared_ptr<const AdapterWeights>& weights) {
  const uint64_t identity = weights ? weights->identity() : 0;
  const auto [found, is_new] = serials_.try_emplace(identity, next_serial_);
  if (is_new) {
    roots_[next_serial_++] = {weights, identity, {}};
  }
  return found->second;
}

int32_t PrefixCache::Find(Serial parent, const BlockTokens& tokens) {
  const auto found = index_.find({parent, tokens});
  if (found == index_.end()) return -1;
  pages_.AddUser(found->second);
  return found->second;
}

int32_t PrefixCache::Insert(Serial root, Serial parent, const BlockTokens& tokens, int32_t page) {
  const auto [found, is_new] = index_.try_emplace({parent, tokens}, page);
  if (!is_new) {
    pages_.AddUser(found->second);
    pages_.Drop(page);
    return found->second;
  }
  blocks_[page] = {next_serial_++, root, &found->first};
  roots_.at(root).pages.insert(page);
  pages_.Keep(page);
  return page;
}

void PrefixCache::Forget(int32_t page) {
  Block& block = blocks_[page];
  roots_.at(block.root).pages.erase(page);
  index_.erase(index_.find(*block.key));
  block = {};
  pages_.Forget(page);
}

void PrefixCache::DropUnreachable() {
  for (auto root = roots_.begin(); root != roots_.end();) {
    // Weights that were written in place since are other weights.
    const auto weights = root->second.weights.lock();
    if (root->second.identity == 0 || (weights && weights->identity() == root->second.identity)) {
      ++root;
      continue;
    }
    const std::vector<int32_t> pages(root->second.pages.begin(), root->second.pages.end());
    for (int32_t page : pages) Forget(page);
    serials_.erase(root->second.identity);
    root = roots_.erase(root);
  }
}

size_t PrefixCache::KeyHash::operator()(const Key& key) const {
  uint64_t hash = key.parent;
  for (int32_t token : key.tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return static_cast<size_t>(hash);
}

}  // namespace hotbed
