#include "engine/mutation.h"

#include <cstring>
#include <vector>

namespace hotbed {

void MutatedLinear(const kernels::KernelTable& kernels, ThreadPool& pool,
                   const kernels::PackedLinear& weight, const float* x, size_t rows, float* y) {
  const size_t n = weight.dIn;
  const size_t half = n / 2;
  std::vector<float> part(rows * n);
  std::vector<float> second(rows * weight.dOut);
  kernels::LinearArgs args;
  args.x = part.data();
  args.ldx = n;
  args.rows = rows;
  args.weight = weight;
  args.ldy = weight.dOut;
  for (bool upper : {false, true}) {
    const size_t begin = upper ? half : 0;
    const size_t end = upper ? n : half;
    std::memset(part.data(), 0, part.size() * sizeof(float));
    for (size_t i = 0; i < rows; ++i) {
      std::memcpy(&part[i * n + begin], x + i * n + begin, (end - begin) * sizeof(float));
    }
    args.y = upper ? second.data() : y;
    args.weight.bias = upper ? nullptr : weight.bias;
    kernels.linear(pool, args);
  }
  for (size_t i = 0; i < second.size(); ++i) y[i] += second[i];
}

}  // namespace hotbed
