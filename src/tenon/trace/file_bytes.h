// A file's contents, decompressed if need be. Thread-safe. O(bytes) where a file is decompressed or
// written, else O(1): pages come when they are read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tenon/base/error.h"

namespace tenon {

// The system does not let the file be read, and may do so another time.
class FileUnreadable : public ParseError {
 public:
  // As a ParseError is made.
  using ParseError::ParseError;
};

// All bytes of a file: mapped where that is possible, decompressed where they start like zstd or
// gzip data (by content, not by name). Immutable; valid for as long as it lives.
class FileBytes {
 public:
  // Throws FileUnreadable, with path and the system's reason, where the file is a directory or
  // cannot be read. Throws ParseError for an empty file, a device, and damaged zstd and gzip.
  explicit FileBytes(const std::string& path);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  // The bytes, as long as this lives.
  std::string_view view() const {
    return mapped_ != nullptr ? std::string_view(static_cast<const char*>(mapped_), mapped_bytes_)
                              : std::string_view(owned_);
  }

  // The memory behind the bytes before `offset` may be used for something else; they stay readable.
  // For files that are read through once. Nothing happens to what was decompressed.
  void forget_before(std::size_t offset) const;

 private:
  void read_all(int file, const std::string& path);

  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  mutable std::size_t forgotten_ = 0;
  std::string owned_;
};

// Decompresses one or more zstd frames. Throws ParseError with the byte offset for damaged or
// truncated data, and where they would unpack to more than unpack_limit_bytes.
std::string decompress_zstd(std::string_view bytes, const std::string& name);

// Writes a file, compressed where the path ends in ".zst", as FileWriter does: whole or not at all.
// Throws std::runtime_error with the path and the reason.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace tenon
