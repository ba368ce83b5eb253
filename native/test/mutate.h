// Seeded damage to files: bytes, JSON that stays JSON more often than not, safetensors whose header
// stays readable. One seed gives one sequence of damages.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "model_folder.h"

namespace hotbed::test {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  size_t Below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(random_() % n); }

  // A few bytes changed, removed, added, repeated or cut off, in the first `within` bytes.
  std::string Bytes(std::string bytes, size_t within) {
    for (size_t edits = 1 + Below(4); edits > 0 && !bytes.empty(); --edits) {
      const size_t at = Below(std::min(within, bytes.size()));
      switch (Below(5)) {
        case 0:
          bytes[at] = static_cast<char>(random_());
          break;
        case 1:
          bytes.erase(at, 1 + Below(8));
          break;
        case 2:
          bytes.insert(at, 1, "0123456789{}[],:\"-e\\"[Below(20)]);
          break;
        case 3:
          bytes.resize(at);
          break;
        default:
          bytes.replace(at, 1, bytes.substr(Below(bytes.size()), Below(16)));
      }
    }
    return bytes;
  }

  // Values replaced by awkward ones, members repeated, removed, exchanged or nested deeply.
  std::string Json(std::string text) {
    if (Below(8) == 0) return Bytes(text, text.size());
    for (size_t edits = 1 + Below(3); edits > 0; --edits) text = JsonOnce(text);
    return text;
  }

  // The header damaged as JSON and its length put right; or the length, the data or the file's end
  // damaged.
  std::string Safetensors(const std::string& file) {
    const size_t header_bytes = HeaderBytes(file);
    const std::string header = file.substr(8, header_bytes);
    std::string data = file.substr(8 + header_bytes);
    switch (Below(8)) {
      case 0: {
        const uint64_t lengths[] = {0,
                                    1,
                                    header_bytes - 1,
                                    header_bytes + 1,
                                    file.size() - 8,
                                    file.size() - 7,
                                    file.size(),
                                    100'000'000,
                                    100'000'001,
                                    uint64_t{1} << 32,
                                    uint64_t{1} << 63,
                                    ~uint64_t{0} - 7,
                                    ~uint64_t{0}};
        return LittleEndian64(lengths[Below(std::size(lengths))]) + file.substr(8);
      }
      case 1:
        return Bytes(file, 8 + header_bytes);
      case 2:
        return file.substr(0, Below(file.size()));
      case 3:
        Awkward(data);
        return LittleEndian64(header.size()) + header + data;
      case 4:
        return file + std::string(1 + Below(9), '\0');
      default: {
        const std::string damaged = Json(header);
        return LittleEndian64(damaged.size()) + damaged + data;
      }
    }
  }

 private:
  struct Token {
    size_t begin;
    size_t end;
    bool text;
  };

  static size_t HeaderBytes(const std::string& file) {
    uint64_t bytes = 0;
    for (int i = 7; i >= 0; --i) bytes = bytes << 8 | static_cast<unsigned char>(file[i]);
    return bytes;
  }

  // Where a string begins at `at`, the place after its closing quote.
  static size_t EndOfText(const std::string& json, size_t at) {
    for (++at; at < json.size() && json[at] != '"'; ++at) {
      if (json[at] == '\\') ++at;
    }
    return std::min(at + 1, json.size());
  }

  static std::vector<Token> Tokens(const std::string& json) {
    std::vector<Token> tokens;
    for (size_t at = 0; at < json.size();) {
      if (json[at] == '"') {
        const size_t end = EndOfText(json, at);
        tokens.push_back({at, end, true});
        at = end;
      } else if (json[at] == '-' || (json[at] >= '0' && json[at] <= '9')) {
        const size_t end = std::min(json.find_first_not_of("0123456789+-.eE", at), json.size());
        tokens.push_back({at, end, false});
        at = end;
      } else {
        ++at;
      }
    }
    return tokens;
  }

  // The end of the value that begins at `at`.
  static size_t EndOfValue(const std::string& json, size_t at) {
    int depth = 0;
    while (at < json.size()) {
      const char c = json[at];
      if (c == '"') {
        at = EndOfText(json, at);
        continue;
      }
      if (depth == 0 && (c == ',' || c == '}' || c == ']')) return at;
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      ++at;
    }
    return at;
  }

  std::string AwkwardValue() {
    static const char* const kValues[] = {"0",
                                          "1",
                                          "2",
                                          "3",
                                          "-1",
                                          "-0",
                                          "1.5",
                                          "1e3",
                                          "1e-300",
                                          "1e300",
                                          "1e999",
                                          "NaN",
                                          "255",
                                          "65536",
                                          "1048576",
                                          "16777216",
                                          "268435456",
                                          "2147483647",
                                          "2147483648",
                                          "4294967295",
                                          "4294967296",
                                          "9007199254740993",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "18446744073709551608",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "null",
                                          "true",
                                          "false",
                                          "[]",
                                          "{}",
                                          "[4,16]",
                                          "[0]",
                                          "\"\"",
                                          "\"4\"",
                                          "\"F64\"",
                                          "\"F16\"",
                                          "\"BOOL\"",
                                          "\"F8_E4M3\"",
                                          "\"bf16\"",
                                          "\"yarn\"",
                                          "\"llama3\"",
                                          "\"linear\"",
                                          "\"\\ud800\"",
                                          "\"\\u0000\"",
                                          "\"../x\""};
    const size_t choice = Below(std::size(kValues) + 3);
    if (choice < std::size(kValues)) return kValues[choice];
    if (choice == std::size(kValues)) return std::string(5000, '9');
    if (choice == std::size(kValues) + 1) return "\"" + std::string(5000, 'x') + "\"";
    const size_t depth = 1 + Below(200);
    return std::string(depth, '[') + "1" + std::string(depth, ']');
  }

  std::string JsonOnce(std::string json) {
    const std::vector<Token> tokens = Tokens(json);
    if (tokens.empty()) return Bytes(json, json.size());
    const Token token = tokens[Below(tokens.size())];
    const size_t after = json.find_first_not_of(" \n\t", token.end);
    const bool is_key = token.text && after != std::string::npos && json[after] == ':';
    const std::string one = json.substr(token.begin, token.end - token.begin);
    switch (Below(6)) {
      case 0: {  // two tokens change places
        const Token other = tokens[Below(tokens.size())];
        const Token& first = token.begin < other.begin ? token : other;
        const Token& second = token.begin < other.begin ? other : token;
        if (first.begin == second.begin) return json;
        const std::string a = json.substr(first.begin, first.end - first.begin);
        const std::string b = json.substr(second.begin, second.end - second.begin);
        return json.replace(second.begin, b.size(), a).replace(first.begin, a.size(), b);
      }
      case 1:
      case 2:
        if (is_key) {  // a member is repeated, removed, or gets another value
          const size_t end = EndOfValue(json, after + 1);
          const std::string member = json.substr(token.begin, end - token.begin);
          switch (Below(4)) {
            case 0:
              return json.insert(token.begin, member + ",");
            case 1:
              return json.erase(token.begin,
                                end - token.begin + (end < json.size() && json[end] == ','));
            case 2:
              return json.replace(after + 1, end - after - 1, AwkwardValue());
            default:
              return json.insert(token.begin, "\"unknown_member\":" + AwkwardValue() + ",");
          }
        }
        return json.replace(token.begin, one.size(), AwkwardValue());
      case 3:
        if (!token.text) {  // a number that is a little off
          const uint64_t value = std::strtoull(one.c_str(), nullptr, 10) + Below(9) - 4;
          return json.replace(token.begin, one.size(), std::to_string(value));
        }
        return json.replace(token.begin, one.size(),
                            "\"" + Bytes(one.substr(1, one.size() - 2), one.size()) + "\"");
      default:
        return json.replace(token.begin, one.size(), AwkwardValue());
    }
  }

  // NaN, infinities, the greatest and the smallest values of each dtype, somewhere in the data.
  void Awkward(std::string& data) {
    static const std::array<uint32_t, 7> kPatterns = {
        0x7FC00000u, 0x7F800000u, 0xFF800000u, 0x7F7FFFFFu, 0x00000001u, 0x7C007C00u, 0x7F807F80u};
    for (size_t edits = 1 + Below(3); edits > 0 && data.size() >= 4; --edits) {
      const uint32_t pattern = kPatterns[Below(kPatterns.size())];
      std::memcpy(data.data() + Below(data.size() / 4) * 4, &pattern, 4);
    }
  }

  std::mt19937_64 random_;
};

}  // namespace hotbed::test
