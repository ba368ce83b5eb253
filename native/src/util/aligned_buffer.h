// This file owns one aligned block of plain elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace hotbed {

// What a new block holds: zeros, or anything (for those who write all of it before they read).
enum class Contents { kZero, kAnything };

// 64-byte aligned; blocks of 2 MiB and more are aligned to 2 MiB and offered to huge pages.
// Throws Error "out_of_memory". New large blocks take real memory as they are touched.
// freeAligned wants the size that was asked for. A freed large block is kept for the next one of
// its size, up to mostKeptBytes() in all: fresh pages cost more than the copies that adapters make
// at every step (a virtual machine cleared 1.5 GB/s of them). They are not offered to the kernel
// with MADV_FREE: where it looks for cold pages all the time, they were fresh again at the next
// step.
void* allocateAligned(size_t bytes, Contents contents = Contents::kZero);
void freeAligned(void* block, size_t bytes) noexcept;

// An eighth of the machine's memory, at most 2 GiB.
size_t mostKeptBytes();
// Bytes of freed blocks that are kept at the moment.
size_t keptBytes();
// Bytes of all blocks in use in this process, as the system has to find them.
size_t allocatedBytes();

// size * elementSize; an overflow becomes a size that cannot be had.
inline constexpr size_t checkedBytes(size_t size, size_t elementSize) {
  return size > SIZE_MAX / elementSize ? SIZE_MAX : size * elementSize;
}

template <class T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size, Contents contents = Contents::kZero)
      : data_(size ? static_cast<T*>(allocateAligned(checkedBytes(size, sizeof(T)), contents))
                   : nullptr),
        size_(size) {}
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() {
    if (data_) freeAligned(data_, size_ * sizeof(T));
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hotbed
