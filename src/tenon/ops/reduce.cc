#include "tenon/ops/reduce.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "tenon/base/parallel.h"
#include "tenon/ops/binary.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/arg_extreme.h"
#include "tenon/ops/kernels/cpu/reduce_blocks.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/ops/select.h"
#include "tenon/ops/softmax.h"
#include "tenon/ops/unary.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::ops {
namespace {

void check_elements(const char* what, const Tensor& a, std::uint64_t dims) {
  for (std::size_t d = 0; d < static_cast<std::size_t>(a.dim()); ++d)
    if (((dims >> d) & 1) != 0 && a.sizes()[d] == 0)
      throw InvalidArgument(fmt::format("{}: dimension {} of shape {} has no elements", what, d,
                                        to_string(a.sizes())));
}

std::int64_t reduced_count(const Tensor& a, std::uint64_t dims) {
  std::int64_t count = 1;
  for (std::size_t d = 0; d < static_cast<std::size_t>(a.dim()); ++d)
    if (((dims >> d) & 1) != 0) count *= a.sizes()[d];
  return count;
}

// The gathered numbers as the result: dtype and shape.
Tensor shaped(const Tensor& gathered, const Tensor& a, std::uint64_t dims, bool keepdim,
              DType dtype) {
  return to(gathered, dtype).view(detail::reduced_sizes(a, dims, keepdim));
}

// What `kind` gathers, as the result.
Tensor shaped(Gather kind, const Tensor& a, std::uint64_t dims, bool keepdim, DType dtype) {
  return shaped(detail::gather(kind, a, dims, {}, dtype), a, dims, keepdim, dtype);
}

DType sum_dtype(DType dtype) {
  return is_floating(dtype) || is_complex(dtype) ? dtype : DType::kI64;
}

// Means in f64, one for each kept element.
Tensor means(const Tensor& a, std::uint64_t dims) {
  return div(detail::gather(Gather::kSum, a, dims, {}),
             Scalar(static_cast<double>(reduced_count(a, dims))));
}

Tensor variances(const char* what, const Tensor& a, std::uint64_t dims, std::int64_t correction) {
  check_floating(what, a);
  const Tensor squares = detail::gather(Gather::kSumOfSquares, a, dims, means(a, dims));
  const double count = static_cast<double>(reduced_count(a, dims) - correction);
  return div(squares, Scalar(std::max(count, 0.0)));
}

// log(sum(exp(a))) over those dimensions, which become one, on the host. Of all elements of many in
// two steps, the first of which has lines for several threads.
Tensor log_sums_over(const Tensor& a, std::uint64_t dims) {
  if (std::has_single_bit(dims)) return detail::log_sums(a, std::countr_zero(dims));
  DimVector order, sizes;
  for (std::int64_t d = 0; d < a.dim(); ++d)
    if (((dims >> d) & 1) == 0) order.push_back(d), sizes.push_back(a.size(d));
  constexpr std::int64_t kMany = 1 << 16, kMostLines = 64;
  const bool has_lines = sizes.empty() && a.numel() >= kMany;
  if (has_lines) sizes.push_back(std::gcd(a.numel(), kMostLines));
  for (std::int64_t d = 0; d < a.dim(); ++d)
    if (((dims >> d) & 1) != 0) order.push_back(d);
  sizes.push_back(reduced_count(a, dims) / (has_lines ? sizes[0] : 1));
  const Tensor lines = detail::log_sums(a.permute(order).reshape(sizes),
                                        static_cast<std::int64_t>(sizes.size()) - 1);
  return has_lines ? detail::log_sums(lines, 0) : lines;
}

// Zero where `a` is, else above it.
Tensor truths(const Tensor& a) {
  return a.dtype() == DType::kU8 && a.device() == Device{} ? a : to(a, DType::kBool);
}

Tensor extreme(const char* what, Gather kind, const Tensor& a, IntList dims, bool keepdim) {
  device_to_offer(what, {&a});
  const std::uint64_t reduced = detail::reduced_dims(what, a, dims);
  check_elements(what, a, reduced);
  if (is_complex(a.dtype()))
    throw InvalidArgument(fmt::format("{}: complex numbers have no order", what));
  return shaped(kind, a, reduced, keepdim, a.dtype());
}

template <bool kLargest>
Tensor arg_extreme(const char* what, const Tensor& given, std::optional<std::int64_t> dim,
                   bool keepdim) {
  const Device device = device_to_offer(what, {&given});
  const Tensor a = dim ? given : given.reshape({-1});
  const auto d = static_cast<std::size_t>(wrap_dim(dim.value_or(0), a.dim(), what));
  check_elements(what, a, std::uint64_t{1} << d);
  if (a.numel() == 0 && !dim) throw InvalidArgument(fmt::format("{}: of no elements", what));
  if (is_complex(a.dtype()))
    throw InvalidArgument(fmt::format("{}: complex numbers have no order", what));
  const std::uint64_t reduced = a.dim() == 0 ? 0 : std::uint64_t{1} << d;
  Tensor out = empty(detail::reduced_sizes(a, reduced, keepdim && dim), DType::kI64, device);
  const std::int64_t length = a.dim() == 0 ? 1 : a.sizes()[d];
  if (!out.is_meta() && length == 1) fill_(out, 0);
  if (!out.is_meta() && out.numel() > 0 && length > 1 &&
      !(vulkan::holds(a) && vulkan::arg_extreme(kLargest, out, a, reduced))) {
    HostTurn host;
    if (vulkan::holds(a)) host.take(what, device);
    const Tensor rows = contiguous(a.movedim(static_cast<std::int64_t>(d), -1));
    std::int64_t* result = out.data_ptr<std::int64_t>();
    const cpu::ArgExtreme place = cpu::arg_extreme(kLargest, a.dtype());
    const auto* const values = static_cast<const char*>(rows.const_data_ptr());
    const std::int64_t bytes = length * static_cast<std::int64_t>(rows.item_size());
    parallel_for(0, out.numel(), std::max<std::int64_t>(1, 32768 / length),
                 [&](std::int64_t begin, std::int64_t end) {
                   place(result + begin, values + begin * bytes, end - begin, length);
                 });
  }
  if (keepdim && !dim) return out.view(DimVector(static_cast<std::size_t>(given.dim()), 1));
  return out;
}

}  // namespace

