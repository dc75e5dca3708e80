// A tensor's metadata: geometry, type, place, and what it is bound to.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>

#include "tenon/base/block_cache.h"
#include "tenon/base/intrusive_ptr.h"
#include "tenon/tensor/autograd_meta.h"
#include "tenon/tensor/dispatch_key.h"
#include "tenon/tensor/dtype.h"
#include "tenon/tensor/extra_meta.h"
#include "tenon/tensor/geometry.h"
#include "tenon/tensor/sizes_and_strides.h"
#include "tenon/tensor/storage.h"
#include "tenon/tensor/version.h"

namespace tenon {

class TensorImpl;

// 160 bytes without a header, from a cache of blocks for each thread; with a StorageImpl, which
// holds the version counter, 232. A view allocates one of these and nothing else.
//
//   | vtable, counts | storage | sizes, strides (5 inline), ndim, dtype, layout, flags |
//   | offset | numel | own version | autograd | extra | keys, device |
//
// The flags of the memory layout are computed at the first question and kept: views stay cheap.
//
// Threads: reading is safe from many threads, also of the lazily computed flags. Changing metadata
// needs the tensor to itself; reference counts and versions are atomic.
class TensorImpl : public IntrusiveTarget {
 public:
  struct Alias {};
  struct Unshaped {};

  // Contiguous, at the storage's beginning. Requires: numel is the product of the sizes.
  TensorImpl(IntrusivePtr<StorageImpl> storage, DType dtype, IntList sizes, std::int64_t numel);
  // Any geometry. Throws InvalidArgument where it does not lie within the storage.
  TensorImpl(Storage storage, DType dtype, IntList sizes, IntList strides, std::int64_t offset);
  // The same values as `base`, for a view to be shaped from: storage and version are shared.
  TensorImpl(const TensorImpl& base, Alias) : TensorImpl(base, base.shape_) {
    layout_flags_.store(base.layout_flags_.load(std::memory_order_relaxed),
                        std::memory_order_relaxed);
  }
  // The same with room for `ndim` dimensions, which the caller writes.
  TensorImpl(const TensorImpl& base, Unshaped, std::size_t ndim)
      : TensorImpl(base, SizesAndStrides(ndim)) {}
  // Of another layout, whose parts are in the backend metadata: sparse.h.
  TensorImpl(Layout layout, DType dtype, Device device, IntList sizes);
  TensorImpl(const TensorImpl&) = delete;
  TensorImpl& operator=(const TensorImpl&) = delete;

  // --- Geometry.
  IntList sizes() const { return shape_.sizes(); }
  IntList strides() const { return shape_.strides(); }
  const SizesAndStrides& sizes_and_strides() const { return shape_; }
  std::int64_t dim() const { return static_cast<std::int64_t>(shape_.ndim()); }
  std::int64_t numel() const { return numel_; }
  std::int64_t storage_offset() const { return storage_offset_; }

  // Each flag's condition stands at the function of that name in geometry.h.
  bool is_contiguous() const { return layout_flag(kContiguous); }
  bool is_channels_last_contiguous() const { return layout_flag(kChannelsLastContiguous); }
  bool is_channels_last_3d_contiguous() const { return layout_flag(kChannelsLast3dContiguous); }
  bool is_channels_last() const { return layout_flag(kChannelsLast); }
  bool is_channels_last_3d() const { return layout_flag(kChannelsLast3d); }
  bool is_non_overlapping_and_dense() const { return layout_flag(kNonOverlappingAndDense); }

  // --- Changes of metadata. Each throws InvalidArgument when allow_tensor_metadata_change is off.
  void set_sizes_contiguous(IntList sizes);
  // Throws, too, where the geometry leaves the storage.
  void set_sizes_and_strides(IntList sizes, IntList strides, std::int64_t offset);
  void set_storage_offset(std::int64_t offset) {
    set_sizes_and_strides(sizes().to_vector(), strides().to_vector(), offset);
  }
  // Other bytes under the same geometry, which must fit; a new version counter.
  void set_storage(Storage storage) {
    set_storage_and_geometry(std::move(storage), sizes().to_vector(), strides().to_vector(),
                             storage_offset_);
  }
  void set_storage_and_geometry(Storage storage, IntList sizes, IntList strides,
                                std::int64_t offset);
  // How many elements a geometry of this dtype in this storage has. Throws InvalidArgument where
  // it is none (overlong, negative, overflowing) or leaves the storage.
  std::int64_t fitting_numel(IntList sizes, IntList strides, std::int64_t offset) const;
  bool allow_tensor_metadata_change() const { return (flags_ & kFixedMetadata) == 0; }
  void set_allow_tensor_metadata_change(bool allow) { set_flag(kFixedMetadata, !allow); }

