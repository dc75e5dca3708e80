#include "tenon/tensor/interop/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tenon/base/error.h"

namespace tenon {

IntrusivePtr<MappedFile> MappedFile::open(const std::string& path) {
  const auto fail = [&](const char* reason) { return ParseError(path, 0, 0, reason); };
  // O_NONBLOCK: to open a FIFO does not wait for a writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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

}  // namespace tenon
