#include "tenon/tensor/tensor_impl.h"

#include <fmt/format.h>

#include "tenon/base/error.h"
#include "tenon/tensor/inference_mode.h"
#include "tenon/tensor/quantized.h"
#include "tenon/tensor/tensor.h"

namespace tenon {

// The target of the whole: metadata of a fresh tensor, version counter included.
static_assert(sizeof(TensorImpl) == 160);
static_assert(sizeof(TensorImpl) + sizeof(StorageImpl) <= 232);

TensorImpl::TensorImpl(IntrusivePtr<StorageImpl> storage, DType dtype, IntList sizes,
                       std::int64_t numel)
    : storage_(std::move(storage)), shape_(sizes.size()), kind_{dtype}, numel_(numel) {
  std::int64_t* const to_sizes = shape_.sizes_data();
  for (std::size_t d = 0; d < sizes.size(); ++d) to_sizes[d] = sizes[d];
  fill_contiguous_strides(sizes, shape_.strides_data());
  // Of four and five dimensions more flags than these may hold.
  if (sizes.size() < 4)
    layout_flags_.store(kKnown | kContiguous | kNonOverlappingAndDense, std::memory_order_relaxed);
  set_place(storage_.device());
}

TensorImpl::TensorImpl(Storage storage, DType dtype, IntList sizes, IntList strides,
                       std::int64_t offset)
    : storage_(std::move(storage)), kind_{dtype} {
  set_place(storage_.device());
  set_sizes_and_strides(sizes, strides, offset);
}

TensorImpl::TensorImpl(Layout layout, DType dtype, Device device, IntList sizes)
    : kind_{dtype, layout}, numel_(checked_numel(sizes)) {
  shape_.set_sizes(sizes);
  fill_contiguous_strides(sizes, shape_.strides_data());
  set_place(device);
  key_set_ = key_set_.add(DispatchKey::kSparse);
  storage_ = Storage(make_intrusive<StorageImpl>(StorageImpl::WithoutMemory{}, device));
  own_version_ = make_intrusive<VersionCounter>();
}

void TensorImpl::set_place(Device device) {
  device_ = device;
  key_set_ = DispatchKeySet(backend_key(device.type));
  if (in_inference_mode()) [[unlikely]]
    flags_ |= kInference;
  else
    key_set_ = key_set_.add(DispatchKey::kAutograd);
}

std::uint8_t TensorImpl::compute_layout_flags() const {
  const IntList sizes = this->sizes();
  const IntList strides = this->strides();
  std::uint8_t flags = kKnown;
  if (tenon::is_contiguous(sizes, strides)) flags |= kContiguous | kNonOverlappingAndDense;
  if (sizes.size() == 4) {
    if (tenon::is_channels_last_contiguous(sizes, strides)) flags |= kChannelsLastContiguous;
    if (tenon::is_channels_last(sizes, strides)) flags |= kChannelsLast;
  } else if (sizes.size() == 5) {
    if (tenon::is_channels_last_3d_contiguous(sizes, strides)) flags |= kChannelsLast3dContiguous;
    if (tenon::is_channels_last_3d(sizes, strides)) flags |= kChannelsLast3d;
  }
  if (tenon::is_non_overlapping_and_dense(sizes, strides)) flags |= kNonOverlappingAndDense;
  // Threads that ask at once store the same.
  layout_flags_.store(flags, std::memory_order_relaxed);
  return flags;
}

void TensorImpl::check_metadata_change(const char* what) const {
  if (!allow_tensor_metadata_change())
    throw InvalidArgument(fmt::format(
        "{}: the metadata of a tensor from detach() or data() cannot be changed; change the "
        "original, or make a view",
        what));
}

void TensorImpl::set_sizes_contiguous(IntList sizes) {
  set_sizes_and_strides(sizes, strides_for(sizes), storage_offset_);
}

namespace {

[[noreturn]] void refuse_geometry(IntList sizes, IntList strides, std::int64_t offset, DType dtype,
                                  std::size_t storage_bytes) {
  static_cast<void>(checked_numel(sizes));
  if (strides.size() != sizes.size())
    throw InvalidArgument(fmt::format("shape {} with strides {}: there must be as many of each",
                                      to_string(sizes), to_string(strides)));
  bool negative = offset < 0;
  for (const std::int64_t stride : strides) negative |= stride < 0;
  if (negative)
    throw InvalidArgument(
        fmt::format("shape {} with strides {} and offset {}: strides and offset are at least 0; "
                    "flip() copies to reverse a dimension",
                    to_string(sizes), to_string(strides), offset));
  throw InvalidArgument(fmt::format(
      "shape {} with strides {} and offset {} of {} needs {} elements; the storage has {} bytes",
      to_string(sizes), to_string(strides), offset, dtype_name(dtype),
      storage_elements(sizes, strides, offset), storage_bytes));
}

// The number of elements; -1 where the geometry is none or reaches beyond `capacity` elements. One
// pass, since as_strided is nothing else.
inline std::int64_t numel_within(IntList sizes, IntList strides, std::int64_t offset,
                                 std::int64_t capacity) {
  if (sizes.size() > kMaxDims || strides.size() != sizes.size() || offset < 0) return -1;
  std::int64_t numel = 1, last = offset, signs = 0;
  bool overflow = false, empty = false;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const std::int64_t size = sizes[d];
    std::int64_t step = 0;
    signs |= size | strides[d];
    empty |= size == 0;
    overflow |= __builtin_mul_overflow(numel, size == 0 ? 1 : size, &numel);
    overflow |= __builtin_mul_overflow(size - 1, strides[d], &step);
    overflow |= __builtin_add_overflow(last, step, &last);
  }
  if (signs < 0) return -1;
  if (empty) return overflow ? checked_numel(sizes) : 0;  // then only the sizes must not overflow
  return overflow || last >= capacity ? -1 : numel;
}

}  // namespace

