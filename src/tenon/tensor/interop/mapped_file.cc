#include "tenon/tensor/interop/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "tenon/base/error.h"

namespace tenon {

IntrusivePtr<MappedFile> MappedFile::open(const std::string& path) {
  const auto fail = [&](const char* reason) { return ParseError(path, 0, 0, reason); };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw fail(std::strerror(errno));
  struct stat info {};
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(file);
    throw fail("it is no regular file");
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  const int reason = errno;
  ::close(file);
  if (data == MAP_FAILED) throw fail(std::strerror(reason));
  return make_intrusive<MappedFile>(static_cast<char*>(data), size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

FileWriter::FileWriter(std::string path)
    : path_(std::move(path)), temporary_(fmt::format("{}.tmp{}", path_, ::getpid())) {
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail("cannot be created");
}

FileWriter::~FileWriter() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void FileWriter::write(const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(file_, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("cannot be written");
    at += written;
    size -= static_cast<std::size_t>(written);
  }
}

void FileWriter::commit() {
  if (::fsync(file_) != 0) fail("cannot be written");
  const int file = std::exchange(file_, -1);
  if (::close(file) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    errno = reason;
    fail("cannot be written");
  }
}

void FileWriter::fail(const char* what) const {
  throw std::runtime_error(fmt::format("{} {}: {}", path_, what, std::strerror(errno)));
}

}  // namespace tenon