  // For the shaping of a view that is not shared yet: the caller keeps the geometry within the
  // storage and says how many elements there are.
  SizesAndStrides& shape_unchecked() { return shape_; }
  void finish_view(std::int64_t numel, std::int64_t offset) {
    numel_ = numel;
    storage_offset_ = offset;
    layout_flags_.store(0, std::memory_order_relaxed);
  }

  // --- Type and place.
  DType dtype() const { return kind_.dtype; }
  Device device() const { return device_; }
  Layout layout() const { return kind_.layout; }
  // What operators take: strided, and of a dtype that they compute with. One comparison.
  bool is_computable() const {
    static_assert(std::endian::native == std::endian::little && Layout::kStrided == Layout{});
    return std::bit_cast<std::uint16_t>(kind_) <= static_cast<std::uint16_t>(kLastComputedDType);
  }
  DispatchKeySet key_set() const { return key_set_; }
  // Reinterprets elements. Requires: the same item size.
  void set_dtype_unchecked(DType dtype) { kind_.dtype = dtype; }

  const Storage& storage() const { return storage_; }
  bool has_storage() const { return storage_.valid(); }
  // The first element. Null when there are no elements or no memory.
  const void* data() const { return offset_pointer(storage_.data()); }
  void* mutable_data() const { return const_cast<void*>(offset_pointer(storage_.mutable_data())); }

  // --- Version. Note [Version counter sharing] in version.h.
  bool is_inference() const { return (flags_ & kInference) != 0; }
  VariableVersion version_counter() const;
  std::uint32_t current_version() const;  // throws InvalidArgument for an inference tensor
  // An in-place change. Throws InvalidArgument for an inference tensor outside inference mode.
  void bump_version() const {
    if (is_inference()) [[unlikely]]
      return bump_inference();
    version_word().fetch_add(1, std::memory_order_acq_rel);
  }
  void use_new_version_counter();
  bool has_own_version_counter() const { return own_version_ != nullptr; }

  // --- Gradients.
  bool requires_grad() const { return autograd_ != nullptr && autograd_->requires_grad(); }
  // Makes metadata at need. Throws InvalidArgument for an inference tensor or without a factory.
  void set_requires_grad(bool requires_grad);
  AutogradMetaInterface* autograd_meta() const { return autograd_.get(); }
  AutogradMetaInterface& ensure_autograd_meta();
  void set_autograd_meta(std::unique_ptr<AutogradMetaInterface> meta) {
    autograd_ = std::move(meta);
    set_followed();
  }

  // --- Rarely there.
  const ExtraMeta* extra_meta() const { return extra_.get(); }
  ExtraMeta& ensure_extra_meta();
  // Backend metadata that follows into views: BackendMeta::of_view.
  void set_followed_backend_meta(IntrusivePtr<BackendMeta> meta) {
    ensure_extra_meta().backend = std::move(meta);
    flags_ |= kFollowed | kBackendFollows;
  }
  // Names or symbolic sizes: Note [Labels of dimensions] in dim_labels.h. As many as there are
  // dimensions; empty takes them away.
  void set_names(std::vector<std::string> names);
  void set_sym_sizes(std::vector<SymInt> sizes);
  bool is_labelled() const { return (flags_ & kLabelled) != 0; }
  // Metadata follow into views: there are labels, gradients, or backend metadata that goes along.
  bool is_followed() const { return (flags_ & kFollowed) != 0; }

  bool is_wrapped_number() const { return (flags_ & kWrappedNumber) != 0; }
  // Requires: a 0-d tensor, when set.
  void set_wrapped_number(bool wrapped);

  // Another tensor on the same storage with the same geometry, without gradient. The version is
  // shared or new; names and backend metadata come along.
  IntrusivePtr<TensorImpl> shallow_copy(bool share_version, bool allow_metadata_change) const;
  // Becomes `source` in storage, geometry, type and place; keeps its gradient metadata and gets a
  // new version counter.
  void shallow_copy_from(const TensorImpl& source);

