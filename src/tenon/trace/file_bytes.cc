#include "tenon/trace/file_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/file_writer.h"
#include "tenon/base/read_limit.h"
#include "tenon/base/gzip.h"

namespace tenon {
namespace {

constexpr std::string_view kZstdMagic = "\x28\xB5\x2F\xFD";

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
  throw FileUnreadable(path, 0, 0, fmt::format("cannot be read: {}", std::strerror(error)));
}

}  // namespace

FileBytes::FileBytes(const std::string& path) {
  if (path.empty()) throw ParseError("\"\"", 0, 0, "is no name of a file");
  const OpenFile file(path);
  if (file.fd < 0) cannot_read(path, errno);
  struct stat info = {};
  if (::fstat(file.fd, &info) != 0) cannot_read(path, errno);
  if (S_ISDIR(info.st_mode)) cannot_read(path, EISDIR);
  const bool device = S_ISBLK(info.st_mode) || (S_ISCHR(info.st_mode) && ::isatty(file.fd) == 0);
  if (device) throw ParseError(path, 0, 0, "is a device, not a file");  // some never end
  if (S_ISREG(info.st_mode) && info.st_size > 0) {
    const auto size = static_cast<std::size_t>(info.st_size);
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (mapped != MAP_FAILED) {
      mapped_ = mapped;
      mapped_bytes_ = size;
    } else if (errno == ENOMEM && size > stream_limit_bytes()) {
      throw FileUnreadable(path, 0, 0,
                           fmt::format("has {}, for which this process has no addresses: raise "
                                       "its limit (ulimit -v)", format_byte_size(size)));
    }
  }
  if (mapped_ == nullptr) read_all(file.fd, path);
  if (view().empty()) throw ParseError(path, 0, 0, "the file is empty");
  const bool zstd = view().starts_with(kZstdMagic);
  if (!zstd && !is_gzip(view())) return;
  try {
    owned_ = zstd ? decompress_zstd(view(), path) : inflate_gzip(view(), path);
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
  const std::uint64_t limit_bytes = stream_limit_bytes();
  std::vector<char> buffer(std::size_t{1} << 20);
  for (;;) {
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) cannot_read(path, errno);
    if (got == 0) return;
    if (owned_.size() + static_cast<std::size_t>(got) > limit_bytes)
      throw ParseError(path, 0, 0,
                       fmt::format("has no size of its own, as a pipe, and gave more than {}: "
                                   "write it to a file first, or {}",
                                   format_byte_size(limit_bytes), how_to_raise(limit_bytes)));
    owned_.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

std::string decompress_zstd(std::string_view bytes, const std::string& name) {
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(),
                                                                         &ZSTD_freeDStream);
  if (stream == nullptr) throw std::bad_alloc();
  std::vector<char> buffer(ZSTD_DStreamOutSize() * 8);
  const std::uint64_t limit_bytes = unpack_limit_bytes(bytes.size());
  std::string out;
  ZSTD_inBuffer in = {bytes.data(), bytes.size(), 0};
  std::size_t wanted = 1;
  bool progress = true;  // a frame may have more to give after its last byte is taken
  while (in.pos < in.size || (wanted != 0 && progress)) {
    const std::size_t taken = in.pos;
    ZSTD_outBuffer piece = {buffer.data(), buffer.size(), 0};
    wanted = ZSTD_decompressStream(stream.get(), &piece, &in);
    if (ZSTD_getErrorCode(wanted) == ZSTD_error_memory_allocation) throw std::bad_alloc();
    if (ZSTD_isError(wanted))
      throw ParseError(name, 0, 0, fmt::format("damaged zstd data near byte offset {}: {}", in.pos,
                                               ZSTD_getErrorName(wanted)));
    if (out.size() + piece.pos > limit_bytes)
      throw ParseError(
          name, 0, 0,
          fmt::format("{} of zstd data unpack to more than {}, which few recordings do: {}",
                      format_byte_size(bytes.size()), format_byte_size(limit_bytes),
                      how_to_raise(limit_bytes)));
    out.append(buffer.data(), piece.pos);
    progress = piece.pos > 0 || in.pos > taken;
  }
  if (wanted != 0)
    throw ParseError(name, 0, 0,
                     fmt::format("the zstd data end in the middle of a frame, after {} bytes: the "
                                 "file is truncated",
                                 bytes.size()));
  return out;
}

void write_file(const std::string& path, std::string_view bytes) {
  if (!path.ends_with(".zst")) return write_whole_file(path, bytes);
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size =
      ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 9);
  if (ZSTD_getErrorCode(size) == ZSTD_error_memory_allocation) throw std::bad_alloc();
  if (ZSTD_isError(size))
    throw std::runtime_error(
        fmt::format("{}: cannot be compressed: {}", path, ZSTD_getErrorName(size)));
  write_whole_file(path, std::string_view(packed).substr(0, size));
}

}  // namespace tenon
