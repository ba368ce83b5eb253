#include "util/aligned_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "util/check.h"

namespace hotbed {

namespace {

constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kLine = 64;

size_t roundedUp(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Pages come zeroed from the kernel when they are first touched, so a large block costs nothing
// until it is used.
void* mapHuge(size_t bytes) {
  const size_t size = roundedUp(bytes, kHuge);
  void* mapped =
      mmap(nullptr, size + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t block = roundedUp(begin, kHuge);
  const uintptr_t end = block + size;
  if (block > begin) munmap(mapped, block - begin);
  if (begin + size + kHuge > end) {
    munmap(reinterpret_cast<void*>(end), begin + size + kHuge - end);
  }
  // Hints: failure costs speed. The last page stays small where the block does not fill it.
  const size_t whole = bytes / kHuge * kHuge;
  madvise(reinterpret_cast<void*>(block), whole, MADV_HUGEPAGE);
  if (whole < size) madvise(reinterpret_cast<void*>(block + whole), size - whole, MADV_NOHUGEPAGE);
  return reinterpret_cast<void*>(block);
}

// Freed large blocks by rounded size. One for the process, never destroyed: buffers of static
// lifetime may be freed after everything else.
class KeptBlocks {
 public:
  void* take(size_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = bySize_.find(size);
    if (at == bySize_.end()) return nullptr;
    void* block = at->second.back();
    at->second.pop_back();
    if (at->second.empty()) bySize_.erase(at);
    bytes_ -= size;
    return block;
  }

  // False: no room; the block is still the caller's.
  bool keep(void* block, size_t size) noexcept {
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (bytes_ + size > most_) return false;
      bySize_[size].push_back(block);
      bytes_ += size;
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  size_t bytes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return bytes_;
  }

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> bySize_;
  size_t bytes_ = 0;
  const size_t most_ = mostKeptBytes();
};

std::atomic<size_t> handedOut{0};

// What a block takes: whole lines, or whole small pages.
size_t takenBytes(size_t bytes) { return roundedUp(bytes, bytes < kHuge ? kLine : 4096); }

KeptBlocks& keptBlocks() {
  static KeptBlocks* const blocks = new KeptBlocks;
  return *blocks;
}

}  // namespace

size_t mostKeptBytes() {
  const size_t memory =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return std::min(memory / 8, size_t{2} << 30);
}

size_t keptBytes() { return keptBlocks().bytes(); }
size_t allocatedBytes() { return handedOut.load(std::memory_order_relaxed); }

void* allocateAligned(size_t bytes, Contents contents) {
  void* block = nullptr;
  if (bytes > SIZE_MAX - 2 * kHuge) {
    throwError("out_of_memory", "", "allocation size overflows");
  } else if (bytes >= kHuge) {
    block = keptBlocks().take(roundedUp(bytes, kHuge));
    if (block) {
      if (contents == Contents::kZero) std::memset(block, 0, bytes);
    } else {
      block = mapHuge(bytes);
    }
  } else {
    block = std::aligned_alloc(kLine, roundedUp(bytes, kLine));
    if (block && contents == Contents::kZero) std::memset(block, 0, bytes);
  }
  if (!block) throwError("out_of_memory", "", "cannot allocate memory for the engine");
  handedOut.fetch_add(takenBytes(bytes), std::memory_order_relaxed);
  return block;
}

void freeAligned(void* block, size_t bytes) noexcept {
  handedOut.fetch_sub(takenBytes(bytes), std::memory_order_relaxed);
  if (bytes < kHuge) {
    std::free(block);
    return;
  }
  const size_t size = roundedUp(bytes, kHuge);
  if (!keptBlocks().keep(block, size)) munmap(block, size);
}

}  // namespace hotbed
