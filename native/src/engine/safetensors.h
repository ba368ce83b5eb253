// One *.safetensors file: u64 little-endian header length, JSON header, data. The header is checked
// in full before any of it is believed: length, JSON, keys, dtypes, shapes, offsets in range, no
// overlap, no gap, nothing after the last tensor.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/file_io.h"

namespace hotbed {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // "F32", "BF16", ...
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the data
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
  uint64_t elements() const;
};

class SafetensorsFile {
 public:
  // Throws EngineFault kInvalidFile naming file and tensor, kIo.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // Ascending by name (bytes).
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }
  const SafetensorsEntry* Find(const std::string& name) const;
  // The tensor's stored bytes; `out` has room for entry.bytes().
  void Read(const SafetensorsEntry& entry, void* out) const;
  // The tensor as F32; only F32, BF16 and F16, each widened exactly. `out` has room for
  // entry.elements().
  void ReadF32(const SafetensorsEntry& entry, float* out) const;

 private:
  InputFile file_;
  uint64_t data_start_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

// "[2,3]" for messages.
std::string ShapeText(const std::vector<int64_t>& shape);

// The canonical header of F32 tensors laid out in the given order (the caller passes names in
// ascending byte order): u64 length, keys in that order, fields dtype, shape, data_offsets, no
// spaces, padded with 0x20 to a multiple of 8, no metadata. Data follows in the same order.
std::string CanonicalF32Header(
    const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors);

float WidenF16(uint16_t half);
float WidenBf16(uint16_t bits);

}  // namespace hotbed
