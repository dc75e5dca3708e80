#include "tenon/trace/file_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"

namespace tenon {
namespace {

constexpr std::string_view kZstdMagic = "\x28\xB5\x2F\xFD";
constexpr std::uint64_t kMaxUnpackedBytes = 8 * kGiB;

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  const int fd;
};

[[noreturn]] void cannot_read(const std::string& path, int error) {
  throw ParseError(path, 0, 0, fmt::format("cannot be read: {}", std::strerror(error)));
}

}  // namespace

FileBytes::FileBytes(const std::string& path) {
  const OpenFile file(path);
  if (file.fd < 0) cannot_read(path, errno);
  struct stat info = {};
  if (::fstat(file.fd, &info) != 0) cannot_read(path, errno);
  if (S_ISDIR(info.st_mode)) cannot_read(path, EISDIR);
  if (S_ISREG(info.st_mode) && info.st_size > 0) {
    const auto size = static_cast<std::size_t>(info.st_size);
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (mapped != MAP_FAILED) {
      mapped_ = mapped;
      mapped_bytes_ = size;
    }
  }
  if (mapped_ == nullptr) read_all(file.fd, path);
  if (view().empty()) throw ParseError(path, 0, 0, "the file is empty");
  if (!view().starts_with(kZstdMagic)) return;
  try {
    owned_ = decompress_zstd(view(), path);
  } catch (...) {
    if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
    throw;
  }
  if (mapped_ != nullptr) ::munmap(std::exchange(mapped_, nullptr), mapped_bytes_);
  if (owned_.empty()) throw ParseError(path, 0, 0, "the file is empty once decompressed");
}

FileBytes::~FileBytes() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

void FileBytes::forget_before(std::size_t offset) const {
  constexpr std::size_t kPages = std::size_t{1} << 16;  // a multiple of any page size
  offset = offset / kPages * kPages;
  if (offset < forgotten_) forgotten_ = 0;  // another pass
  if (mapped_ == nullptr || offset <= forgotten_) return;
  ::madvise(static_cast<char*>(mapped_) + forgotten_, offset - forgotten_, MADV_DONTNEED);
  forgotten_ = offset;
}

// Pipes, and whatever else cannot be mapped.
void FileBytes::read_all(int file, const std::string& path) {
  std::vector<char> buffer(std::size_t{1} << 20);
  for (;;) {
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) cannot_read(path, errno);
    if (got == 0) return;
    owned_.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

std::string decompress_zstd(std::string_view bytes, const std::string& name) {
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(),
                                                                         &ZSTD_freeDStream);
  std::vector<char> buffer(ZSTD_DStreamOutSize() * 8);
  std::string out;
  ZSTD_inBuffer in = {bytes.data(), bytes.size(), 0};
  std::size_t wanted = 0;
  bool full = false;  // the last call filled its buffer and may have more to give
  while (in.pos < in.size || full) {
    ZSTD_outBuffer piece = {buffer.data(), buffer.size(), 0};
    wanted = ZSTD_decompressStream(stream.get(), &piece, &in);
    if (ZSTD_isError(wanted))
      throw ParseError(name, 0, 0, fmt::format("damaged zstd data near byte offset {}: {}", in.pos,
                                               ZSTD_getErrorName(wanted)));
    if (out.size() + piece.pos > kMaxUnpackedBytes)
      throw ParseError(name, 0, 0, fmt::format("unpacks to more than {}",
                                               format_byte_size(kMaxUnpackedBytes)));
    out.append(buffer.data(), piece.pos);
    full = piece.pos == piece.size;
  }
  if (wanted != 0)
    throw ParseError(name, 0, 0,
                     fmt::format("the zstd data end in the middle of a frame, after {} bytes: the "
                                 "file is truncated",
                                 bytes.size()));
  return out;
}

void write_file(const std::string& path, std::string_view bytes) {
  std::string packed;
  if (path.ends_with(".zst")) {
    packed.resize(ZSTD_compressBound(bytes.size()));
    packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 9));
    bytes = packed;
  }
  const auto fail = [&](const char* what) {
    throw std::runtime_error(fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno)));
  };
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) fail("be written");
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(temporary.c_str());
    errno = error;
    fail("be written");
  }
}

}  // namespace tenon
