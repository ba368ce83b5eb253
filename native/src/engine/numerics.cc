#include "engine/numerics.h"

#include <algorithm>
#include <chrono>

#include "engine/fault.h"
#include "kernels/bf16_dots.h"
#include "kernels/machine_burst.h"

namespace hotbed {

namespace {

using Clock = std::chrono::steady_clock;

// FLOP/s of a burst on this thread.
template <typename Burst>
double Speed(Burst burst) {
  const auto start = Clock::now();
  const double flops = burst();
  return flops / std::chrono::duration<double>(Clock::now() - start).count();
}

// The best of a few turns: a neighbour's time slice can only slow one down. The two peaks differ by
// a factor of two, one way or the other, on every CPU known to have the instruction.
bool DotsAreFaster() {
  constexpr int kTurns = 7;
  constexpr size_t kRepeats = 40000;  // about 0.1 ms
  const kernels::KernelTable& table = kernels::kernels(kernels::bestPath());
  double dots = 0, multiply_adds = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    dots = std::max(dots, Speed([] { return kernels::bf16DotBurst(kRepeats); }));
    multiply_adds = std::max(multiply_adds, Speed([&] { return table.fmaBurst(kRepeats); }));
  }
  return dots > multiply_adds;
}

// Whether the instruction may be trusted here.
bool DotsAreExact() {
  constexpr uint64_t kSeed = 1;
  static const bool exact = kernels::bf16DotsThatDiffer(kernels::kBf16Samples, kSeed) == 0;
  return exact;
}

constexpr char kInexact[] = "this CPU's bf16 products do not round as bf16-1 promises";

std::optional<std::string> Bf16Refusal() {
  if (!kernels::supports(kernels::Path::avx512bf16)) return "this CPU has no AVX512-BF16";
  if (!DotsAreExact()) return kInexact;
  if (!DotsAreFaster()) return "this CPU's bf16 products are slower than its fp32 multiply-adds";
  return std::nullopt;
}

Numerics NumericsOf(const std::string& word) {
  for (Numerics numerics : {Numerics::kF32, Numerics::kBf16}) {
    if (word == NumericsId(numerics)) return numerics;
  }
  throw EngineFault(FaultCode::kInvalidArgument,
                    "numerics: expected f32-1 or bf16-1, got '" + word + "'");
}

kernels::Path PathNamed(const std::string& word) {
  for (const char* known : {"scalar", "avx2", "avx512", "avx512bf16", "reference"}) {
    if (word != known) continue;
    const kernels::Path path = kernels::parsePath(known);
    kernels::kernels(path);  // throws unsupported_cpu naming what is missing
    return path;
  }
  throw EngineFault(
      FaultCode::kInvalidArgument,
      "kernels: expected scalar, avx2, avx512, avx512bf16 or reference, got '" + word + "'");
}

}  // namespace

const char* NumericsId(Numerics numerics) {
  return numerics == Numerics::kF32 ? "f32-1" : "bf16-1";
}

const std::vector<NumericsOffer>& NumericsOffers() {
  static const std::vector<NumericsOffer> offers = {{Numerics::kF32, std::nullopt},
                                                    {Numerics::kBf16, Bf16Refusal()}};
  return offers;
}

NumericsChoice ChooseNumerics(const std::string& numerics, const std::optional<std::string>& path) {
  const Numerics chosen = NumericsOf(numerics);
  if (path) {
    const kernels::Path named = PathNamed(*path);
    if (chosen == Numerics::kBf16 && named == kernels::Path::avx512bf16 && !DotsAreExact()) {
      throw EngineFault(FaultCode::kUnsupportedCpu, std::string("numerics: ") + kInexact);
    }
    return {chosen, named};
  }
  if (chosen == Numerics::kF32) return {chosen, kernels::bestPath()};
  for (const NumericsOffer& offer : NumericsOffers()) {
    if (offer.numerics != chosen || !offer.refusal) continue;
    throw EngineFault(FaultCode::kUnsupportedCpu,
                      "numerics: bf16-1 is not offered on this machine: " + *offer.refusal +
                          "; use f32-1, or name a kernel path that this machine has "
                          "(HOTBED_KERNELS) to compute the same bits without the instruction");
  }
  return {chosen, kernels::Path::avx512bf16};
}

}  // namespace hotbed
