#include "engine/sha256.h"

#include <random>
#include <string>

#include "harness.h"

using hotbed::AllowShaExtensions;
using hotbed::Sha256;
using hotbed::Sha256Of;
using hotbed::ToHex;

namespace {

std::string HexOf(const std::string& text) { return ToHex(Sha256Of(text.data(), text.size())); }

// FIPS 180-4 and the NIST examples.
void CheckVectors() {
  CHECK_EQ(HexOf(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_EQ(HexOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK_EQ(HexOf("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK_EQ(HexOf(std::string(1000000, 'a')),
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace

TEST(sha256_knows_the_published_vectors) {
  CheckVectors();
  AllowShaExtensions(false);
  CheckVectors();
  AllowShaExtensions(true);
}

TEST(sha256_is_the_same_in_pieces_and_on_both_paths) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string text(random() % 400, '\0');
    for (char& c : text) c = static_cast<char>(random());
    Sha256 pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t take = std::min<size_t>(text.size() - at, random() % 130);
      pieces.Update(text.data() + at, take);
      at += take;
    }
    const std::string whole = HexOf(text);
    CHECK_EQ(ToHex(pieces.Finish()), whole);
    AllowShaExtensions(false);
    CHECK_EQ(HexOf(text), whole);
    AllowShaExtensions(true);
  }
}

TEST(sha256_writes_integers_big_endian) {
  CHECK_EQ(ToHex(Sha256().UpdateU64(0x6162630000000000u).Finish()),
           HexOf(std::string("abc\0\0\0\0\0", 8)));
}