std::int64_t TensorImpl::fitting_numel(IntList sizes, IntList strides, std::int64_t offset) const {
  const std::size_t bytes = storage_.nbytes();
  const auto capacity = static_cast<std::int64_t>(bytes >> item_shift(dtype()));
  const std::int64_t numel = numel_within(sizes, strides, offset, capacity);
  if (numel < 0) [[unlikely]]
    refuse_geometry(sizes, strides, offset, dtype(), bytes);
  return numel;
}

void TensorImpl::set_sizes_and_strides(IntList sizes, IntList strides, std::int64_t offset) {
  check_metadata_change("set_sizes_and_strides");
  if ((flags_ & kBackendFollows) != 0) [[unlikely]]
    detail::check_new_sizes(*this, sizes);
  const std::int64_t numel = fitting_numel(sizes, strides, offset);
  if (!sizes.empty()) set_flag(kWrappedNumber, false);
  if (is_labelled()) [[unlikely]] {
    set_sym_sizes({});
    if (sizes.size() != shape_.ndim()) set_names({});
  }
  if (sizes.size() != shape_.ndim()) shape_.resize(sizes.size());
  std::int64_t* to_sizes = shape_.sizes_data();
  std::int64_t* to_strides = shape_.strides_data();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    to_sizes[d] = sizes[d];
    to_strides[d] = strides[d];
  }
  finish_view(numel, offset);
}

void TensorImpl::set_storage_and_geometry(Storage storage, IntList sizes, IntList strides,
                                          std::int64_t offset) {
  check_metadata_change("set_storage");
  if (storage.device() != device_)
    throw InvalidArgument(fmt::format("set_storage: the tensor is on {}, the storage on {}",
                                      to_string(device_), to_string(storage.device())));
  const Storage old = std::exchange(storage_, std::move(storage));
  try {
    set_sizes_and_strides(sizes, strides, offset);
  } catch (...) {
    storage_ = old;
    throw;
  }
  if (!is_inference()) use_new_version_counter();
}

VariableVersion TensorImpl::version_counter() const {
  if (is_inference()) return {};
  if (own_version_) return VariableVersion(own_version_, &own_version_->value);
  return VariableVersion(storage_.impl_ptr(), &storage_.impl()->version());
}

std::uint32_t TensorImpl::current_version() const {
  if (is_inference()) return version_counter().current_version();
  return version_word().load(std::memory_order_acquire);
}

void TensorImpl::bump_inference() const {
  if (in_inference_mode()) return;
  throw InvalidArgument(
      "an inference tensor cannot be changed in place outside inference mode; clone it first");
}

void TensorImpl::use_new_version_counter() { own_version_ = make_intrusive<VersionCounter>(); }

