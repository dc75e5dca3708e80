// The tensor-core document in its own spelling: torch::randn, a.storage().data_ptr(),
// c10::TensorImpl, c10::impl::SizesAndStrides and so on.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "tenon/tensor/compat/c10.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/random.h"
#include "tenon/tensor/tensor.h"

// Not reproduced: Python's a[3:8] and b[0, 0] (write a.slice(0, 3, 8), b[0][0]), its f-strings and
// tuples; x.add_(1) (ops::add_(x, 1), since operators are another layer); the structures' private
// members (sizes_and_strides_, refcount and so on: functions of TensorImpl and StorageImpl say the
// same); caffe2::TypeMeta; AutogradMeta's members, which are tenon::autograd's.
// A program that includes this cannot include PyTorch's headers too.

#define C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE 5

namespace c10 {

using TensorImpl = tenon::TensorImpl;
using ScalarType = tenon::DType;
using Layout = tenon::Layout;
using DispatchKey = tenon::DispatchKey;
using DispatchKeySet = tenon::DispatchKeySet;
using BackendMeta = tenon::BackendMeta;
using ExtraMeta = tenon::ExtraMeta;
using AutogradMetaInterface = tenon::AutogradMetaInterface;
using AutogradMetaFactory = tenon::AutogradMetaFactory;

namespace impl {
using SizesAndStrides = tenon::SizesAndStrides;
static_assert(tenon::kInlineDims == C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE);
}  // namespace impl

// Not owned; must live as long as the program.
inline void SetAutogradMetaFactory(AutogradMetaFactory* factory) {
  tenon::set_autograd_meta_factory(factory);
}

// A counter of its own, or none; also any tensor's version_counter().
class VariableVersion : public tenon::VariableVersion {
 public:
  enum Disabled { DISABLED };

  VariableVersion(std::uint32_t version = 0)
      : VariableVersion(tenon::make_intrusive<tenon::VersionCounter>(), version) {}
  VariableVersion(Disabled) {}
  VariableVersion(const tenon::VariableVersion& other) : tenon::VariableVersion(other) {}

 private:
  VariableVersion(const tenon::IntrusivePtr<tenon::VersionCounter>& counter, std::uint32_t version)
      : tenon::VariableVersion(counter, &counter->value) {
    counter->value.store(version);
  }
};

}  // namespace c10

namespace torch {

// A storage as a tensor shows it: data_ptr() is the address, size() counts the tensor's elements.
class Storage : public tenon::Storage {
 public:
  Storage(const tenon::Storage& storage, std::size_t item_size)
      : tenon::Storage(storage), item_size_(item_size) {}

  const void* data_ptr() const { return data(); }
  std::size_t size() const { return nbytes() / item_size_; }
  tenon::StorageImpl* unsafeGetStorageImpl() const { return impl(); }

 private:
  std::size_t item_size_;
};

// A tenon::Tensor, wherever one is wanted, and made from one.
class Tensor : public tenon::Tensor {
 public:
  Tensor() = default;
  Tensor(tenon::Tensor tensor) : tenon::Tensor(std::move(tensor)) {}
  Tensor(const Tensor&) = default;
  Tensor& operator=(const Tensor&) & = default;

  Storage storage() const { return {tenon::Tensor::storage(), item_size()}; }
  tenon::IntList stride() const { return strides(); }
  std::int64_t stride(std::int64_t dim) const { return tenon::Tensor::stride(dim); }
  tenon::TensorImpl* unsafeGetTensorImpl() const { return impl(); }

  Tensor operator[](std::int64_t index) const { return select(0, index); }
  // Writes the elements that an index chose: b[0][0] = 999.0. Throws as fill_ and copy_ do.
  const Tensor& operator=(const tenon::Scalar& value) const&& {
    tenon::fill_(*this, value);
    return *this;
  }
  const Tensor& operator=(const tenon::Tensor& values) const&& {
    tenon::copy_(*this, values);
    return *this;
  }

  Tensor t() const { return tenon::Tensor::t(); }
  Tensor view(tenon::IntList sizes) const { return tenon::Tensor::view(sizes); }
  Tensor reshape(tenon::IntList sizes) const { return tenon::Tensor::reshape(sizes); }
  Tensor select(std::int64_t dim, std::int64_t index) const {
    return tenon::Tensor::select(dim, index);
  }
  Tensor slice(std::int64_t dim, std::int64_t start, std::int64_t end,
               std::int64_t step = 1) const {
    return tenon::Tensor::slice(dim, start, end, step);
  }
  Tensor transpose(std::int64_t dim0, std::int64_t dim1) const {
    return tenon::Tensor::transpose(dim0, dim1);
  }
  Tensor contiguous() const { return tenon::contiguous(*this); }
  Tensor clone() const { return tenon::clone(*this); }
  Tensor detach() const { return tenon::Tensor::detach(); }
  Tensor data() const { return tenon::Tensor::data(); }
};

// Values in braces: floats of float literals, int64 of integers.
template <typename T>
requires std::is_arithmetic_v<T> Tensor tensor(std::initializer_list<T> values) {
  using Kept = std::conditional_t<std::floating_point<T>, float, std::int64_t>;
  const std::vector<Kept> kept(values.begin(), values.end());
  return tenon::detail::tensor_from(kept.data(), kept.size(),
                                    {static_cast<std::int64_t>(kept.size())},
                                    tenon::dtype_of<Kept>());
}
// Rows of one length. Throws InvalidArgument for others.
template <typename T>
requires std::is_arithmetic_v<T> Tensor
tensor(std::initializer_list<std::initializer_list<T>> rows) {
  using Kept = std::conditional_t<std::floating_point<T>, float, std::int64_t>;
  std::vector<Kept> kept;
  for (const auto& row : rows) kept.insert(kept.end(), row.begin(), row.end());
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t length = count == 0 ? 0 : static_cast<std::int64_t>(rows.begin()->size());
  for (const auto& row : rows)
    if (static_cast<std::int64_t>(row.size()) != length)
      throw tenon::InvalidArgument("torch::tensor: the rows have different lengths");
  return tenon::detail::tensor_from(kept.data(), kept.size(), {count, length},
                                    tenon::dtype_of<Kept>());
}

inline Tensor empty(tenon::IntList sizes) { return tenon::empty(sizes); }
inline Tensor zeros(tenon::IntList sizes) { return tenon::zeros(sizes); }
inline Tensor ones(tenon::IntList sizes) { return tenon::ones(sizes); }
inline Tensor randn(tenon::IntList sizes) { return tenon::randn(sizes); }
inline Tensor arange(std::int64_t end) { return tenon::arange(end); }

}  // namespace torch

// Where the document writes at::.
namespace at {
using torch::Tensor;
}  // namespace at
