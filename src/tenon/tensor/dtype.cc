#include "tenon/tensor/dtype.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "tenon/base/error.h"
#include "tenon/base/printable.h"

namespace tenon {
namespace {

struct Names {
  std::string_view full;    // NumPy's and PyTorch's
  std::string_view brief;   // Rust's and safetensors', lower case
  std::string_view legacy;  // PyTorch's second name; may be empty
};

constexpr std::array<Names, kDTypeCount> kNames = {{
    {"bool", "bool", ""},
    {"uint8", "u8", "byte"},
    {"int8", "i8", "char"},
    {"int16", "i16", "short"},
    {"int32", "i32", "int"},
    {"int64", "i64", "long"},
    {"float16", "f16", "half"},
    {"bfloat16", "bf16", ""},
    {"float32", "f32", "float"},
    {"float64", "f64", "double"},
    {"complex64", "c64", "cfloat"},
    {"complex128", "c128", "cdouble"},
    {"uint16", "u16", ""},
    {"uint32", "u32", ""},
    {"uint64", "u64", ""},
    {"float8_e4m3fn", "f8_e4m3", ""},
    {"float8_e5m2", "f8_e5m2", ""},
    {"qint8", "qi8", ""},
}};

}  // namespace

std::string_view dtype_name(DType dtype) { return kNames[static_cast<std::size_t>(dtype)].full; }

void refuse_storage_only(DType dtype) {
  throw InvalidArgument(fmt::format(
      "{} elements are stored, copied and cast, not computed with; {}", dtype_name(dtype),
      dtype == DType::kQI8 ? "dequantize() them first" : "cast them first, with to(t, dtype)"));
}

DType parse_dtype(std::string_view name) {
  std::string lower(name);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (lower == kNames[i].full || lower == kNames[i].brief ||
        (!lower.empty() && lower == kNames[i].legacy))
      return static_cast<DType>(i);
  std::array<std::string_view, kDTypeCount> full;
  for (std::size_t i = 0; i < kNames.size(); ++i) full[i] = kNames[i].full;
  throw InvalidArgument(
      fmt::format("\"{}\" is no dtype: there are {}", one_line(name), fmt::join(full, ", ")));
}

}  // namespace tenon
