#include "tenon/tensor/tensor.h"

#include <fmt/format.h>

#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/dim_labels.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/quantized.h"

namespace tenon {

namespace {

// A dimension that is there: wrap_dim takes a 0-d tensor for one of one dimension.
inline std::size_t real_dim(const Tensor& t, std::int64_t d, const char* what) {
  if (t.dim() == 0) [[unlikely]]
    throw InvalidArgument(fmt::format("{}: a 0-d tensor has no dimension {}", what, d));
  return static_cast<std::size_t>(wrap_dim(d, t.dim(), what));
}

}  // namespace

std::int64_t Tensor::size(std::int64_t d) const { return sizes()[real_dim(*this, d, "size")]; }

std::int64_t Tensor::stride(std::int64_t d) const {
  return strides()[real_dim(*this, d, "stride")];
}

bool Tensor::is_contiguous(MemoryFormat format) const {
  switch (format) {
    case MemoryFormat::kContiguous:
      return impl_->is_contiguous();
    case MemoryFormat::kChannelsLast:
      return impl_->is_channels_last_contiguous();
    case MemoryFormat::kChannelsLast3d:
      return impl_->is_channels_last_3d_contiguous();
    case MemoryFormat::kPreserve:
      break;
  }
  return impl_->is_non_overlapping_and_dense();
}

MemoryFormat Tensor::suggest_memory_format() const {
  if (impl_->is_channels_last()) return MemoryFormat::kChannelsLast;
  if (impl_->is_channels_last_3d()) return MemoryFormat::kChannelsLast3d;
  return MemoryFormat::kContiguous;
}

void detail::refuse_undefined(const char* what) {
  throw InvalidArgument(fmt::format("{}: an undefined tensor; give it one that was made", what));
}

void Tensor::refuse_dtype(DType wanted) const {
  throw InvalidArgument(fmt::format("data_ptr: the tensor of shape {} is {}, not {}; convert it",
                                    to_string(sizes()), dtype_name(dtype()), dtype_name(wanted)));
}

Scalar Tensor::item() const {
  if (numel() != 1 || !has_operators(device()))
    throw InvalidArgument(
        fmt::format("item: it takes a tensor of one element on the cpu, not shape {} on {}",
                    to_string(sizes()), to_string(device())));
  if (!host_reaches(device())) return to_host(detach()).item();
  if (is_quantized(*this)) return dequantize(*this).item();
  return visit_any_dtype(dtype(), [&]<typename T>() { return Scalar(*const_data_ptr<T>()); });
}

const Tensor& Tensor::grad() const {
  static const Tensor undefined;
  return impl_->autograd_meta() == nullptr ? undefined : impl_->autograd_meta()->grad();
}

void Tensor::set_data(const Tensor& source) const {
  detail::check_defined("set_data", source);
  if (requires_grad() && !is_floating(source.dtype()) && !is_complex(source.dtype()))
    throw InvalidArgument(
        fmt::format("set_data: the tensor requires a gradient, which {} cannot have",
                    dtype_name(source.dtype())));
  if (requires_grad() && source.is_inference())
    throw InvalidArgument(fmt::format(
        "set_data: the tensor requires a gradient, which an inference tensor of shape {} cannot "
        "have; clone() that outside of InferenceMode",
        to_string(source.sizes())));
  impl_->shallow_copy_from(*source.impl_);
}

namespace {

void check_resizable(const Tensor& t, const char* what) {
  if (t.requires_grad())
    throw InvalidArgument(fmt::format(
        "{}: a tensor of shape {} that requires a gradient; detach() it first", what,
        to_string(t.sizes())));
  if (t.layout() != Layout::kStrided)
    throw InvalidArgument(fmt::format("{}: a {} tensor has no storage of its own; to_dense() has",
                                      what, layout_name(t.layout())));
}

// Grows the storage until the geometry lies in it.
void reach(const Storage& storage, DType dtype, IntList sizes, IntList strides,
           std::int64_t offset) {
  const std::int64_t elements = storage_elements(sizes, strides, offset);
  if (numel_of(sizes) == 0 || elements <= 0) return;
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, static_cast<std::int64_t>(item_size(dtype)), &bytes))
    throw InvalidArgument(fmt::format(
        "shape {} with strides {} and offset {} of {} needs more than 2^63 - 1 bytes",
        to_string(sizes), to_string(strides), offset, dtype_name(dtype)));
  if (static_cast<std::size_t>(bytes) > storage.nbytes())
    storage.impl()->resize(static_cast<std::size_t>(bytes));
}

}  // namespace