  // When the last handle goes while weak ones remain: bytes and gradient go at once.
  void release_resources() override {
    autograd_.reset();
    extra_.reset();  // the parts of a sparse tensor
    storage_ = Storage();
  }

  // Heap bytes of this tensor's metadata, its storage's included; names and gradients are not.
  std::size_t metadata_bytes() const;

  static void* operator new(std::size_t bytes) {
    return bytes == kBytes ? BlockCache<kBytes>::allocate() : ::operator new(bytes);
  }
  static void operator delete(void* impl, std::size_t bytes) {
    bytes == kBytes ? BlockCache<kBytes>::deallocate(impl) : ::operator delete(impl);
  }

 private:
  static constexpr std::size_t kBytes = 160;

  struct Kind {
    DType dtype;
    Layout layout = Layout::kStrided;  // the upper byte of both as one number: is_computable()
  };

  // Of flags_.
  static constexpr std::uint8_t kWrappedNumber = 1;
  static constexpr std::uint8_t kFixedMetadata = 2;
  static constexpr std::uint8_t kInference = 4;
  static constexpr std::uint8_t kLabelled = 8;
  static constexpr std::uint8_t kFollowed = 16;
  static constexpr std::uint8_t kBackendFollows = 32;

  // Of layout_flags_.
  static constexpr std::uint8_t kKnown = 1;
  static constexpr std::uint8_t kContiguous = 2;
  static constexpr std::uint8_t kChannelsLastContiguous = 4;
  static constexpr std::uint8_t kChannelsLast3dContiguous = 8;
  static constexpr std::uint8_t kChannelsLast = 16;
  static constexpr std::uint8_t kChannelsLast3d = 32;
  static constexpr std::uint8_t kNonOverlappingAndDense = 64;

  bool layout_flag(std::uint8_t flag) const {
    const std::uint8_t flags = layout_flags_.load(std::memory_order_relaxed);
    if (flags & kKnown) [[likely]]
      return (flags & flag) != 0;
    return (compute_layout_flags() & flag) != 0;
  }
  // Everything of `base` but its shape and what is known of its layout. In the header, as views are
  // little else.
  template <typename Shape>
  TensorImpl(const TensorImpl& base, Shape&& shape)
      : storage_(base.storage_),
        shape_(std::forward<Shape>(shape)),
        kind_(base.kind_),
        flags_(base.flags_ & kInference),
        storage_offset_(base.storage_offset_),
        numel_(base.numel_),
        own_version_(base.own_version_),
        key_set_(base.key_set_.remove(DispatchKey::kLabels)),
        device_(base.device_) {}

  std::uint8_t compute_layout_flags() const;
  void set_flag(std::uint8_t flag, bool on) {
    flags_ = static_cast<std::uint8_t>(on ? flags_ | flag : flags_ & ~flag);
  }
  void set_followed() {
    set_flag(kFollowed, autograd_ != nullptr || (flags_ & (kLabelled | kBackendFollows)) != 0);
  }
  void set_place(Device device);
  void take_labels_from_extra();
  void copy_extra(const TensorImpl& source);
  void check_metadata_change(const char* what) const;
  void bump_inference() const;
  std::atomic<std::uint32_t>& version_word() const {
    return own_version_ ? own_version_->value : storage_.impl()->version();
  }
  const void* offset_pointer(const void* start) const {
    return start == nullptr || numel_ == 0
               ? nullptr
               : static_cast<const char*>(start) +
                     static_cast<std::size_t>(storage_offset_) * item_size(dtype());
  }

  Storage storage_;
  [[no_unique_address]] SizesAndStrides shape_;
  Kind kind_;
  std::uint8_t flags_ = 0;
  mutable std::atomic<std::uint8_t> layout_flags_{0};
  std::int64_t storage_offset_ = 0;  // in elements
  std::int64_t numel_ = 0;
  IntrusivePtr<VersionCounter> own_version_;  // null: the storage's
  std::unique_ptr<AutogradMetaInterface> autograd_;
  std::unique_ptr<ExtraMeta> extra_;
  DispatchKeySet key_set_;
  Device device_;
};

}  // namespace tenon
