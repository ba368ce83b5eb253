#include "engine/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "engine/fault.h"
#include "engine/json.h"

namespace hotbed {
namespace {

// The format's own limit (the reference implementation refuses more).
constexpr uint64_t kMostHeaderBytes = 100'000'000;

uint64_t BytesOf(const std::string& dtype) {
  static constexpr struct {
    const char* name;
    uint64_t bytes;
  } kTypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
                {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
                {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  for (const auto& type : kTypes) {
    if (dtype == type.name) return type.bytes;
  }
  return 0;
}

[[noreturn]] void Refuse(const std::string& path, const std::string& problem) {
  throw EngineFault(FaultCode::kInvalidFile, path + ": " + problem);
}

SafetensorsEntry ParseEntry(const std::string& path, const std::string& name, const Json& value,
                            uint64_t data_bytes) {
  const std::string who = "tensor \"" + name + "\": ";
  const Json* dtype = value.Find("dtype");
  const Json* shape = value.Find("shape");
  const Json* offsets = value.Find("data_offsets");
  if (!value.is_object() || value.members.size() != 3 || dtype == nullptr || shape == nullptr ||
      offsets == nullptr || !dtype->is_string() || !shape->is_array() || !offsets->is_array()) {
    Refuse(path, who + "expected exactly dtype, shape and data_offsets");
  }
  SafetensorsEntry entry;
  entry.name = name;
  entry.dtype = dtype->text;
  const uint64_t element_bytes = BytesOf(entry.dtype);
  if (element_bytes == 0) Refuse(path, who + "unknown dtype " + QuoteJson(entry.dtype));
  uint64_t bytes = element_bytes;
  for (const Json& item : shape->items) {
    const auto size = item.AsUnsigned();
    if (!size || *size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      Refuse(path, who + "shape holds something other than sizes");
    }
    if (__builtin_mul_overflow(bytes, *size, &bytes)) {
      Refuse(path, who + "the shape's size overflows 64 bits");
    }
    entry.shape.push_back(static_cast<int64_t>(*size));
  }
  const auto begin =
      offsets->items.size() == 2 ? offsets->items[0].AsUnsigned() : std::optional<uint64_t>();
  const auto end =
      offsets->items.size() == 2 ? offsets->items[1].AsUnsigned() : std::optional<uint64_t>();
  if (!begin || !end) Refuse(path, who + "data_offsets is not a pair of byte positions");
  if (*begin > *end || *end > data_bytes) {
    Refuse(path, who + "data_offsets [" + std::to_string(*begin) + "," + std::to_string(*end) +
                     "] do not lie in the file's " + std::to_string(data_bytes) +
                     " bytes of data (truncated file?)");
  }
  if (*end - *begin != bytes) {
    Refuse(path, who + "shape " + ShapeText(entry.shape) + " of " + entry.dtype + " needs " +
                     std::to_string(bytes) + " bytes, data_offsets give " +
                     std::to_string(*end - *begin));
  }
  entry.begin = *begin;
  entry.end = *end;
  return entry;
}

void CheckCoverage(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                   uint64_t data_bytes) {
  std::vector<const SafetensorsEntry*> by_offset;
  for (const SafetensorsEntry& entry : entries) by_offset.push_back(&entry);
  std::sort(by_offset.begin(), by_offset.end(), [](const auto* a, const auto* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  uint64_t at = 0;
  for (const SafetensorsEntry* entry : by_offset) {
    if (entry->begin < at) {
      Refuse(path, "tensor \"" + entry->name + "\": its data overlaps another tensor's");
    }
    if (entry->begin > at) {
      Refuse(path, "tensor \"" + entry->name + "\": a gap of " + std::to_string(entry->begin - at) +
                       " bytes before its data");
    }
    at = entry->end;
  }
  if (at != data_bytes) {
    Refuse(path, std::to_string(data_bytes - at) + " bytes after the last tensor");
  }
}

}  // namespace

uint64_t SafetensorsEntry::elements() const {
  uint64_t count = 1;
  for (const int64_t size : shape) count *= static_cast<uint64_t>(size);
  return count;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  if (file_.size() < 8) Refuse(path, "too short for a safetensors header");
  uint8_t length_bytes[8];
  file_.Read(0, length_bytes, 8);
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) header_bytes = header_bytes << 8 | length_bytes[i];
  if (header_bytes > kMostHeaderBytes) {
    Refuse(path, "header length " + std::to_string(header_bytes) + " exceeds the format's limit");
  }
  if (header_bytes > file_.size() - 8) {
    Refuse(path, "header length " + std::to_string(header_bytes) +
                     " goes past the end of the file (truncated?)");
  }
  std::string text(header_bytes, '\0');
  file_.Read(8, text.data(), text.size());
  if (text.empty() || text[0] != '{') Refuse(path, "the header does not begin with '{'");
  data_start_ = 8 + header_bytes;
  const uint64_t data_bytes = file_.size() - data_start_;

  const Json header = ParseJson(text, path + ": header");
  for (const auto& [name, value] : header.members) {
    if (name == "__metadata__") {
      if (!value.is_object()) Refuse(path, "__metadata__ is not an object of strings");
      for (const auto& [key, item] : value.members) {
        if (!item.is_string()) Refuse(path, "__metadata__ is not an object of strings");
        metadata_.emplace_back(key, item.text);
      }
    } else {
      entries_.push_back(ParseEntry(path, name, value, data_bytes));
    }
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  CheckCoverage(path, entries_, data_bytes);
}

const SafetensorsEntry* SafetensorsFile::Find(const std::string& name) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const SafetensorsEntry& a, const std::string& b) { return a.name < b; });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

void SafetensorsFile::Read(const SafetensorsEntry& entry, void* out) const {
  file_.Read(data_start_ + entry.begin, out, entry.bytes());
}

void SafetensorsFile::ReadF32(const SafetensorsEntry& entry, float* out) const {
  if (entry.dtype == "F32") {
    Read(entry, out);
    return;
  }
  const bool bf16 = entry.dtype == "BF16";
  if (!bf16 && entry.dtype != "F16") {
    Refuse(path(), "tensor \"" + entry.name + "\": dtype " + entry.dtype +
                       " is not supported; expected F32, F16 or BF16");
  }
  const uint64_t count = entry.elements();
  const auto narrow = std::make_unique<uint16_t[]>(count);
  Read(entry, narrow.get());
  for (uint64_t i = 0; i < count; ++i) out[i] = bf16 ? WidenBf16(narrow[i]) : WidenF16(narrow[i]);
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ",";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::string CanonicalF32Header(
    const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors) {
  std::string json = "{";
  uint64_t at = 0;
  for (const auto& [name, shape] : tensors) {
    uint64_t bytes = 4;
    for (const int64_t size : shape) bytes *= static_cast<uint64_t>(size);
    if (json.size() > 1) json += ",";
    json += QuoteJson(name) + ":{\"dtype\":\"F32\",\"shape\":" + ShapeText(shape) +
            ",\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + bytes) + "]}";
    at += bytes;
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string header(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    header[i] = static_cast<char>(static_cast<uint64_t>(json.size()) >> (8 * i));
  }
  return header + json;
}

float WidenBf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

float WidenF16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1Fu;
  uint32_t fraction = half & 0x3FFu;
  uint32_t wide;
  if (exponent == 31) {
    wide = sign | 0x7F800000u | fraction << 13;
  } else if (exponent != 0) {
    wide = sign | (exponent + 112) << 23 | fraction << 13;
  } else if (fraction == 0) {
    wide = sign;
  } else {
    // A subnormal half is a normal float: shift the leading one into the implicit place.
    exponent = 113;
    while ((fraction & 0x400u) == 0) {
      fraction <<= 1;
      --exponent;
    }
    wide = sign | exponent << 23 | (fraction & 0x3FFu) << 13;
  }
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

}  // namespace hotbed
