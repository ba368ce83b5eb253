#include "engine/safetensors.h"

#include <cmath>
#include <cstdint>

#include "fault_check.h"
#include "harness.h"
#include "model_folder.h"

using namespace hotbed;
using namespace hotbed::test;

namespace {

// A file with this header and this many bytes of data.
class HeaderFile {
 public:
  HeaderFile(const std::string& header, size_t data_bytes)
      : HeaderFile(LittleEndian64(header.size()) + header + std::string(data_bytes, '\0')) {}
  explicit HeaderFile(const std::string& bytes) : path_(folder_.path() + "/x.safetensors") {
    WriteFile(path_, bytes);
  }
  const std::string& path() const { return path_; }

 private:
  TemporaryFolder folder_;
  std::string path_;
};

void RefuseHeader(const std::string& header, size_t data_bytes, const char* words) {
  const HeaderFile file(header, data_bytes);
  CHECK_FAULT(SafetensorsFile(file.path()), FaultCode::kInvalidFile, words);
}

std::string Tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

}  // namespace

TEST(safetensors_reads_tensors_by_name) {
  const HeaderFile file("{\"__metadata__\":{\"format\":\"pt\"}," +
                            Tensor("b", "F32", "[2,1]", "[4,12]") + "," +
                            Tensor("a", "BF16", "[2]", "[0,4]") + "}   ",
                        12);
  const SafetensorsFile read(file.path());
  CHECK_EQ(read.entries().size(), size_t{2});
  CHECK_EQ(read.entries()[0].name, std::string("a"));
  CHECK_EQ(read.Find("b")->elements(), uint64_t{2});
  CHECK(read.Find("c") == nullptr);
  CHECK_EQ(read.metadata()[0].second, std::string("pt"));
}

TEST(safetensors_refuses_malformed_headers_by_tensor) {
  const HeaderFile empty("");
  CHECK_FAULT(SafetensorsFile(empty.path()), FaultCode::kInvalidFile, "too short");
  const HeaderFile huge(LittleEndian64(~uint64_t{0}) + "{}");
  CHECK_FAULT(SafetensorsFile(huge.path()), FaultCode::kInvalidFile, "exceeds");
  const HeaderFile wrap(LittleEndian64(~uint64_t{0} - 7) + "{}");
  CHECK_FAULT(SafetensorsFile(wrap.path()), FaultCode::kInvalidFile, "exceeds");
  const HeaderFile past(LittleEndian64(1000) + "{}");
  CHECK_FAULT(SafetensorsFile(past.path()), FaultCode::kInvalidFile, "past the end");
  CHECK_FAULT(SafetensorsFile("/nowhere/x.safetensors"), FaultCode::kInvalidFile, "cannot open");
  CHECK_FAULT(SafetensorsFile("/"), FaultCode::kInvalidFile, "not a regular file");

  RefuseHeader("", 0, "does not begin");
  RefuseHeader("[]", 0, "does not begin");
  RefuseHeader("{\"a\":1}", 0, "\"a\": expected exactly");
  RefuseHeader("{" + Tensor("a", "F99", "[1]", "[0,4]") + "}", 4, "\"a\": unknown dtype");
  RefuseHeader("{" + Tensor("a", "F32", "[1.5]", "[0,4]") + "}", 4, "\"a\": shape");
  RefuseHeader("{" + Tensor("a", "F32", "[-1]", "[0,4]") + "}", 4, "\"a\": shape");
  RefuseHeader("{" + Tensor("a", "F32", "[4294967296,4294967296]", "[0,4]") + "}", 4, "overflows");
  RefuseHeader("{" + Tensor("a", "F32", "[18446744073709551615]", "[0,4]") + "}", 4, "shape");
  RefuseHeader("{" + Tensor("a", "F32", "[1]", "[0]") + "}", 4, "not a pair");
  RefuseHeader("{" + Tensor("a", "F32", "[1]", "[0,8]") + "}", 4, "do not lie in");
  RefuseHeader("{" + Tensor("a", "F32", "[1]", "[4,0]") + "}", 4, "do not lie in");
  RefuseHeader("{" + Tensor("a", "F32", "[1]", "[18446744073709551612,18446744073709551615]") + "}",
               4, "do not lie in");
  RefuseHeader("{" + Tensor("a", "F32", "[2]", "[0,4]") + "}", 4, "needs 8 bytes");
  RefuseHeader(
      "{" + Tensor("a", "F32", "[1]", "[0,4]") + "," + Tensor("a", "F32", "[1]", "[4,8]") + "}", 8,
      "duplicate key \"a\"");
  RefuseHeader(
      "{" + Tensor("a", "F32", "[2]", "[0,8]") + "," + Tensor("b", "F32", "[1]", "[4,8]") + "}", 8,
      "overlaps");
  RefuseHeader(
      "{" + Tensor("a", "F32", "[1]", "[0,4]") + "," + Tensor("b", "F32", "[1]", "[8,12]") + "}",
      12, "gap");
  RefuseHeader("{" + Tensor("a", "F32", "[1]", "[0,4]") + "}", 8, "after the last tensor");
}

TEST(safetensors_widens_bf16_and_f16_exactly) {
  CHECK_EQ(WidenBf16(0x3F80), 1.0f);
  CHECK_EQ(WidenBf16(0xC000), -2.0f);
  // Every half: sign, exponent and fraction read off by arithmetic.
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float wide = WidenF16(static_cast<uint16_t>(bits));
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const int fraction = static_cast<int>(bits & 1023);
    const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
    if (exponent == 31) {
      CHECK(fraction == 0 ? std::isinf(wide) : std::isnan(wide));
      continue;
    }
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(fraction), -24)
                                : std::ldexp(1024.0f + static_cast<float>(fraction), exponent - 25);
    CHECK_EQ(wide, sign * magnitude);
    CHECK_EQ(std::signbit(wide), (bits & 0x8000) != 0);
  }
}

TEST(safetensors_canonical_header_is_padded_and_exact) {
  const std::string header = CanonicalF32Header({{"a", {2, 3}}, {"b", {1}}});
  const std::string json =
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[24,28]}}";
  const size_t padded = (json.size() + 7) / 8 * 8;
  CHECK_EQ(header, LittleEndian64(padded) + json + std::string(padded - json.size(), ' '));
}
