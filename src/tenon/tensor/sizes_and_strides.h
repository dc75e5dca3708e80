// The shape of a tensor and its steps through memory.
#pragma once

#include <cstdint>
#include <cstring>

#include "tenon/base/check.h"
#include "tenon/tensor/int_list.h"

namespace tenon {

inline constexpr std::size_t kInlineDims = 5;

// Sizes and strides (in elements) of up to five dimensions inside the object, of more in one block
// of the heap.
//
//   inline   | size0 .. size4 | stride0 .. stride4 | ndim        81 bytes, 7 of padding behind
//   outside  | pointer -> size0 .. size(n-1) stride0 .. stride(n-1) |
//
// The count stands last, so that a holder with [[no_unique_address]] uses the padding. Not
// thread-safe. Copies are O(ndim).
class SizesAndStrides {
 public:
  SizesAndStrides() : ndim_(1) {  // one dimension of no elements, as an empty tensor has
    inline_[0] = 0;
    inline_[kInlineDims] = 1;
  }
  // Room for that many dimensions, to be written. Requires: ndim <= kMaxDims.
  explicit SizesAndStrides(std::size_t ndim) : ndim_(static_cast<std::uint8_t>(ndim)) {
    if (!is_inline()) [[unlikely]]
      outside_ = new std::int64_t[2 * ndim];
  }
  SizesAndStrides(const SizesAndStrides& other) : ndim_(0) { copy_from(other); }
  SizesAndStrides& operator=(const SizesAndStrides& other) {
    if (this != &other) {
      release();
      copy_from(other);
    }
    return *this;
  }
  SizesAndStrides(SizesAndStrides&& other) noexcept : ndim_(0) { take(other); }
  SizesAndStrides& operator=(SizesAndStrides&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }
  ~SizesAndStrides() { release(); }

  std::size_t ndim() const { return ndim_; }
  bool is_inline() const { return ndim_ <= kInlineDims; }

  std::int64_t* sizes_data() { return is_inline() ? inline_ : outside_; }
  const std::int64_t* sizes_data() const { return is_inline() ? inline_ : outside_; }
  std::int64_t* strides_data() { return is_inline() ? inline_ + kInlineDims : outside_ + ndim_; }
  const std::int64_t* strides_data() const {
    return is_inline() ? inline_ + kInlineDims : outside_ + ndim_;
  }
  IntList sizes() const { return {sizes_data(), ndim_}; }
  IntList strides() const { return {strides_data(), ndim_}; }
  std::int64_t size_at(std::size_t d) const { return sizes_data()[d]; }
  std::int64_t stride_at(std::size_t d) const { return strides_data()[d]; }
  std::int64_t& size_at(std::size_t d) { return sizes_data()[d]; }
  std::int64_t& stride_at(std::size_t d) { return strides_data()[d]; }

  // Keeps the first dimensions; new ones have size and stride 0. Requires: ndim <= kMaxDims.
  void resize(std::size_t ndim) {
    if (ndim > kInlineDims || !is_inline()) [[unlikely]]
      return resize_outside(ndim);
    for (std::size_t d = ndim_; d < ndim; ++d) inline_[d] = inline_[kInlineDims + d] = 0;
    ndim_ = static_cast<std::uint8_t>(ndim);
  }
  // The strides of dimensions that are kept stay as they are.
  void set_sizes(IntList sizes) {
    resize(sizes.size());
    std::copy(sizes.begin(), sizes.end(), sizes_data());
  }
  // Requires: as many as there are dimensions.
  void set_strides(IntList strides) {
    TENON_DCHECK(strides.size() == ndim_);
    std::copy(strides.begin(), strides.end(), strides_data());
  }
  void set(IntList sizes, IntList strides) {
    if (sizes.size() != ndim_) resize(sizes.size());
    std::copy(sizes.begin(), sizes.end(), sizes_data());
    std::copy(strides.begin(), strides.end(), strides_data());
  }

  std::size_t heap_bytes() const { return is_inline() ? 0 : 2 * ndim_ * sizeof(std::int64_t); }

  friend bool operator==(const SizesAndStrides& a, const SizesAndStrides& b) {
    return a.sizes() == b.sizes() && a.strides() == b.strides();
  }

 private:
  void resize_outside(std::size_t ndim);
  void release() {
    if (!is_inline()) delete[] outside_;
  }
  // Requires: nothing is held outside.
  void copy_from(const SizesAndStrides& other) {
    if (other.is_inline()) {
      std::memcpy(inline_, other.inline_, sizeof inline_);
    } else {
      outside_ = new std::int64_t[2 * other.ndim_];
      std::memcpy(outside_, other.outside_, other.heap_bytes());
    }
    ndim_ = other.ndim_;
  }
  void take(SizesAndStrides& other) {
    std::memcpy(inline_, other.inline_, sizeof inline_);
    ndim_ = other.ndim_;
    other.ndim_ = 0;
  }

  union {
    std::int64_t inline_[2 * kInlineDims];
    std::int64_t* outside_;  // owned
  };
  std::uint8_t ndim_;
};

}  // namespace tenon
