// The numerics contracts that the CPU executor keeps, and which of them this machine offers.
#ifndef HOTBED_ENGINE_NUMERICS_H_
#define HOTBED_ENGINE_NUMERICS_H_

#include <optional>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"

namespace hotbed {

// f32-1: N1-N16. bf16-1: the same, but products with base weights round their inputs to bf16 and
// add pair by pair (P1, kernels/linear.h).
enum class Numerics { kF32, kBf16 };

// "f32-1" | "bf16-1": written into every operation and version.
const char* NumericsId(Numerics numerics);

struct NumericsOffer {
  Numerics numerics = Numerics::kF32;
  // Why this machine does not offer it; absent where it does.
  std::optional<std::string> refusal;
};

// bf16-1 is offered where the CPU multiplies bf16 pairs, its instruction rounds as P1 says (tried
// on kBf16Samples samples), and it is faster than f32-1's multiply-adds. Found out once a process,
// in about 0.2 s.
const std::vector<NumericsOffer>& NumericsOffers();

struct NumericsChoice {
  Numerics numerics = Numerics::kF32;
  kernels::Path path = kernels::Path::scalar;
};

// An absent path is the fastest of what is offered. A named path runs either contract wherever the
// CPU runs the path: those without the instruction give bf16-1's bits more slowly, so that any
// machine can verify a history. Throws EngineFault invalid_argument (the option, by name),
// unsupported_cpu.
NumericsChoice ChooseNumerics(const std::string& numerics, const std::optional<std::string>& path);

}  // namespace hotbed

#endif  // HOTBED_ENGINE_NUMERICS_H_
