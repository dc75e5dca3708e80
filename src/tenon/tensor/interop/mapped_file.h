// A file's bytes in memory, and files written whole or not at all.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "tenon/base/intrusive_ptr.h"

namespace tenon {

// Privately mapped: pages come when they are read, and writing changes this process's copy of a
// page and never the file. Shared by reference counting; unmapped with the last reference. The file
// must not be shortened meanwhile.
class MappedFile : public IntrusiveTarget {
 public:
  // Throws ParseError, with the path and the system's reason, for what cannot be read.
  static IntrusivePtr<MappedFile> open(const std::string& path);
  ~MappedFile() override;

  char* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::string_view view() const { return {data_, size_}; }

 private:
  template <typename T, typename... Args>
  friend IntrusivePtr<T> make_intrusive(Args&&... args);
  MappedFile(char* data, std::size_t size) : data_(data), size_(size) {}

  char* data_;  // null for an empty file
  std::size_t size_;
};

// Writes pieces one after another to a temporary name beside `path` and renames it: nobody ever
// sees half a file. Throws std::runtime_error with the path and the reason.
class FileWriter {
 public:
  explicit FileWriter(std::string path);
  ~FileWriter();  // without commit: the temporary file goes
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, std::size_t size);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  const std::string path_;
  const std::string temporary_;
  int file_ = -1;
};

}  // namespace tenon
