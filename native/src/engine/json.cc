#include "engine/json.h"

#include <charconv>
#include <cmath>
#include <unordered_set>

#include "engine/fault.h"

namespace hotbed {
namespace {

constexpr int kMaxDepth = 64;
// A value takes about 100 bytes here and as few as two in the document, so the document's size
// alone bounds little. The largest tokenizers (262,144 tokens, 515,000 merges of two) have 1.8
// million.
constexpr size_t kMostValues = size_t{1} << 22;

class Parser {
 public:
  Parser(std::string_view document, const std::string& what) : document_(document), what_(what) {}

  Json Document() {
    Json value = Value(0);
    SkipSpace();
    if (at_ != document_.size()) Fail("text after the end of the document");
    return value;
  }

 private:
  [[noreturn]] void Fail(const std::string& problem) const {
    throw EngineFault(FaultCode::kInvalidFile,
                      what_ + ": not valid JSON at byte " + std::to_string(at_) + ": " + problem);
  }

  void SkipSpace() {
    while (at_ < document_.size()) {
      const char c = document_[at_];
      if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return;
      ++at_;
    }
  }

  char Peek() const {
    if (at_ >= document_.size()) Fail("the document ends too early");
    return document_[at_];
  }

  void Expect(std::string_view word) {
    if (document_.substr(at_, word.size()) != word) Fail("unexpected character");
    at_ += word.size();
  }

  Json Value(int depth) {
    if (depth > kMaxDepth) Fail("nested deeper than 64 levels");
    if (++values_ > kMostValues) Fail("more than 4194304 values");
    SkipSpace();
    Json value;
    switch (Peek()) {
      case '{':
        Object(value, depth);
        break;
      case '[':
        Array(value, depth);
        break;
      case '"':
        value.kind = Json::Kind::kString;
        value.text = String();
        break;
      case 't':
        Expect("true");
        value.kind = Json::Kind::kBool;
        value.boolean = true;
        break;
      case 'f':
        Expect("false");
        value.kind = Json::Kind::kBool;
        break;
      case 'n':
        Expect("null");
        break;
      default:
        value.kind = Json::Kind::kNumber;
        value.text = Number();
    }
    return value;
  }

  void Object(Json& object, int depth) {
    object.kind = Json::Kind::kObject;
    ++at_;
    SkipSpace();
    if (Peek() == '}') {
      ++at_;
      return;
    }
    std::unordered_set<std::string> seen;
    while (true) {
      SkipSpace();
      if (Peek() != '"') Fail("expected a key in double quotes");
      std::string key = String();
      if (!seen.insert(key).second) Fail("duplicate key \"" + key + "\"");
      SkipSpace();
      Expect(":");
      object.members.emplace_back(std::move(key), Value(depth + 1));
      SkipSpace();
      if (Peek() == ',') {
        ++at_;
        continue;
      }
      Expect("}");
      return;
    }
  }

  void Array(Json& array, int depth) {
    array.kind = Json::Kind::kArray;
    ++at_;
    SkipSpace();
    if (Peek() == ']') {
      ++at_;
      return;
    }
    while (true) {
      array.items.push_back(Value(depth + 1));
      SkipSpace();
      if (Peek() == ',') {
        ++at_;
        continue;
      }
      Expect("]");
      return;
    }
  }

  void Digits() {
    const size_t start = at_;
    while (at_ < document_.size() && document_[at_] >= '0' && document_[at_] <= '9') ++at_;
    if (at_ == start) Fail("unexpected character");
  }

  std::string Number() {
    const size_t start = at_;
    if (document_[at_] == '-') ++at_;
    if (Peek() == '0') {
      ++at_;
    } else {
      Digits();
    }
    if (at_ < document_.size() && document_[at_] == '.') {
      ++at_;
      Digits();
    }
    if (at_ < document_.size() && (document_[at_] == 'e' || document_[at_] == 'E')) {
      ++at_;
      if (at_ < document_.size() && (document_[at_] == '+' || document_[at_] == '-')) ++at_;
      Digits();
    }
    return std::string(document_.substr(start, at_ - start));
  }

  uint32_t FourHexDigits() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = Peek();
      uint32_t digit;
      if (c >= '0' && c <= '9') {
        digit = static_cast<uint32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<uint32_t>(c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<uint32_t>(c - 'A' + 10);
      } else {
        Fail("expected four hexadecimal digits");
      }
      code = code * 16 + digit;
      ++at_;
    }
    return code;
  }

