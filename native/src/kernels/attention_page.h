// Where a page (attention.h) keeps the keys and values of one kv head.
#pragma once

#include "kernels/path.h"
//
#include "kernels/attention.h"

namespace hotbed::kernels::HOTBED_PATH {

// [headDim][64]
HOTBED_INLINE size_t keysOffset(const AttentionShape& shape, size_t kvHead) {
  return kvHead * shape.headDim * kKeyBlock;
}

// [64][headDim]
HOTBED_INLINE size_t valuesOffset(const AttentionShape& shape, size_t kvHead) {
  return (shape.kvHeads + kvHead) * shape.headDim * kKeyBlock;
}

HOTBED_INLINE float scoreScale(const AttentionShape& shape) {
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(shape.headDim)));
}

}  // namespace hotbed::kernels::HOTBED_PATH
