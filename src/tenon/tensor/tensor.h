// The tensor that programs hold. Threads may read one tensor at the same time and use handles of
// their own. A thread that writes elements, shape or gradient needs the tensor to itself.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tenon/tensor/scalar.h"
#include "tenon/tensor/tensor_impl.h"

namespace tenon {

class TensorIndex;

// A handle on a TensorImpl: one word, copied by one atomic increment. A default-constructed one is
// undefined; of it only defined() may be asked.
//
// View functions are O(1): they allocate 160 bytes of metadata and share storage and version.
// Dimensions may be negative, counted from the end. What does not fit throws InvalidArgument with
// the shapes. A const Tensor is a constant handle: its elements may be changed through it.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(IntrusivePtr<TensorImpl> impl) : impl_(std::move(impl)) {}

  // Whether there is a tensor, the tensor, how many handles it has, whether two are one tensor.
  bool defined() const { return impl_.defined(); }
  TensorImpl* impl() const { return impl_.get(); }
  const IntrusivePtr<TensorImpl>& impl_ptr() const { return impl_; }
  std::size_t use_count() const { return impl_.use_count(); }
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

  // --- Geometry, type, place.
  IntList sizes() const { return impl_->sizes(); }
  IntList strides() const { return impl_->strides(); }
  std::int64_t size(std::int64_t dim) const;
  std::int64_t stride(std::int64_t dim) const;
  std::int64_t dim() const { return impl_->dim(); }
  std::int64_t numel() const { return impl_->numel(); }
  std::int64_t storage_offset() const { return impl_->storage_offset(); }
  std::size_t item_size() const { return tenon::item_size(dtype()); }
  std::size_t nbytes() const { return static_cast<std::size_t>(numel()) * item_size(); }
  DType dtype() const { return impl_->dtype(); }
  Device device() const { return impl_->device(); }
  Layout layout() const { return impl_->layout(); }
  DispatchKeySet key_set() const { return impl_->key_set(); }
  bool is_meta() const { return device().type == DeviceType::kMeta; }
  bool is_contiguous() const { return impl_->is_contiguous(); }
  bool is_contiguous(MemoryFormat format) const;
  bool is_non_overlapping_and_dense() const { return impl_->is_non_overlapping_and_dense(); }
  // Channels last where it says so, else contiguous.
  MemoryFormat suggest_memory_format() const;
  bool is_wrapped_number() const { return impl_->is_wrapped_number(); }

  // --- Storage and elements.
  const Storage& storage() const { return impl_->storage(); }
  bool is_alias_of(const Tensor& other) const { return storage().is_alias_of(other.storage()); }
  // The first element, untyped; null when there are none, or no memory (meta).
  const void* const_data_ptr() const { return impl_->data(); }
  void* data_ptr() const { return impl_->mutable_data(); }
  // Typed. Throws InvalidArgument for another dtype.
  template <Element T>
  T* data_ptr() const {
    check_dtype(dtype_of<T>());
    return static_cast<T*>(impl_->mutable_data());
  }
  // The same, for reading.
  template <Element T>
  const T* const_data_ptr() const {
    check_dtype(dtype_of<T>());
    return static_cast<const T*>(impl_->data());
  }
  // The value of a tensor of one element on the host, converted. Throws InvalidArgument otherwise.
  template <Element T>
  T item() const {
    return item().to<T>();
  }
  // The same, in the widest type of its kind.
  Scalar item() const;

  // --- Version and gradient: Note [Version counter sharing] in version.h.
  bool is_inference() const { return impl_->is_inference(); }
  std::uint32_t version() const { return impl_->current_version(); }
  VariableVersion version_counter() const { return impl_->version_counter(); }
  bool requires_grad() const { return impl_->requires_grad(); }
  const Tensor& set_requires_grad(bool requires_grad) const {
    impl_->set_requires_grad(requires_grad);
    return *this;
  }
  const Tensor& grad() const;  // undefined where there is none
  // Without gradient. Storage and version are shared, and its metadata cannot be changed.
  Tensor detach() const { return Tensor(impl_->shallow_copy(true, false)); }
  // The same with a version of its own: autograd does not see what is done through it.
  Tensor data() const { return Tensor(impl_->shallow_copy(false, false)); }
  // Takes over `source`'s storage and geometry, with a new version counter. Throws InvalidArgument
  // where this tensor requires a gradient that could not be of the new dtype.
  void set_data(const Tensor& source) const;

  // --- Other storage and geometry, in place. Storage that is too small grows where it is resizable
  // (what factories make is); what stays in reach keeps its bytes. The version is bumped. Throw
  // InvalidArgument for one with a gradient or (resize_) names, and storage that is not resizable.
  const Tensor& resize_(IntList sizes) const;
  // Takes over a storage of the same device; no strides: contiguous.
  const Tensor& set_(Storage source, std::int64_t offset, IntList sizes,
                     IntList strides = {}) const;
  // The same of a tensor of the same dtype: from then on they share bytes.
  const Tensor& set_(const Tensor& source) const;