std::uint64_t detail::reduced_dims(const char* what, const Tensor& a, IntList dims) {
  if (dims.empty()) return a.dim() == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << a.dim()) - 1;
  std::uint64_t bits = 0;
  for (const std::int64_t dim : dims) {
    const std::uint64_t bit = std::uint64_t{1} << wrap_dim(dim, a.dim(), what);
    if ((bits & bit) != 0)
      throw InvalidArgument(
          fmt::format("{}: dimension {} comes twice in {}", what, dim, to_string(dims)));
    bits |= bit;
  }
  return bits;
}

DimVector detail::reduced_sizes(const Tensor& a, std::uint64_t reduced, bool keepdim) {
  DimVector sizes;
  for (std::size_t d = 0; d < static_cast<std::size_t>(a.dim()); ++d) {
    if (((reduced >> d) & 1) == 0)
      sizes.push_back(a.sizes()[d]);
    else if (keepdim)
      sizes.push_back(1);
  }
  return sizes;
}

Tensor detail::sum(const Tensor& a, IntList dims, bool keepdim) {
  device_to_offer("sum", {&a});
  const std::uint64_t reduced = reduced_dims("sum", a, dims);
  return shaped(Gather::kSum, a, reduced, keepdim, sum_dtype(a.dtype()));
}

Tensor detail::mean(const Tensor& a, IntList dims, bool keepdim) {
  device_to_offer("mean", {&a});
  if (!is_complex(a.dtype())) check_floating("mean", a);
  const std::uint64_t reduced = reduced_dims("mean", a, dims);
  if (reduced_count(a, reduced) == 1) return shaped(Gather::kSum, a, reduced, keepdim, a.dtype());
  return shaped(means(a, reduced), a, reduced, keepdim, a.dtype());
}