  static void AppendUtf8(std::string& out, uint32_t code) {
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xC0 | (code >> 6));
      out += static_cast<char>(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      out += static_cast<char>(0xE0 | (code >> 12));
      out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (code & 0x3F));
    } else {
      out += static_cast<char>(0xF0 | (code >> 18));
      out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
      out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (code & 0x3F));
    }
  }

  void Escape(std::string& out) {
    const char c = Peek();
    ++at_;
    switch (c) {
      case '"':
      case '\\':
      case '/':
        out += c;
        return;
      case 'b':
        out += '\b';
        return;
      case 'f':
        out += '\f';
        return;
      case 'n':
        out += '\n';
        return;
      case 'r':
        out += '\r';
        return;
      case 't':
        out += '\t';
        return;
      case 'u':
        break;
      default:
        Fail("unknown escape");
    }
    uint32_t code = FourHexDigits();
    if (code >= 0xD800 && code < 0xDC00) {
      Expect("\\u");
      const uint32_t low = FourHexDigits();
      if (low < 0xDC00 || low > 0xDFFF) Fail("unpaired surrogate");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
      Fail("unpaired surrogate");
    }
    AppendUtf8(out, code);
  }

  // Copies one well-formed multi-byte UTF-8 character (no overlong forms, no surrogates).
  void MultiByte(std::string& out) {
    const auto byte = [this](size_t i) -> unsigned {
      return at_ + i < document_.size() ? static_cast<unsigned char>(document_[at_ + i]) : 0u;
    };
    const unsigned lead = byte(0);
    size_t length = 0;
    unsigned low = 0x80;
    unsigned high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
      length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      length = 3;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      length = 4;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      Fail("invalid UTF-8");
    }
    for (size_t i = 1; i < length; ++i) {
      const unsigned next = byte(i);
      if (next < (i == 1 ? low : 0x80u) || next > (i == 1 ? high : 0xBFu)) Fail("invalid UTF-8");
    }
    out.append(document_.substr(at_, length));
    at_ += length;
  }

  std::string String() {
    ++at_;
    std::string out;
    while (true) {
      const unsigned char c = static_cast<unsigned char>(Peek());
      if (c == '"') {
        ++at_;
        return out;
      }
      if (c == '\\') {
        ++at_;
        Escape(out);
      } else if (c < 0x20) {
        Fail("control character in a string");
      } else if (c < 0x80) {
        out += static_cast<char>(c);
        ++at_;
      } else {
        MultiByte(out);
      }
    }
  }

  std::string_view document_;
  const std::string& what_;
  size_t at_ = 0;
  size_t values_ = 0;
};

}  // namespace

const Json* Json::Find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::optional<uint64_t> Json::AsUnsigned() const {
  if (kind != Kind::kNumber) return std::nullopt;
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<double> Json::AsDouble() const {
  if (kind != Kind::kNumber) return std::nullopt;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

Json ParseJson(std::string_view document, const std::string& what) {
  return Parser(document, what).Document();
}

std::string QuoteJson(std::string_view value) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char raw : value) {
    const auto c = static_cast<unsigned char>(raw);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (c < 0x20) {
          out += "\\u00";
          out += kHex[c >> 4];
          out += kHex[c & 15];
        } else {
          out += raw;
        }
    }
  }
  return out + "\"";
}

std::string NumberToJson(double value) {
  if (value == 0) return "0";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  // "-d.ddde±xx" -> sign, digits and the decimal point's place n as ECMA-262 names it (value =
  // 0.digits * 10^n).
  std::string sign;
  std::string digits;
  const char* p = buffer;
  if (*p == '-') {
    sign = "-";
    ++p;
  }
  for (; p != end && *p != 'e'; ++p) {
    if (*p != '.') digits += *p;
  }
  ++p;
  if (*p == '+') ++p;
  int exponent = 0;
  std::from_chars(p, end, exponent);
  const int k = static_cast<int>(digits.size());
  const int n = exponent + 1;
  if (k <= n && n <= 21) return sign + digits + std::string(static_cast<size_t>(n - k), '0');
  if (0 < n && n <= 21) {
    return sign + digits.substr(0, static_cast<size_t>(n)) + "." +
           digits.substr(static_cast<size_t>(n));
  }
  if (-6 < n && n <= 0) return sign + "0." + std::string(static_cast<size_t>(-n), '0') + digits;
  std::string out = sign + digits.substr(0, 1);
  if (k > 1) out += "." + digits.substr(1);
  return out + "e" + (n - 1 < 0 ? "-" : "+") + std::to_string(n - 1 < 0 ? 1 - n : n - 1);
}

}  // namespace hotbed
