// A strict JSON reader for the small files of model and adapter folders.
//
// Own, because the build may use only Node's tool chain and no JSON header ships through npm.
// Strict where a mistake would be silent: duplicate keys, trailing text, control characters,
// invalid UTF-8, NaN and nesting deeper than 64 are refused. Numbers keep their literal, so 64-bit
// integers stay exact.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotbed {

class Json {
 public:
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  std::string text;                                   // a string's value, or a number's literal
  std::vector<Json> items;                            // of an array
  std::vector<std::pair<std::string, Json>> members;  // of an object, in file order

  bool is_null() const { return kind == Kind::kNull; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_number() const { return kind == Kind::kNumber; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }

  // The member of an object, nullptr when absent.
  const Json* Find(std::string_view key) const;
  // The number if it is a plain non-negative integer of 64 bits, nothing otherwise.
  std::optional<uint64_t> AsUnsigned() const;
  // The number as the nearest finite double, nothing otherwise.
  std::optional<double> AsDouble() const;
};

// Parses a whole document. `what` opens every error message (a path). Throws EngineFault
// kInvalidFile.
Json ParseJson(std::string_view document, const std::string& what);

// `value` as a quoted JSON string: the two-character escapes and \u00xx, everything else as it
// stands (RFC 8785).
std::string QuoteJson(std::string_view value);

// The shortest text that reads back as `value`, laid out as ECMAScript does (RFC 8785). `value` is
// finite.
std::string NumberToJson(double value);

}  // namespace hotbed
