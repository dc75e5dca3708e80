#include "tenon/tensor/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <vector>

#include "tenon/tensor/copy.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/quantized.h"
#include "tenon/tensor/sparse.h"

namespace tenon {
namespace {

// Decides how the elements that are shown are written: one form for all of them.
class Format {
 public:
  Format(DType dtype, const PrintOptions& options) : dtype_(dtype), precision_(options.precision) {}

  void see(const Scalar& value) { values_.push_back(value); }

  void decide() {
    if (is_floating(dtype_) || is_complex(dtype_)) decide_real();
    for (const Scalar& value : values_) width_ = std::max(width_, write(value).size());
  }

  std::string padded(const Scalar& value) const {
    return fmt::format("{:>{}}", write(value), width_);
  }
  std::size_t width() const { return width_; }

 private:
  // PyTorch's rule: whole numbers get no digits; scientific where the largest magnitude is above
  // 1e8, the smallest below 1e-4, or their ratio above 1000.
  void decide_real() {
    double smallest = INFINITY;
    double largest = 0;
    whole_ = true;
    for (const Scalar& value : values_) {
      const Complex128 c = value.to<Complex128>();
      for (const double part : {c.real(), c.imag()}) {
        if (!std::isfinite(part) || part == 0) continue;
        smallest = std::min(smallest, std::abs(part));
        largest = std::max(largest, std::abs(part));
        whole_ &= part == std::nearbyint(part);
      }
    }
    if (largest == 0) return;
    scientific_ = largest > 1e8 || (!whole_ && (smallest < 1e-4 || largest / smallest > 1000)) ||
                  (whole_ && largest / smallest > 1000);
  }

  std::string write_real(double value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    if (scientific_) return fmt::format("{:.{}e}", value, precision_);
    return whole_ ? fmt::format("{:.0f}.", value) : fmt::format("{:.{}f}", value, precision_);
  }

  std::string write(const Scalar& value) const {
    if (dtype_ == DType::kBool) return value.to<bool>() ? "True" : "False";
    if (value.dtype() == DType::kU64) return fmt::format("{}", value.to<std::uint64_t>());
    if (is_integral(dtype_)) return fmt::format("{}", value.to<std::int64_t>());
    if (is_floating(dtype_)) return write_real(value.to<double>());
    const Complex128 c = value.to<Complex128>();
    const std::string imaginary = write_real(c.imag());
    return fmt::format("{}{}{}j", write_real(c.real()), imaginary[0] == '-' ? "" : "+", imaginary);
  }

  const DType dtype_;
  const int precision_;
  std::vector<Scalar> values_;
  bool whole_ = false;
  bool scientific_ = false;
  std::size_t width_ = 0;
};

class Printer {
 public:
  Printer(const Tensor& tensor, const PrintOptions& options)
      : tensor_(tensor),
        options_(options),
        format_(tensor.dtype(), options),
        summarise_(tensor.numel() > options.threshold) {}

  std::string print() {
    walk(tensor_, [this](const Scalar& value) { format_.see(value); });
    format_.decide();
    return block(tensor_, kPrefix.size());
  }

  static constexpr std::string_view kPrefix = "tensor(";

 private:
  // The indices of a dimension that are shown; -1 stands for the gap.
  std::vector<std::int64_t> shown(std::int64_t size) const {
    std::vector<std::int64_t> out;
    const std::int64_t edge = options_.edge_items;
    for (std::int64_t i = 0; i < size; ++i) {
      if (summarise_ && size > 2 * edge && i == edge) {
        out.push_back(-1);
        i = size - edge;
        if (i == size) break;
      }
      out.push_back(i);
    }
    return out;
  }

  void walk(const Tensor& t, const std::function<void(const Scalar&)>& visit) const {
    if (t.dim() == 0) return visit(t.item());
    for (const std::int64_t i : shown(t.size(0)))
      if (i >= 0) walk(t.select(0, i), visit);
  }

  std::string row(const Tensor& t, std::size_t indent) const {
    const auto per_line = std::max<std::size_t>(
        1, (static_cast<std::size_t>(options_.line_width) - indent) / (format_.width() + 2));
    std::string text = "[";
    std::size_t on_line = 0;
    bool first = true;
    for (const std::int64_t i : shown(t.size(0))) {
      if (!first) text += ",";
      if (!first && on_line == per_line) {
        text += fmt::format("\n{:{}}", "", indent + 1);
        on_line = 0;
      } else if (!first) {
        text += " ";
      }
      text += i < 0 ? " ..." : format_.padded(t.select(0, i).item());
      ++on_line;
      first = false;
    }
    text += "]";
    return text;
  }

