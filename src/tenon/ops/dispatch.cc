#include "tenon/ops/dispatch.h"

#include <fmt/format.h>

#include "tenon/tensor/host_access.h"

namespace tenon::ops {

void detail::LabelledCall::add(const Tensor& operand) {
  if (operand.defined()) shapes_.push_back(tenon::detail::sym_sizes_of(operand));
}

void detail::LabelledCall::set_result(Labels labels) {
  SymSizes sizes;
  for (const Label& label : labels) sizes.push_back(label.size);
  shapes_.push_back(std::move(sizes));
  result_ = std::move(labels);
}

void detail::LabelledCall::specialise() {
  for (SymSizes& shape : shapes_)
    for (const SymInt& size : shape) tenon::detail::assume_hint(size);
  shapes_.clear();
}

void detail::LabelledCall::label(const char* what, const Tensor& result, bool fresh) const {
  if (!result_) return;
  Labels labels = *result_;
  for (std::size_t d = 0; d < labels.size(); ++d)  // what the rule did not know
    if (labels[d].size.hint() < 0) labels[d].size = SymInt(result.sizes()[d]);
  tenon::detail::give_labels(what, result, labels, fresh);
}

Device detail::device_of_all(const char* what, std::span<const Tensor* const> tensors,
                             Work work) {
  const Tensor* decides = nullptr;
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    if (tensor->layout() != Layout::kStrided)
      throw InvalidArgument(fmt::format("{}: a {} tensor of shape {}; to_dense() makes it strided",
                                        what, layout_name(tensor->layout()),
                                        to_string(tensor->sizes())));
    if (is_storage_only(tensor->dtype()) &&
        !(work == Work::kMoves && tensor->dtype() != DType::kQI8))
      throw InvalidArgument(fmt::format(
          "{}: it does not compute with {}, of shape {}; {}", what, dtype_name(tensor->dtype()),
          to_string(tensor->sizes()),
          tensor->dtype() == DType::kQI8 ? "dequantize() the tensor first"
                                         : "cast with to(t, dtype) first"));
    const bool goes_with_any = tensor->dim() == 0 && tensor->device() == Device{};
    if (decides == nullptr || (decides->dim() == 0 && decides->device() == Device{})) {
      if (decides == nullptr || !goes_with_any) decides = tensor;
    } else if (!goes_with_any && tensor->device() != decides->device()) {
      throw InvalidArgument(fmt::format("{}: tensors on {} and on {}; move one of them", what,
                                        to_string(decides->device()), to_string(tensor->device())));
    }
  }
  const Device device = decides == nullptr ? Device{} : decides->device();
  if (!has_operators(device) && device.type != DeviceType::kMeta)
    throw InvalidArgument(
        fmt::format("{}: there is no kernel for {}; set one with Operator::set_kernel, or copy the "
                    "tensors to the cpu",
                    what, to_string(device)));
  return device;
}

}  // namespace tenon::ops
