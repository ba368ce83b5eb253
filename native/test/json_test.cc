#include "engine/json.h"

#include "fault_check.h"
#include "harness.h"

using namespace hotbed;

TEST(json_reads_every_kind) {
  const Json value = ParseJson(
      " {\"a\":[1,-2.5e1,true,false,null],\"b\":{\"c\":\"x\\n\\u00e9\\ud83d\\ude00\"}} ", "test");
  CHECK_EQ(value.Find("a")->items.size(), size_t{5});
  CHECK_EQ(*value.Find("a")->items[0].AsUnsigned(), uint64_t{1});
  CHECK_EQ(*value.Find("a")->items[1].AsDouble(), -25.0);
  CHECK(value.Find("a")->items[2].boolean);
  CHECK(value.Find("a")->items[4].is_null());
  CHECK_EQ(value.Find("b")->Find("c")->text, std::string("x\n\xc3\xa9\xf0\x9f\x98\x80"));
  CHECK(value.Find("d") == nullptr);
}

TEST(json_keeps_64_bit_integers_exact) {
  CHECK_EQ(*ParseJson("18446744073709551615", "test").AsUnsigned(), ~uint64_t{0});
  CHECK(!ParseJson("18446744073709551616", "test").AsUnsigned().has_value());
  CHECK(!ParseJson("-1", "test").AsUnsigned().has_value());
  CHECK(!ParseJson("1.0", "test").AsUnsigned().has_value());
}

TEST(json_refuses_what_it_cannot_mean) {
  const auto refuse = [](const std::string& text, const char* words) {
    CHECK_FAULT(ParseJson(text, "file"), FaultCode::kInvalidFile, words);
  };
  refuse("", "ends too early");
  refuse("{\"a\":1,\"a\":2}", "duplicate key \"a\"");
  refuse("[1,]", "unexpected character");
  refuse("{\"a\" 1}", "unexpected character");
  refuse("[1] 2", "after the end");
  refuse("NaN", "unexpected character");
  refuse("01", "after the end");
  refuse("\"a\nb\"", "control character");
  refuse("\"\\ud800\"", "unexpected character");
  refuse("\"\\udc00\"", "unpaired surrogate");
  refuse("\"\xc0\xaf\"", "invalid UTF-8");
  refuse("\"\xed\xa0\x80\"", "invalid UTF-8");
  refuse("\"\xf4\x90\x80\x80\"", "invalid UTF-8");
  refuse("\"\xe2\x82\"", "invalid UTF-8");
  refuse(std::string(100, '['), "nested deeper");
  // A few megabytes of document must not become gigabytes of values.
  std::string many = "[0";
  for (int i = 0; i < (1 << 22); ++i) many += ",0";
  refuse(many + "]", "more than 4194304 values");
}

TEST(json_writes_numbers_as_ecmascript_does) {
  CHECK_EQ(NumberToJson(16), "16");
  CHECK_EQ(NumberToJson(0.1), "0.1");
  CHECK_EQ(NumberToJson(-0.0), "0");
  CHECK_EQ(NumberToJson(1e21), "1e+21");
  CHECK_EQ(NumberToJson(1e20), "100000000000000000000");
  CHECK_EQ(NumberToJson(1e-6), "0.000001");
  CHECK_EQ(NumberToJson(1e-7), "1e-7");
  CHECK_EQ(NumberToJson(-1.5e300), "-1.5e+300");
  CHECK_EQ(NumberToJson(123456789.125), "123456789.125");
  CHECK_EQ(NumberToJson(5e-324), "5e-324");
}

TEST(json_quotes_as_rfc_8785_does) {
  CHECK_EQ(QuoteJson("a\"\\\b\f\n\r\t\x01/\xc3\xa9"),
           std::string("\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001/\xc3\xa9\""));
}
