#include "util/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

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
  madvise(reinterpret_cast<void*>(block), size, MADV_HUGEPAGE);  // a hint: failure costs speed
  return reinterpret_cast<void*>(block);
}

}  // namespace

void* allocateAligned(size_t bytes) {
  void* block = nullptr;
  if (bytes > SIZE_MAX - 2 * kHuge) {
    throwError("out_of_memory", "", "allocation size overflows");
  } else if (bytes >= kHuge) {
    block = mapHuge(bytes);
  } else {
    block = std::aligned_alloc(kLine, roundedUp(bytes, kLine));
    if (block) std::memset(block, 0, bytes);
  }
  if (!block) throwError("out_of_memory", "", "cannot allocate memory for the engine");
  return block;
}

void freeAligned(void* block, size_t bytes) noexcept {
  if (bytes >= kHuge) {
    munmap(block, roundedUp(bytes, kHuge));
  } else {
    std::free(block);
  }
}

}  // namespace hotbed
