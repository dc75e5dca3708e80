#include "tenon/tensor/interop/standard.h"

#include <fmt/format.h>

#include "tenon/base/error.h"
#include "tenon/tensor/defined.h"

namespace tenon {

void detail::check_span(const Tensor& tensor) {
  detail::check_defined("as_span", tensor);
  if (tensor.device().type != DeviceType::kCpu || !tensor.is_contiguous())
    throw InvalidArgument(fmt::format(
        "as_span: shape {} with strides {} on {}; take a contiguous tensor on the cpu",
        to_string(tensor.sizes()), to_string(tensor.strides()), to_string(tensor.device())));
}

}  // namespace tenon
