// SHA-256 (FIPS 180-4). Uses the SHA extensions where the CPU has them (chosen once, at run time),
// else plain C++. Own, because a state digest follows every optimizer step and the build may link
// nothing beyond the tool chain.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hotbed {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  Sha256& Update(const void* data, size_t bytes);
  Sha256& Update(std::string_view text) { return Update(text.data(), text.size()); }
  Sha256& Update(const Digest& digest) { return Update(digest.data(), digest.size()); }
  // Eight bytes, big-endian.
  Sha256& UpdateU64(uint64_t value);
  // Ends the computation; the object may not be used afterwards.
  Digest Finish();

 private:
  uint32_t state_[8];
  uint8_t block_[64];
  size_t filled_ = 0;
  uint64_t total_ = 0;
};

Digest Sha256Of(const void* data, size_t bytes);
std::string ToHex(const Digest& digest);

// Tests compare the two implementations: false forces the plain one.
void AllowShaExtensions(bool allow);

}  // namespace hotbed