const Tensor& Tensor::resize_(IntList sizes) const {
  check_resizable(*this, "resize_");
  if (sizes == this->sizes()) return *this;  // whatever its strides
  if (const ExtraMeta* extra = impl_->extra_meta(); extra != nullptr && !extra->names.empty())
    throw InvalidArgument(fmt::format(
        "resize_: a tensor of shape {} with names cannot get shape {}; set_names({{}}) first",
        to_string(this->sizes()), to_string(sizes)));
  static_cast<void>(checked_numel(sizes));
  const DimVector strides = strides_for(sizes);
  reach(storage(), dtype(), sizes, strides, storage_offset());
  impl_->set_sizes_and_strides(sizes, strides, storage_offset());
  impl_->bump_version();
  return *this;
}

const Tensor& Tensor::set_(Storage source, std::int64_t offset, IntList sizes,
                           IntList strides) const {
  check_resizable(*this, "set_");
  if (!source.valid())
    throw InvalidArgument("set_: a storage handle that holds none; give it one that was made");
  static_cast<void>(checked_numel(sizes));
  if (offset < 0)
    throw InvalidArgument(fmt::format("set_: offset {} for shape {}; it is at least 0", offset,
                                      to_string(sizes)));
  if (!strides.empty() && strides.size() != sizes.size())
    throw InvalidArgument(fmt::format(
        "set_: shape {} with strides {}: there must be as many of each, or no strides",
        to_string(sizes), to_string(strides)));
  const DimVector contiguous = strides_for(sizes);
  const IntList wanted = strides.empty() ? IntList(contiguous) : strides;
  reach(source, dtype(), sizes, wanted, offset);
  impl_->set_storage_and_geometry(std::move(source), sizes, wanted, offset);
  return *this;
}

const Tensor& Tensor::set_(const Tensor& source) const {
  detail::check_defined("set_", source);
  if (source.dtype() != dtype())
    throw InvalidArgument(fmt::format("set_: a tensor of {} cannot take the storage of one of {}; "
                                      "convert it first",
                                      dtype_name(dtype()), dtype_name(source.dtype())));
  return set_(source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

std::vector<SymInt> Tensor::sym_sizes() const { return detail::sym_sizes_of(*this); }

std::vector<std::string> Tensor::names() const {
  const ExtraMeta* extra = impl_->extra_meta();
  if (extra == nullptr || extra->names.empty())
    return std::vector<std::string>(static_cast<std::size_t>(dim()));
  return extra->names;
}

namespace {

// A letter or an underscore, then those and digits: what PyTorch takes for a name.
bool is_identifier(const std::string& name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && is_letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

void Tensor::set_names(std::vector<std::string> names) const {
  if (names.size() != static_cast<std::size_t>(dim()) && !names.empty())
    throw InvalidArgument(
        fmt::format("set_names: {} names for shape {}", names.size(), to_string(sizes())));
  for (std::string& name : names) {
    if (name == "*") name.clear();
    if (!name.empty() && !is_identifier(name))
      throw InvalidArgument(fmt::format(
          "set_names: \"{}\" is no name of a dimension; a name has letters, digits and underscores "
          "and does not begin with a digit; \"\" or \"*\" is none",
          name));
  }
  for (std::size_t d = 0; d < names.size(); ++d)
    for (std::size_t e = d + 1; e < names.size(); ++e)
      if (!names[d].empty() && names[d] == names[e])
        throw InvalidArgument(
            fmt::format("set_names: \"{}\" names dimensions {} and {}; each name once, or \"\"",
                        names[d], d, e));
  bool any = false;
  for (const std::string& name : names) any |= !name.empty();
  impl_->set_names(any ? std::move(names) : std::vector<std::string>());
}

}  // namespace tenon