  std::string block(const Tensor& t, std::size_t indent) const {
    if (t.dim() == 0) return format_.padded(t.item());
    if (t.dim() == 1) return row(t, indent);
    const std::string gap = fmt::format(",{:\n<{}}{:{}}", "", t.dim() - 1, "", indent + 1);
    std::string text = "[";
    bool first = true;
    for (const std::int64_t i : shown(t.size(0))) {
      if (!first) text += gap;
      text += i < 0 ? "..." : block(t.select(0, i), indent + 1);
      first = false;
    }
    text += "]";
    return text;
  }

  const Tensor& tensor_;
  const PrintOptions& options_;
  Format format_;
  const bool summarise_;
};

bool has_usual_dtype(const Tensor& t) {
  return t.dtype() == DType::kF32 || t.dtype() == DType::kBool ||
         (t.dtype() == DType::kI64 && t.numel() > 0);
}

}  // namespace

namespace {

// The parts, each on lines of its own, as PyTorch prints them.
std::string sparse_to_string(const Tensor& tensor, const PrintOptions& options) {
  const std::string values = to_string(sparse_values(tensor), options);
  const std::string places =
      tensor.layout() == Layout::kSparseCoo
          ? "indices=" + to_string(sparse_indices(tensor), options)
      : tensor.layout() == Layout::kSparseCsr || tensor.layout() == Layout::kSparseBsr
          ? fmt::format("crow_indices={},\n       col_indices={}",
                        to_string(sparse_crow_indices(tensor), options),
                        to_string(sparse_col_indices(tensor), options))
          : fmt::format("ccol_indices={},\n       row_indices={}",
                        to_string(sparse_ccol_indices(tensor), options),
                        to_string(sparse_row_indices(tensor), options));
  return fmt::format("tensor({},\n       values={},\n       size={}, nnz={}, layout={})", places,
                     values, to_string(tensor.sizes()), sparse_nnz(tensor),
                     layout_name(tensor.layout()));
}

// The values, and what they are made with.
std::string quantized_to_string(const Tensor& tensor, const PrintOptions& options) {
  std::string text = to_string(dequantize(tensor), options);
  text.pop_back();
  if (!is_quantized_per_channel(tensor))
    return fmt::format("{}, dtype=qint8, scale={}, zero_point={})", text, q_scale(tensor),
                       q_zero_point(tensor));
  return fmt::format("{}, dtype=qint8, axis={},\n       scales={},\n       zero_points={})", text,
                     q_per_channel_axis(tensor), to_string(q_per_channel_scales(tensor), options),
                     to_string(q_per_channel_zero_points(tensor), options));
}

}  // namespace

std::string to_string(const Tensor& tensor, const PrintOptions& options) {
  if (options.precision < 0 || options.edge_items < 0)
    throw InvalidArgument(fmt::format("printing with a precision of {} and {} edge items: both are "
                                      "0 or more",
                                      options.precision, options.edge_items));
  if (!tensor.defined()) return "tensor(undefined)";
  if (is_sparse(tensor)) return sparse_to_string(tensor, options);
  if (is_quantized(tensor)) return quantized_to_string(tensor, options);
  std::string text(Printer::kPrefix);
  const bool readable = has_operators(tensor.device());
  if (!readable)
    text += "...";
  else if (tensor.numel() == 0)
    text += "[]";
  else
    text += Printer(to_host(tensor.detach()), options).print();
  if (!readable || (tensor.numel() == 0 && tensor.dim() != 1))
    text += fmt::format(", size={}", to_string(tensor.sizes()));
  if (tensor.device() != Device{}) text += fmt::format(", device={}", to_string(tensor.device()));
  if (!has_usual_dtype(tensor)) text += fmt::format(", dtype={}", dtype_name(tensor.dtype()));
  if (tensor.requires_grad()) text += ", requires_grad=True";
  text += ")";
  return text;
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << to_string(tensor);
}

}  // namespace tenon
