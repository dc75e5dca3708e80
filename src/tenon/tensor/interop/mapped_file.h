// A file's bytes in memory. Thread-safe, except that writes of one page are the program's to order.
// O(1): pages come when they are read.
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

  // The bytes, and how many; null for an empty file.
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

}  // namespace tenon