AutogradMetaInterface& TensorImpl::ensure_autograd_meta() {
  if (autograd_ == nullptr) {
    if (is_inference())
      throw InvalidArgument(
          "an inference tensor cannot require a gradient; clone it outside inference mode");
    autograd_ = autograd_meta_factory().make();
    set_flag(kFollowed, true);
  }
  return *autograd_;
}

void TensorImpl::set_requires_grad(bool requires_grad) {
  if (!requires_grad && autograd_ == nullptr) return;
  if (requires_grad && layout() != Layout::kStrided)
    throw InvalidArgument(
        fmt::format("a {} tensor requires a gradient by its values; set it for sparse_values()",
                    layout_name(layout())));
  if (requires_grad && !is_floating(dtype()) && !is_complex(dtype()))
    throw InvalidArgument(
        fmt::format("a tensor of {} cannot require a gradient: only floating point and complex can",
                    dtype_name(dtype())));
  ensure_autograd_meta().set_requires_grad(requires_grad, *this);
}

ExtraMeta& TensorImpl::ensure_extra_meta() {
  if (extra_ == nullptr) extra_ = std::make_unique<ExtraMeta>();
  return *extra_;
}

void TensorImpl::set_names(std::vector<std::string> names) {
  if (extra_ == nullptr && names.empty()) return;
  ensure_extra_meta().names = std::move(names);
  take_labels_from_extra();
}

void TensorImpl::set_sym_sizes(std::vector<SymInt> sizes) {
  if (extra_ == nullptr && sizes.empty()) return;
  ensure_extra_meta().sym_sizes = std::move(sizes);
  take_labels_from_extra();
}

void TensorImpl::take_labels_from_extra() {
  const bool labelled =
      extra_ != nullptr && !(extra_->names.empty() && extra_->sym_sizes.empty());
  set_flag(kLabelled, labelled);
  key_set_ = labelled ? key_set_.add(DispatchKey::kLabels) : key_set_.remove(DispatchKey::kLabels);
  set_followed();
}

void TensorImpl::copy_extra(const TensorImpl& source) {
  extra_.reset();
  if (source.extra_ != nullptr) {
    extra_ = std::make_unique<ExtraMeta>(*source.extra_);
    if (extra_->backend) extra_->backend = extra_->backend->clone();
  }
  set_flag(kBackendFollows, (source.flags_ & kBackendFollows) != 0);
  take_labels_from_extra();
}

void TensorImpl::set_wrapped_number(bool wrapped) {
  TENON_CHECK(!wrapped || dim() == 0, "a wrapped number has no dimensions, not {}", dim());
  set_flag(kWrappedNumber, wrapped);
}

IntrusivePtr<TensorImpl> TensorImpl::shallow_copy(bool share_version,
                                                  bool allow_metadata_change) const {
  auto copy = make_intrusive<TensorImpl>(*this, Alias{});
  if (!share_version && !is_inference()) copy->use_new_version_counter();
  copy->set_allow_tensor_metadata_change(allow_metadata_change);
  if (extra_ != nullptr) copy->copy_extra(*this);
  return copy;
}

void TensorImpl::shallow_copy_from(const TensorImpl& source) {
  check_metadata_change("set_data");
  if (layout() != Layout::kStrided || source.layout() != Layout::kStrided)
    throw InvalidArgument("set_data: a sparse tensor cannot take another's place; assign it");
  storage_ = source.storage_;
  shape_ = source.shape_;
  kind_ = source.kind_;
  device_ = source.device_;
  key_set_ = source.key_set_;
  constexpr std::uint8_t kTaken = kInference | kWrappedNumber;
  flags_ = static_cast<std::uint8_t>((flags_ & ~kTaken) | (source.flags_ & kTaken));
  finish_view(source.numel_, source.storage_offset_);
  if (extra_ != nullptr || source.extra_ != nullptr) copy_extra(source);
  own_version_.reset();
  if (!is_inference()) use_new_version_counter();
}

std::size_t TensorImpl::metadata_bytes() const {
  return sizeof(TensorImpl) + shape_.heap_bytes() + (has_storage() ? sizeof(StorageImpl) : 0) +
         (own_version_ ? sizeof(VersionCounter) : 0) + (extra_ ? sizeof(ExtraMeta) : 0);
}

}  // namespace tenon
