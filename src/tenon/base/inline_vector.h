// A short vector that needs no heap while it is short.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <type_traits>

#include "tenon/base/check.h"

namespace tenon {

// Up to kInline elements live in the object, more on the heap. For plain values only: elements are
// copied as bytes. Not thread-safe. push_back is amortised O(1).
template <typename T, std::size_t kInline>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;

  InlineVector() = default;
  explicit InlineVector(std::size_t count, T value = T()) { resize(count, value); }
  InlineVector(std::initializer_list<T> values) { assign(values.begin(), values.size()); }
  InlineVector(const T* values, std::size_t count) { assign(values, count); }
  InlineVector(const InlineVector& other) { assign(other.data(), other.size()); }
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) assign(other.data(), other.size());
    return *this;
  }

  void assign(const T* values, std::size_t count) {
    reserve(count);
    if (count > 0) std::memcpy(data(), values, count * sizeof(T));
    size_ = count;
  }
  void resize(std::size_t count, T value = T()) {
    reserve(count);
    if (count > size_) std::fill(data() + size_, data() + count, value);
    size_ = count;
  }
  void reserve(std::size_t count) {
    if (count > capacity_) [[unlikely]]
      grow(count);
  }
  void push_back(T value) {
    reserve(size_ + 1);
    data()[size_++] = value;
  }
  void pop_back() { --size_; }
  void insert(std::size_t at, T value) {
    TENON_DCHECK(at <= size_);
    push_back(value);
    std::rotate(begin() + at, end() - 1, end());
  }
  void erase(std::size_t at) {
    TENON_DCHECK(at < size_);
    std::copy(begin() + at + 1, end(), begin() + at);
    --size_;
  }
  void clear() { size_ = 0; }

  T* data() { return heap_ ? heap_.get() : inline_; }
  const T* data() const { return heap_ ? heap_.get() : inline_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  // Out of line: it is rare, and the compiler cannot see that what is inline never outgrows it.
  [[gnu::noinline]] void grow(std::size_t count) {
    const std::size_t capacity = std::max(count, 2 * capacity_);
    std::unique_ptr<T[]> larger(new T[capacity]);  // whose elements nothing writes twice
    std::memcpy(larger.get(), data(), size_ * sizeof(T));
    heap_ = std::move(larger);
    capacity_ = capacity;
  }

  std::size_t size_ = 0;
  std::size_t capacity_ = kInline;
  std::unique_ptr<T[]> heap_;
  T inline_[kInline];
};

}  // namespace tenon
