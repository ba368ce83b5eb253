// What the kernel tests share: seeded random buffers with poisoned padding, bitwise comparison, and
// running one operation on every path and several thread counts against the reference.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "harness.h"
#include "kernels/kernel_table.h"
#include "util/aligned_buffer.h"
#include "util/thread_pool.h"

namespace hotbed::test {

using kernels::KernelTable;
using kernels::Path;

// SplitMix64: fixed sequences on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // In [low, high].
  size_t between(size_t low, size_t high) { return low + next() % (high - low + 1); }
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }
  // Roughly normal, standard deviation about 1.
  float normal() { return (uniform() + uniform() + uniform() + uniform() - 2.0f) * 1.7f; }

 private:
  uint64_t state_;
};

inline uint32_t bitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline float fromBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// 64-byte aligned floats; copies like a value.
class Floats {
 public:
  Floats() = default;
  explicit Floats(size_t n, float value = 0) : data_(n) {
    for (float& x : data_) x = value;
  }
  Floats(const Floats& other) : data_(other.size()) {
    for (size_t i = 0; i < other.size(); ++i) data_[i] = other.data_[i];
  }
  Floats& operator=(const Floats& other) {
    Floats copy(other);
    data_ = std::move(copy.data_);
    return *this;
  }
  Floats(Floats&&) = default;
  Floats& operator=(Floats&&) = default;
  float* data() { return data_.data(); }
  const float* data() const { return data_.data(); }
  size_t size() const { return data_.size(); }
  float& operator[](size_t i) { return data_[i]; }
  const float& operator[](size_t i) const { return data_[i]; }

 private:
  AlignedBuffer<float> data_;
};

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// [rows, columns] normal numbers; the columns up to `ld` are NaN, which must never reach a result.
inline Floats randomMatrix(Random& random, size_t rows, size_t columns, size_t ld,
                           float scale = 1.0f) {
  Floats m(rows * ld, kPoison);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) m[r * ld + c] = random.normal() * scale;
  }
  return m;
}

// Replaces about one element in `every` by a NaN, an infinity, a zero of either sign or a denormal.
inline void sprinkle(Random& random, Floats& m, size_t every) {
  const float odd[] = {kPoison, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f, -3e-45f, 3e38f};
  for (size_t i = 0; i < m.size(); ++i) {
    if (random.between(1, every) == 1) m[i] = odd[random.between(0, 7)];
  }
}

inline bool sameBits(float a, float b) {
  return bitsOf(a) == bitsOf(b) || (std::isnan(a) && std::isnan(b));
}

inline void checkSame(const std::string& what, const Floats& actual, const Floats& expected) {
  size_t wrong = 0;
  size_t first = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (sameBits(actual[i], expected[i])) continue;
    if (wrong++ == 0) first = i;
  }
  CHECK_MESSAGE(wrong == 0, what << ": " << wrong << " of " << expected.size()
                                 << " differ, first at " << first << ": expected "
                                 << expected[first] << " (" << std::hex << bitsOf(expected[first])
                                 << "), actual " << actual[first] << " (" << bitsOf(actual[first])
                                 << ")");
}

inline std::vector<Path> fastPaths() {
  std::vector<Path> paths;
  for (Path path : {Path::scalar, Path::avx2, Path::avx512, Path::avx512bf16}) {
    if (kernels::supports(path)) paths.push_back(path);
  }
  return paths;
}

// One pool per thread count, kept: making threads costs more than the small cases.
inline ThreadPool& poolOf(size_t threads) {
  static ThreadPool one(1), two(2), five(5);
  return threads == 1 ? one : threads == 2 ? two : five;
}

// run(table, pool) returns an output; it must equal the reference's on every path and pool.
template <class Run>
void checkAgainstReference(const std::string& what, const Run& run) {
  const Floats expected = run(kernels::kernels(Path::reference), poolOf(1));
  for (Path path : fastPaths()) {
    const KernelTable& table = kernels::kernels(path);
    for (size_t threads : {1, 2, 5}) {
      const Floats actual = run(table, poolOf(threads));
      CHECK_EQ(actual.size(), expected.size());
      checkSame(what + " on " + table.name + ", " + std::to_string(threads) + " threads", actual,
                expected);
    }
  }
}

// Appends b to a, to return several outputs as one.
inline Floats joined(const Floats& a, const Floats& b) {
  Floats all(a.size() + b.size());
  for (size_t i = 0; i < a.size(); ++i) all[i] = a[i];
  for (size_t i = 0; i < b.size(); ++i) all[a.size() + i] = b[i];
  return all;
}

inline Floats packed(const KernelTable& table, ThreadPool& pool, const Floats& w, size_t ldw,
                     size_t dOut, size_t dIn) {
  Floats panels(kernels::packedLinearFloats(dOut, dIn), kPoison);
  kernels::PackLinearArgs args;
  args.w = w.data();
  args.ldw = ldw;
  args.dOut = dOut;
  args.dIn = dIn;
  args.panels = panels.data();
  table.packLinear(pool, args);
  return panels;
}

inline Floats packedTransposed(const KernelTable& table, ThreadPool& pool, const Floats& w,
                               size_t ldw, size_t dOut, size_t dIn) {
  Floats panels(kernels::packedLinearFloats(dIn, dOut), kPoison);
  kernels::PackLinearArgs args;
  args.w = w.data();
  args.ldw = ldw;
  args.dOut = dOut;
  args.dIn = dIn;
  args.panels = panels.data();
  table.packLinearTransposed(pool, args);
  return panels;
}

}  // namespace hotbed::test
