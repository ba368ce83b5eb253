// Key/value pages of whole blocks of 64 tokens, found again by what they hold (N10), and the supply
// of pages that goes with it.
//
// 1. The key of a block is (policy state, parent block, 64 token ids), compared whole, never by a
// hash alone. Base and numerics id need no place in it: one engine has one of each, and the cache
// dies with it.
// 2. A policy state is the identity of its weights and a block is a serial number; neither is ever
// used twice, so nothing that a caller can choose (names, token ids, order of calls) reaches
// another's block.
// 3. A block's bits do not depend on who computed it, with whom or when (N3): a hit equals a miss.
// 4. Whoever uses a block uses all its parents and lets go of children first, so no block is given
// up before its children.
// 5. Blocks of weights that nobody holds any more are dropped: nobody can ask for them again.
#ifndef HOTBED_ENGINE_PREFIX_CACHE_H_
#define HOTBED_ENGINE_PREFIX_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/adapter_state.h"
#include "engine/kv_pages.h"
#include "engine/plan.h"

namespace hotbed {

using BlockTokens = std::array<int32_t, kPagePositions>;

class PrefixCache {
 public:
  // Names a block, or the beginning of every text of one policy state.
  using Serial = uint64_t;

  explicit PrefixCache(size_t page_count);

  const KvPages& pages() const { return pages_; }
  // Pages that Take() can still give.
  size_t available() const { return pages_.count() - pages_.in_use(); }
  // Blocks that can be found, in use or idle.
  size_t blocks() const { return index_.size(); }
  uint64_t evictions() const { return evictions_; }

  // A page for new content, with one user: a free one, else the one that was idle longest. -1 when
  // all are in use.
  int32_t Take();
  void AddUser(int32_t page) { pages_.AddUser(page); }
  void Drop(int32_t page) { pages_.Drop(page); }

  // Where texts of this policy state begin; null = the base.
  Serial RootOf(const std::shared_ptr<const AdapterWeights>& weights);
  // The page of the block that follows `parent` with these tokens, with one more user; -1 = not
  // here.
  int32_t Find(Serial parent, const BlockTokens& tokens);
  // `page` holds this block, complete and never to be written again. Returns the page to use from
  // now on: `page`, or an older one with the same block, in which case the caller's use of `page`
  // has moved to it.
  int32_t Insert(Serial root, Serial parent, const BlockTokens& tokens, int32_t page);
  // Of a page that Find or Insert returned and the caller uses.
  Serial SerialOf(int32_t page) const { return blocks_[page].serial; }
  // Rule 5.
  void DropUnreachable();

 private:
  struct Key {
    Serial parent;
    BlockTokens tokens;
    bool operator==(const Key& other) const {
      return parent == other.parent && tokens == other.tokens;
    }
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Block {
    Serial serial = 0;
    Serial root = 0;
    const Key* key = nullptr;  // in index_
  };
  struct Root {
    std::weak_ptr<const AdapterWeights> weights;
    uint64_t identity = 0;
    std::unordered_set<int32_t> pages;
  };

  void Forget(int32_t page);

  KvPages pages_;
  std::vector<Block> blocks_;  // of each page
  std::unordered_map<Key, int32_t, KeyHash> index_;
  std::unordered_map<uint64_t, Serial> serials_;  // identity of weights -> root; the base has 0
  std::unordered_map<Serial, Root> roots_;
  Serial next_serial_ = 1;
  uint64_t evictions_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_PREFIX_CACHE_H_
