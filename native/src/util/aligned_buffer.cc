#include "util/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "util/check.h"

namespace hotbed {

namespace {
constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kLine = 64;
}  // namespace

void* allocateAligned(size_t bytes) {
  const size_t alignment = bytes >= kHuge ? kHuge : kLine;
  if (bytes > SIZE_MAX - alignment) throwError("out_of_memory", "", "allocation size overflows");
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* block = std::aligned_alloc(alignment, rounded);
  if (!block) throwError("out_of_memory", "", "cannot allocate memory for the engine");
  if (alignment == kHuge) madvise(block, rounded, MADV_HUGEPAGE);  // a hint: failure costs speed
  std::memset(block, 0, rounded);
  return block;
}

void freeAligned(void* block, size_t) noexcept { std::free(block); }

}  // namespace hotbed
