#include "tenon/tensor/copy.h"

#include <fmt/format.h>

#include <functional>

#include "tenon/base/error.h"
#include "tenon/memory/registry.h"
#include "tenon/tensor/copy_on_write.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/dim_labels.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/kernels/vulkan/capturing.h"
#include "tenon/tensor/kernels/vulkan/complaints.h"
#include "tenon/tensor/quantized.h"
#include "tenon/tensor/sparse.h"

namespace tenon {
namespace {

// Asks the gradient metadata of either whether values may go from source to target.
void ask_writable(const Tensor& target, const Tensor& source) {
  AutogradMetaInterface* meta = target.impl()->autograd_meta();
  if (meta == nullptr && source.defined()) meta = source.impl()->autograd_meta();
  if (meta != nullptr) [[unlikely]]
    meta->check_writable(target, source);
}

// Tells the gradient metadata of either that values went from source to target.
void tell_written(const Tensor& target, const Tensor& source) {
  AutogradMetaInterface* meta = target.impl()->autograd_meta();
  if (meta == nullptr && source.defined()) meta = source.impl()->autograd_meta();
  if (meta == nullptr) [[likely]]
    return;
  Tensor written = target;
  meta->written(written, source);
}

Tensor tell_copied(const Tensor& source, Tensor copy) {
  if (source.impl()->is_followed()) [[unlikely]] {
    if (is_quantized(copy)) detail::share_quantizer(copy, source);
    if (detail::is_labelled(source)) detail::label_like(copy, source);
    if (AutogradMetaInterface* meta = source.impl()->autograd_meta()) meta->copied(source, copy);
  }
  return copy;
}

void check_target(const Tensor& target, const char* what) {
  if (target.numel() > 1 && !is_surely_non_overlapping(target.sizes(), target.strides()))
    throw InvalidArgument(fmt::format(
        "{}: the target of shape {} and strides {} has elements that share memory; clone it first",
        what, to_string(target.sizes()), to_string(target.strides())));
}

bool is_host(const Tensor& t) { return host_reaches(t.device()); }

// Whether elements are copied one by one: by kernels of their device, or by the host.
bool can_copy_elements(const Tensor& target, const Tensor& source) {
  return (is_host(target) && is_host(source)) ||
         (target.device() == source.device() && has_operators(target.device()));
}

const void* address_in_stream(const Tensor& t) {
  return static_cast<const char*>(t.storage().impl()->data_in_stream()) +
         t.storage_offset() * static_cast<std::int64_t>(t.item_size());
}

// Between devices, or on one without operators: whole blocks, by the allocator that knows the
// memory. What is in another order or dtype is brought into line on its own side, where that has
// operators.
void copy_across(const Tensor& target, const Tensor& source) {
  const bool in_line = target.dtype() == source.dtype() && target.sizes() == source.sizes() &&
                       source.is_contiguous();
  if (!in_line && has_operators(source.device())) {
    Tensor staged = empty(target.sizes(), target.dtype(), source.device());
    detail::copy_elements(staged, source);
    return copy_across(target, staged);
  }
  if (in_line && !target.is_contiguous() && has_operators(target.device())) {
    Tensor staged = empty(target.sizes(), target.dtype(), target.device());
    copy_across(staged, source);
    return detail::copy_elements(target, staged);
  }
  if (!in_line || !target.is_contiguous())
    throw InvalidArgument(fmt::format(
        "copy: from {} {} on {} to {} {} on {}: between devices only contiguous tensors of one "
        "shape and dtype are copied",
        dtype_name(source.dtype()), to_string(source.sizes()), to_string(source.device()),
        dtype_name(target.dtype()), to_string(target.sizes()), to_string(target.device())));
  const Device device = is_host(target) ? source.device() : target.device();
  vulkan::refuse_host_in_capture(device, "a tensor's values");
  static_cast<void>(target.storage().impl()->mutable_data_in_stream());
  current_allocator(device)->copy_data(const_cast<void*>(address_in_stream(target)),
                                       address_in_stream(source), source.nbytes());
  if (source.device().type == DeviceType::kVulkan)
    vulkan::raise_complaint(source.device().index);  // the copy waited
}

// Two storages may be over the same bytes, as with DLPack. (A copy on write gets its own first.)
bool shares_bytes(const Tensor& a, const Tensor& b) {
  if (a.is_alias_of(b)) return true;
  if (a.device() != Device{} || a.storage().impl()->is_copy_on_write()) return false;
  const auto* of_a = static_cast<const char*>(a.storage().data_ptr().get());
  const auto* of_b = static_cast<const char*>(b.storage().data_ptr().get());
  return std::less<>()(of_a, of_b + b.storage().nbytes()) &&
         std::less<>()(of_b, of_a + a.storage().nbytes());
}

void move_values(const Tensor& target, const Tensor& source) {
  if (target.numel() == 0 || target.is_meta()) return;
  if (target.dtype() != source.dtype() && is_quantized(source))
    throw InvalidArgument(fmt::format(
        "copy: a qint8 tensor of shape {} into one of {}; dequantize() it first, or take its "
        "int_repr()",
        to_string(source.sizes()), dtype_name(target.dtype())));
  if (source.is_meta())
    throw InvalidArgument(
        fmt::format("copy: a meta tensor of shape {} has no values to give to one on {}; make an "
                    "empty one there",
                    to_string(source.sizes()), to_string(target.device())));
  if (!can_copy_elements(target, source)) return copy_across(target, source);
  if (shares_bytes(target, source)) {
    const bool same_place =
        target.is_alias_of(source) && target.dtype() == source.dtype() &&
        target.storage_offset() == source.storage_offset() && target.sizes() == source.sizes() &&
        target.strides() == source.strides();
    if (same_place) return;
    return move_values(target, clone(source.detach()));
  }
  detail::copy_elements(target, source);
}

// By the target's own scale and zero point, whatever the source's.
void copy_quantized(const Tensor& target, const Tensor& source) {
  if (!is_quantized(source)) return detail::quantize_into(target, source);
  if (detail::same_quantizer(target, source)) return move_values(target, source);
  detail::quantize_into(target, dequantize(source));
}

// The strides of a dense copy in the source's order, as PyTorch's preserve_format has them.
DimVector preserved_strides(const Tensor& source) {
  if (source.is_non_overlapping_and_dense()) return source.strides().to_vector();
  return strides_for(source.sizes());
}

}  // namespace

const Tensor& copy_(const Tensor& target, const Tensor& source) {
  detail::check_defined("copy_", target, source);
  if (broadcast_sizes(target.sizes(), source.sizes(), "copy") != target.sizes().to_vector())
    throw InvalidArgument(fmt::format("copy: shape {} does not broadcast to {}",
                                      to_string(source.sizes()), to_string(target.sizes())));
  check_target(target, "copy");
  if (detail::is_labelled(target) || detail::is_labelled(source)) [[unlikely]]
    detail::label_written("copy", target, source);
  ask_writable(target, source);
  target.impl()->bump_version();
  if (is_quantized(target) && target.numel() > 0) [[unlikely]]
    copy_quantized(target, source);
  else
    move_values(target, source);
  tell_written(target, source);
  return target;
}

const Tensor& fill_(const Tensor& target, const Scalar& value) {
  detail::check_defined("fill_", target);
  check_target(target, "fill");
  ask_writable(target, Tensor());
  target.impl()->bump_version();
  if (target.numel() > 0 && !target.is_meta()) {
    if (is_quantized(target)) {
      detail::quantize_into(target, scalar_tensor(value, DType::kF32));
    } else if (has_operators(target.device())) {
      detail::fill_elements(target, value);
    } else {
      Tensor staged = empty({}, target.dtype());
      detail::fill_elements(staged, value);
      copy_across(target, staged.expand(target.sizes()));
    }
  }
  tell_written(target, Tensor());
  return target;
}

Tensor clone(const Tensor& source, MemoryFormat format) {
  detail::check_defined("clone", source);
  if (is_sparse(source)) return with_sparse_values(source, clone(sparse_values(source)));
  const DimVector strides = format == MemoryFormat::kPreserve ? preserved_strides(source)
                                                              : strides_for(source.sizes(), format);
  Tensor copy = empty_strided(source.sizes(), strides, source.dtype(), source.device());
  move_values(copy, source);
  return tell_copied(source, std::move(copy));
}

Tensor lazy_clone(const Tensor& source) {
  detail::check_defined("lazy_clone", source);
  Storage shared(copy_on_write_clone(*source.storage().impl()));
  Tensor copy(make_intrusive<TensorImpl>(std::move(shared), source.dtype(), source.sizes(),
                                         source.strides(), source.storage_offset()));
  return tell_copied(source, std::move(copy));
}

Tensor contiguous(const Tensor& source, MemoryFormat format) {
  detail::check_defined("contiguous", source);
  return source.is_contiguous(format) ? source : clone(source, format);
}

Tensor to(const Tensor& source, DType dtype) {
  detail::check_defined("to", source);
  if (source.dtype() == dtype) return source;
  if (is_sparse(source)) return with_sparse_values(source, to(sparse_values(source), dtype));
  if (dtype == DType::kQI8)
    throw InvalidArgument("to: qint8 has a scale and a zero point; use quantize_per_tensor or "
                          "quantize_per_channel");
  Tensor copy = empty_strided(source.sizes(), preserved_strides(source), dtype, source.device());
  move_values(copy, source);
  return tell_copied(source, std::move(copy));
}

Tensor to(const Tensor& source, Device device) {
  detail::check_defined("to", source);
  if (source.device() == device) return source;
  Tensor copy = empty(source.sizes(), source.dtype(), device);
  move_values(copy, source.is_contiguous() || source.is_meta() ? source : clone(source.detach()));
  return tell_copied(source, std::move(copy));
}

Tensor to_host(const Tensor& source) {
  detail::check_defined("to_host", source);
  return host_reaches(source.device()) ? source : to(source, Device{});
}

}  // namespace tenon