Tensor detail::prod(const Tensor& a, IntList dims, bool keepdim) {
  device_to_offer("prod", {&a});
  const std::uint64_t reduced = reduced_dims("prod", a, dims);
  return shaped(Gather::kProduct, a, reduced, keepdim, sum_dtype(a.dtype()));
}

Tensor detail::amax(const Tensor& a, IntList dims, bool keepdim) {
  return extreme("amax", Gather::kLargest, a, dims, keepdim);
}
Tensor detail::amin(const Tensor& a, IntList dims, bool keepdim) {
  return extreme("amin", Gather::kSmallest, a, dims, keepdim);
}

Tensor detail::any(const Tensor& a, IntList dims, bool keepdim) {
  device_to_offer("any", {&a});
  const std::uint64_t reduced = reduced_dims("any", a, dims);
  const Tensor truth = truths(a);
  const Tensor found = a.device() == Device{}
                           // The lowest number, that of no elements, is 0 as a byte.
                           ? gather(Gather::kLargest, truth, reduced, {}, DType::kU8)
                           : gt(gather(Gather::kSum, truth, reduced, {}), 0);
  return shaped(found, a, reduced, keepdim, DType::kBool);
}

Tensor detail::all(const Tensor& a, IntList dims, bool keepdim) {
  device_to_offer("all", {&a});
  const std::uint64_t reduced = reduced_dims("all", a, dims);
  const Tensor truth = truths(a);
  const Gather kind = a.device() == Device{} ? Gather::kSmallest : Gather::kProduct;
  return shaped(kind, truth, reduced, keepdim, DType::kBool);
}

Tensor detail::logsumexp(const Tensor& a, IntList dims, bool keepdim) {
  device_to_offer("logsumexp", {&a});
  check_floating("logsumexp", a);
  const std::uint64_t reduced = reduced_dims("logsumexp", a, dims);
  if (a.device() == Device{} && a.numel() > 0 && reduced != 0)
    return shaped(log_sums_over(a, reduced), a, reduced, keepdim, a.dtype());
  // Shifted by the largest; an infinite one would give NaN, and shifts nothing.
  const Tensor largest = gather(Gather::kLargest, a, reduced, {});
  const Tensor shift = masked_fill(largest, isinf(largest), 0.0);
  const Tensor sums = gather(Gather::kSumOfExponentials, a, reduced, shift);
  return shaped(add(log(sums), shift), a, reduced, keepdim, a.dtype());
}

Tensor detail::norm(const Tensor& a, IntList dims, bool keepdim) {
  device_to_offer("norm", {&a});
  check_floating("norm", a);
  const std::uint64_t reduced = reduced_dims("norm", a, dims);
  if (reduced_count(a, reduced) == 1)
    return shaped(Gather::kSum, abs(a), reduced, keepdim, a.dtype());
  return shaped(sqrt(gather(Gather::kSumOfSquares, a, reduced, {})), a, reduced, keepdim,
                a.dtype());
}

Tensor detail::var(const Tensor& a, IntList dims, std::int64_t correction, bool keepdim) {
  device_to_offer("var", {&a});
  const std::uint64_t reduced = reduced_dims("var", a, dims);
  return shaped(variances("var", a, reduced, correction), a, reduced, keepdim, a.dtype());
}

Tensor detail::std_deviation(const Tensor& a, IntList dims, std::int64_t correction, bool keepdim) {
  device_to_offer("std", {&a});
  const std::uint64_t reduced = reduced_dims("std", a, dims);
  return shaped(sqrt(variances("std", a, reduced, correction)), a, reduced, keepdim, a.dtype());
}

Tensor detail::argmax(const Tensor& a, std::optional<std::int64_t> dim, bool keepdim) {
  return arg_extreme<true>("argmax", a, dim, keepdim);
}
Tensor detail::argmin(const Tensor& a, std::optional<std::int64_t> dim, bool keepdim) {
  return arg_extreme<false>("argmin", a, dim, keepdim);
}

}  // namespace tenon::ops
