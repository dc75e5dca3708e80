// Lists of sizes, strides and dimensions: one to own, one to pass. A view: thread-safe while no
// thread writes the numbers. O(1) except for copies and comparisons; the only error is lack of
// memory for a copy.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "tenon/base/inline_vector.h"

namespace tenon {

// The most dimensions that a tensor may have.
inline constexpr std::size_t kMaxDims = 64;

// Owns a list of integers, without the heap up to six.
using DimVector = InlineVector<std::int64_t, 6>;

// A view of integers, for parameters: takes {2, 3}, vectors, arrays and spans. A braced
// list lives until the end of the full expression, so do not keep an IntList.
class IntList {
 public:
  constexpr IntList() = default;
  constexpr IntList(const std::int64_t* data, std::size_t size) : data_(data), size_(size) {}
  constexpr IntList(std::span<const std::int64_t> list) : data_(list.data()), size_(list.size()) {}
  IntList(const std::vector<std::int64_t>& list) : data_(list.data()), size_(list.size()) {}
  IntList(const DimVector& list) : data_(list.data()), size_(list.size()) {}
  template <std::size_t N>
  constexpr IntList(const std::array<std::int64_t, N>& list) : data_(list.data()), size_(N) {}
  constexpr IntList(std::initializer_list<std::int64_t> list)
      : IntList(list.begin(), list.size()) {}

  // As those of std::span.
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const std::int64_t* data() const { return data_; }
  constexpr const std::int64_t* begin() const { return data_; }
  constexpr const std::int64_t* end() const { return data_ + size_; }
  constexpr std::int64_t operator[](std::size_t i) const { return data_[i]; }
  constexpr std::int64_t back() const { return data_[size_ - 1]; }
  // Requires: there are as many.
  constexpr IntList without_first(std::size_t count) const {
    return {data_ + count, size_ - count};
  }
  // A copy that owns its numbers.
  DimVector to_vector() const { return DimVector(data_, size_); }

  friend constexpr bool operator==(IntList a, IntList b) {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i)
      if (a.data_[i] != b.data_[i]) return false;
    return true;
  }

 private:
  const std::int64_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// "[2, 3, 4]", "[]".
std::string to_string(IntList list);

}  // namespace tenon
