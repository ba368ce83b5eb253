// Files, as the engine needs them: read whole or by range, replace atomically and durably. Errors
// name the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hotbed {

class InputFile {
 public:
  // Throws EngineFault kInvalidFile when the file is missing or not a regular file, kIo when it
  // cannot be read.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  // Exactly `bytes` bytes from `offset`, or throws (kInvalidFile if the file has become shorter).
  void Read(uint64_t offset, void* out, size_t bytes) const;

 private:
  std::string path_;
  int descriptor_;
  uint64_t size_ = 0;
};

bool FileExists(const std::string& path);

// A whole small file as text. Throws as InputFile does, and kInvalidFile above `most_bytes`.
std::string ReadTextFile(const std::string& path, uint64_t most_bytes);

// Writes the parts one after another to a temporary name beside `path`, fsyncs, renames, fsyncs the
// folder: after a crash at any point `path` holds the old bytes or the new ones, whole. Throws
// EngineFault kIo (disk full, quota, ...) and leaves nothing behind.
void ReplaceFile(const std::string& path, const std::vector<std::string_view>& parts,
                 const std::function<void()>& meanwhile = nullptr);

}  // namespace hotbed
