#include "engine/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/fault.h"

namespace hotbed {
namespace {

std::string ErrorText() { return std::string(std::strerror(errno)); }

// A descriptor that is closed, and a temporary file that is removed, unless the replacement went
// through.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target) {
    static std::atomic<uint64_t> counter{0};
    path_ = target + "." + std::to_string(getpid()) + "-" + std::to_string(++counter) + ".tmp";
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (descriptor_ < 0) {
      throw EngineFault(FaultCode::kIo, path_ + ": cannot create: " + ErrorText());
    }
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!path_.empty()) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  // All parts, many in one call: an adapter has hundreds of small tensors.
  void Write(const std::vector<std::string_view>& parts) {
    constexpr size_t kMostParts = 512;  // below IOV_MAX
    std::vector<iovec> vectors;
    size_t next = 0, skipped = 0;  // bytes of parts[next] that are written already
    while (next < parts.size()) {
      vectors.clear();
      for (size_t i = next; i < parts.size() && vectors.size() < kMostParts; ++i) {
        const std::string_view part = parts[i].substr(i == next ? skipped : 0);
        vectors.push_back({const_cast<char*>(part.data()), part.size()});
      }
      const ssize_t written = writev(descriptor_, vectors.data(), static_cast<int>(vectors.size()));
      if (written < 0) {
        if (errno == EINTR) continue;
        throw EngineFault(FaultCode::kIo, path_ + ": cannot write: " + ErrorText());
      }
      for (size_t left = static_cast<size_t>(written); next < parts.size();) {
        const size_t rest = parts[next].size() - skipped;
        if (left < rest) {
          skipped += left;
          break;
        }
        left -= rest;
        skipped = 0;
        ++next;
      }
    }
  }

  // The disk may begin; MoveTo waits for it.
  void BeginSync() { sync_file_range(descriptor_, 0, 0, SYNC_FILE_RANGE_WRITE); }

  void MoveTo(const std::string& target) {
    if (fsync(descriptor_) != 0) {
      throw EngineFault(FaultCode::kIo, path_ + ": cannot sync: " + ErrorText());
    }
    const int descriptor = descriptor_;
    descriptor_ = -1;
    if (close(descriptor) != 0) {
      throw EngineFault(FaultCode::kIo, path_ + ": cannot close: " + ErrorText());
    }
    if (rename(path_.c_str(), target.c_str()) != 0) {
      throw EngineFault(FaultCode::kIo, target + ": cannot replace: " + ErrorText());
    }
    path_.clear();
  }

 private:
  std::string path_;
  int descriptor_;
};

void SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && fsync(descriptor) == 0;
  const std::string problem = synced ? "" : ErrorText();
  if (descriptor >= 0) close(descriptor);
  if (!synced) throw EngineFault(FaultCode::kIo, folder + ": cannot sync the folder: " + problem);
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    // Names that no file can have come from damaged files that name others.
    const bool absent = errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG;
    throw EngineFault(absent ? FaultCode::kInvalidFile : FaultCode::kIo,
                      path + ": cannot open: " + ErrorText());
  }
  struct stat info;
  if (fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(descriptor_);
    throw EngineFault(FaultCode::kInvalidFile, path + ": not a regular file");
  }
  size_ = static_cast<uint64_t>(info.st_size);
}

InputFile::~InputFile() { close(descriptor_); }

void InputFile::Read(uint64_t offset, void* out, size_t bytes) const {
  auto* p = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, p, bytes, static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      throw EngineFault(FaultCode::kIo, path_ + ": cannot read: " + ErrorText());
    }
    if (got == 0) {
      throw EngineFault(FaultCode::kInvalidFile,
                        path_ + ": the file ends too early, at byte " + std::to_string(offset));
    }
    p += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

bool FileExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

std::string ReadTextFile(const std::string& path, uint64_t most_bytes) {
  const InputFile file(path);
  if (file.size() > most_bytes) {
    throw EngineFault(FaultCode::kInvalidFile, path + ": " + std::to_string(file.size()) +
                                                   " bytes, more than the allowed " +
                                                   std::to_string(most_bytes));
  }
  std::string text(file.size(), '\0');
  file.Read(0, text.data(), text.size());
  return text;
}

void ReplaceFile(const std::string& path, const std::vector<std::string_view>& parts,
                 const std::function<void()>& meanwhile) {
  TemporaryFile temporary(path);
  temporary.Write(parts);
  if (meanwhile) {
    temporary.BeginSync();
    meanwhile();
  }
  temporary.MoveTo(path);
  SyncFolderOf(path);
}

}  // namespace hotbed
