#include "util/aligned_buffer.h"

#include <cstdint>
#include <utility>

#include "harness.h"
#include "util/check.h"

using hotbed::AlignedBuffer;

TEST(aligned_buffer_is_aligned_and_zeroed) {
  for (size_t n :
       {size_t{1}, size_t{100}, size_t{1} << 19, (size_t{1} << 19) - 1, (size_t{3} << 19) + 5}) {
    AlignedBuffer<float> buffer(n);
    const size_t alignment = buffer.bytes() >= (size_t{2} << 20) ? size_t{2} << 20 : 64;
    CHECK_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % alignment, 0u);
    for (size_t i = 0; i < n; i += 997) CHECK_EQ(buffer[i], 0.0f);
    buffer[0] = 1.0f;
    buffer[n - 1] = 2.0f;
    AlignedBuffer<float> moved = std::move(buffer);
    CHECK_EQ(moved[n - 1], 2.0f);
    CHECK(buffer.data() == nullptr);
    CHECK_EQ(buffer.size(), 0u);
  }
}

TEST(aligned_buffer_of_nothing_allocates_nothing) {
  AlignedBuffer<float> none(0);
  CHECK(none.data() == nullptr);
}

TEST(aligned_buffer_refuses_what_the_machine_cannot_have) {
  CHECK_THROWS(AlignedBuffer<unsigned char>(SIZE_MAX - 5), "out_of_memory");
  CHECK_THROWS(AlignedBuffer<unsigned char>(SIZE_MAX / 2), "out_of_memory");
}

TEST(a_freed_large_block_is_used_again_and_comes_zeroed) {
  const size_t n = (size_t{3} << 20) + 7;
  const size_t before = hotbed::keptBytes();
  {
    AlignedBuffer<float> buffer(n);
    for (size_t i = 0; i < n; i += 511) buffer[i] = 3.0f;
  }
  CHECK(hotbed::keptBytes() >= before);
  CHECK(hotbed::keptBytes() <= hotbed::mostKeptBytes());
  AlignedBuffer<float> again(n);
  for (size_t i = 0; i < n; ++i) CHECK_EQ(again[i], 0.0f);
  AlignedBuffer<float> anything(n, hotbed::Contents::kAnything);
  anything[n - 1] = 1.0f;
  CHECK_EQ(anything[n - 1], 1.0f);
}
