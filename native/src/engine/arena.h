// Scratch of one plan: carved from one block that grows to the largest plan seen and stays.
#ifndef HOTBED_ENGINE_ARENA_H_
#define HOTBED_ENGINE_ARENA_H_

#include <cstddef>

#include "util/aligned_buffer.h"

namespace hotbed {

// A layout function is run twice: with a measuring arena (pointers are null) to learn the size,
// then for real.
class Arena {
 public:
  // Floats, 64-byte aligned; contents are undefined.
  float* Take(size_t floats) {
    const size_t at = used_;
    used_ += (floats + 15) / 16 * 16;
    return measuring_ ? nullptr : block_.data() + at;
  }

  // layout(Arena&) takes what it needs. Throws Error out_of_memory; the arena is then empty but
  // usable.
  template <typename Layout>
  void Carve(Layout&& layout) {
    measuring_ = true;
    used_ = 0;
    layout(*this);
    const size_t needed = used_;
    if (needed > block_.size()) {
      block_ = AlignedBuffer<float>();  // before the larger one is taken
      block_ = AlignedBuffer<float>(needed, Contents::kAnything);
    }
    measuring_ = false;
    used_ = 0;
    layout(*this);
  }

  size_t bytes() const { return block_.bytes(); }

 private:
  AlignedBuffer<float> block_;
  size_t used_ = 0;
  bool measuring_ = false;
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_ARENA_H_
