// Reading whole files, and writing them by way of a temporary file and a rename.
#include "tools/io/file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tools/failure.hpp"

namespace tandem::tools {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const char* doing, int error) {
  throw Failure(fmt::format("{}: can't {}: {}", path, doing, std::strerror(error)));
}

/// Owns a temporary file until it has been renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target) : target_(target), path_(target + ".XXXXXX") {
    descriptor_ = mkstemp(path_.data());
    if (descriptor_ < 0) fail(target_, "write", errno);
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!path_.empty()) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write_all(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(target_, "write", errno);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }

  void commit() {
    const mode_t mask = umask(0);  // mkstemp gives 0600; a result should have the permissions of any new file
    umask(mask);
    if (fchmod(descriptor_, 0666 & ~mask) != 0) fail(target_, "write", errno);
    const int descriptor = std::exchange(descriptor_, -1);
    if (close(descriptor) != 0) fail(target_, "write", errno);
    if (rename(path_.c_str(), target_.c_str()) != 0) fail(target_, "write", errno);
    path_.clear();
  }

 private:
  std::string target_, path_;
  int descriptor_ = -1;
};

/// Pipes and devices (/dev/stdout) can't be replaced by a rename.
bool is_special(const std::string& path) {
  std::error_code ignored;
  const auto status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

}  // namespace

Bytes read_file(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) throw Failure(fmt::format("{}: can't read: it is a directory", path));
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path, "read", errno != 0 ? errno : EIO);
  Bytes bytes;
  constexpr size_t step = size_t{1} << 20;
  while (in) {
    const size_t size = bytes.size();
    bytes.resize(size + step);
    in.read(reinterpret_cast<char*>(bytes.data() + size), step);
    bytes.resize(size + static_cast<size_t>(in.gcount()));
  }
  if (in.bad()) fail(path, "read", errno != 0 ? errno : EIO);
  return bytes;
}

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  if (fs::is_directory(path)) throw Failure(fmt::format("{}: can't write: it is a directory", path));
  if (is_special(path)) {
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) fail(path, "write", errno != 0 ? errno : EIO);
    return;
  }
  TemporaryFile file(path);
  file.write_all(bytes);
  file.commit();
}

void write_file(const std::string& path, const std::string& text) { write_file(path, std::as_bytes(std::span(text))); }

void require_writable(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) throw Failure(fmt::format("{}: can't write: it is a directory", path));
  if (!is_special(path)) TemporaryFile probe(path);
}

bool ends_with(const std::string& path, const char* extension) {
  const size_t length = std::strlen(extension);
  return path.size() >= length && path.compare(path.size() - length, length, extension) == 0;
}

}  // namespace tandem::tools
