// The built-in mutation: one chain evaluated in another order, on purpose.
//
// Used only where EngineOptions.mutation is set, by the isolation benchmark, which has to notice
// it: a benchmark that finds no differing bit proves something only if it would have found one.
#ifndef HOTBED_ENGINE_MUTATION_H_
#define HOTBED_ENGINE_MUTATION_H_

#include <cstddef>

#include "kernels/kernel_table.h"
#include "util/thread_pool.h"

namespace hotbed {

// y = chain over the first half of k + chain over the second half: N1 broken in one place.
// x [rows, d_in], y [rows, d_out], without gaps.
void MutatedLinear(const kernels::KernelTable& kernels, ThreadPool& pool,
                   const kernels::PackedLinear& weight, const float* x, size_t rows, float* y);

}  // namespace hotbed

#endif  // HOTBED_ENGINE_MUTATION_H_