  // --- Names of dimensions, "" or "*" for none, and sizes that may be symbolic: Note [Labels of
  // dimensions] in dim_labels.h. An empty list takes all names away. Throws InvalidArgument for
  // another number of names, for one that comes twice, and for one that is no identifier.
  std::vector<SymInt> sym_sizes() const;
  std::vector<std::string> names() const;
  void set_names(std::vector<std::string> names) const;

  // --- Views.
  Tensor alias() const;
  Tensor as_strided(IntList sizes, IntList strides) const {
    return as_strided(sizes, strides, storage_offset());
  }
  // Any geometry within the storage; strides and offset in elements.
  Tensor as_strided(IntList sizes, IntList strides, std::int64_t offset) const;
  // start:end:step as in Python: negative from the end, clamped; step > 0.
  Tensor slice(std::int64_t dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const;
  Tensor slice(std::int64_t dim, std::optional<std::int64_t> start = std::nullopt,
               std::optional<std::int64_t> end = std::nullopt, std::int64_t step = 1) const;
  Tensor narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const;
  Tensor select(std::int64_t dim, std::int64_t index) const;
  Tensor transpose(std::int64_t dim0, std::int64_t dim1) const;
  Tensor t() const;  // of at most two dimensions
  Tensor permute(IntList order) const;
  Tensor movedim(std::int64_t source, std::int64_t destination) const {
    return movedim(IntList{source}, IntList{destination});
  }
  // Each dimension of `source` goes to its place in `destination`; the others keep their order.
  Tensor movedim(IntList source, IntList destination) const;
  Tensor view(IntList sizes) const;  // throws where it would have to copy
  // The same bytes as another dtype; the last dimension changes with the item size.
  Tensor view_dtype(DType dtype) const;
  Tensor reshape(IntList sizes) const;  // a view, or a copy where there can be none
  Tensor flatten(std::int64_t start_dim = 0, std::int64_t end_dim = -1) const;
  Tensor unflatten(std::int64_t dim, IntList sizes) const;
  Tensor expand(IntList sizes) const;  // -1 keeps a size
  Tensor squeeze() const;
  Tensor squeeze(std::int64_t dim) const;
  Tensor unsqueeze(std::int64_t dim) const;
  Tensor diagonal(std::int64_t offset = 0, std::int64_t dim1 = 0, std::int64_t dim2 = 1) const;
  // Windows of `size` every `step` along a dimension, in a new last one.
  Tensor unfold(std::int64_t dim, std::int64_t size, std::int64_t step) const;
  std::vector<Tensor> split(std::int64_t split_size, std::int64_t dim = 0) const;
  std::vector<Tensor> split(IntList split_sizes, std::int64_t dim = 0) const;
  std::vector<Tensor> split_with_sizes(IntList split_sizes, std::int64_t dim = 0) const {
    return split(split_sizes, dim);
  }
  // Into pieces of one size, the last one smaller: fewer than asked for where that is enough.
  std::vector<Tensor> chunk(std::int64_t chunks, std::int64_t dim = 0) const;
  // Into as many pieces, the first ones longer by one where they cannot be equal; or before each of
  // the indices, which slice as in Python.
  std::vector<Tensor> tensor_split(std::int64_t sections, std::int64_t dim = 0) const;
  std::vector<Tensor> tensor_split(IntList indices, std::int64_t dim = 0) const;
  std::vector<Tensor> unbind(std::int64_t dim = 0) const;

  // --- Indexing as in Python; see indexing.h for what an index may be.
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  Tensor operator[](std::initializer_list<TensorIndex> indices) const;
  Tensor index(std::span<const TensorIndex> indices) const;  // as many as there are
  // t[{indices}] = values, broadcast and converted; they may have more dimensions, of one element
  // each. With `accumulate`, adds to what is there, once for each time an element is chosen.
  const Tensor& index_put_(std::initializer_list<TensorIndex> indices, const Tensor& values,
                           bool accumulate = false) const;
  const Tensor& index_put_(std::span<const TensorIndex> indices, const Tensor& values,
                           bool accumulate = false) const;

 private:
  void check_dtype(DType wanted) const {
    if (wanted != dtype()) [[unlikely]]
      refuse_dtype(wanted);
  }
  [[noreturn]] void refuse_dtype(DType wanted) const;
  Tensor try_view(IntList sizes) const;
  template <typename Info, typename Shape>
  Tensor make_view(Info&& info, Shape&& shape) const;
  template <typename Info, typename Shape>
  Tensor make_view_of(std::size_t ndim, Info&& info, Shape&& shape) const;
  template <typename Info, typename Shape>
  Tensor shaped_view(IntrusivePtr<TensorImpl> impl, Info& info, Shape& shape) const;

  IntrusivePtr<TensorImpl> impl_;
};

}  // namespace tenon
