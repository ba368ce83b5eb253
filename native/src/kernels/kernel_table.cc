// Chooses a path for the CPU that runs.
#include "kernels/kernel_table.h"

#include <cstring>
#include <string>

#include "kernels/reference/reference.h"
#include "util/check.h"

namespace hotbed::kernels {

#ifdef HOTBED_PATHS
namespace scalar {
const KernelTable& table();
}
namespace avx2 {
const KernelTable& table();
}
namespace avx512 {
const KernelTable& table();
}
namespace avx512bf16 {
const KernelTable& table();
}
#endif

namespace {

// x86-64-v3, feature by feature, so that an error can say what is missing.
std::string missingForV3() {
  std::string missing;
  const auto need = [&](bool has, const char* name) {
    if (has) return;
    if (!missing.empty()) missing += ", ";
    missing += name;
  };
  __builtin_cpu_init();
  need(__builtin_cpu_supports("avx2"), "avx2");
  need(__builtin_cpu_supports("fma"), "fma");
  need(__builtin_cpu_supports("bmi"), "bmi1");
  need(__builtin_cpu_supports("bmi2"), "bmi2");
  need(__builtin_cpu_supports("popcnt"), "popcnt");
  return missing;
}

std::string missingFor(Path path) {
  std::string missing = missingForV3();
  if (path != Path::avx512 && path != Path::avx512bf16) return missing;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (!wide) missing += missing.empty() ? "avx512f/dq/bw/vl" : ", avx512f/dq/bw/vl";
  if (path == Path::avx512bf16 && !__builtin_cpu_supports("avx512bf16")) {
    missing += missing.empty() ? "avx512bf16" : ", avx512bf16";
  }
  return missing;
}

}  // namespace

bool supports(Path path) { return missingFor(path).empty(); }

const KernelTable& kernels(Path path) {
  const std::string missing = missingFor(path);
  if (!missing.empty()) {
    throw Error(
        "unsupported_cpu", missing,
        "this CPU lacks " + missing + ", which the engine's kernels need (at least x86-64-v3)");
  }
#ifdef HOTBED_PATHS
  switch (path) {
    case Path::scalar:
      return scalar::table();
    case Path::avx2:
      return avx2::table();
    case Path::avx512:
      return avx512::table();
    case Path::avx512bf16:
      return avx512bf16::table();
    case Path::reference:
      break;
  }
#endif
  return reference::table();
}

Path bestPath() {
  if (supports(Path::avx512)) return Path::avx512;
  kernels(Path::avx2);  // throws with the missing features
  return Path::avx2;
}

Path parsePath(const char* word) {
  if (!word || !*word) return bestPath();
  if (std::strcmp(word, "scalar") == 0) return Path::scalar;
  if (std::strcmp(word, "avx2") == 0) return Path::avx2;
  if (std::strcmp(word, "avx512") == 0) return Path::avx512;
  if (std::strcmp(word, "avx512bf16") == 0) return Path::avx512bf16;
  if (std::strcmp(word, "reference") == 0) return Path::reference;
  throw Error(
      "invalid_argument", "HOTBED_KERNELS",
      std::string("HOTBED_KERNELS must be scalar, avx2, avx512, avx512bf16 or reference, not '") +
          word + "'");
}

}  // namespace hotbed::kernels
