#include "tenon/tensor/interop/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "tenon/base/error.h"
#include "tenon/base/file_writer.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/interop/bools.h"
#include "tenon/tensor/interop/mapped_file.h"

namespace tenon {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// Kind and size, without the byte order.
constexpr std::array<std::pair<std::string_view, DType>, 14> kNumpyNames = {{
    {"b1", DType::kBool},
    {"u1", DType::kU8},
    {"i1", DType::kI8},
    {"i2", DType::kI16},
    {"i4", DType::kI32},
    {"i8", DType::kI64},
    {"u2", DType::kU16},
    {"u4", DType::kU32},
    {"u8", DType::kU64},
    {"f2", DType::kF16},
    {"f4", DType::kF32},
    {"f8", DType::kF64},
    {"c8", DType::kC64},
    {"c16", DType::kC128},
}};

struct Description {
  DType dtype = DType::kF32;
  bool swapped = false;  // bytes of the other order
  bool fortran = false;
  DimVector sizes;
  std::size_t data_begin = 0;
};

// Reads the header: a Python dictionary of three entries, of which this understands exactly what
// NumPy writes.
class HeaderReader {
 public:
  HeaderReader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Description read() {
    if (bytes_.size() < 10 || bytes_.substr(0, 6) != kMagic) fail("it does not begin as one");
    const int major = static_cast<unsigned char>(bytes_[6]);
    if (major < 1 || major > 3) fail(fmt::format("version {} is not known", major));
    const std::size_t width = major == 1 ? 2 : 4;
    if (bytes_.size() < 8 + width) fail("the header is cut off");
    std::size_t length = 0;
    for (std::size_t i = width; i-- > 0;)
      length = length << 8 | static_cast<unsigned char>(bytes_[8 + i]);
    if (length > bytes_.size() - 8 - width) fail("the header is cut off");
    text_ = bytes_.substr(8 + width, length);
    Description d;
    d.data_begin = 8 + width + length;
    read_dictionary(d);
    check_size(d);
    return d;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw ParseError(name_, 0, 0, "no npy file: " + reason);
  }
  void skip_spaces() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) text_.remove_prefix(1);
  }
  bool take(std::string_view token) {
    skip_spaces();
    if (text_.substr(0, token.size()) != token) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  void need(std::string_view token) {
    if (!take(token))
      fail(fmt::format("\"{}\" expected in the header at \"{}\"", token, text_.substr(0, 20)));
  }
  std::string_view quoted() {
    need("'");
    const std::size_t end = text_.find('\'');
    if (end == std::string_view::npos) fail("a string without end in the header");
    const std::string_view value = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return value;
  }

  void read_dictionary(Description& d) {
    bool has_descr = false, has_order = false, has_shape = false;
    need("{");
    while (!take("}")) {
      const std::string_view key = quoted();
      need(":");
      if (key == "descr" && !has_descr) {
        read_dtype(d);
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        d.fortran = take("True");
        if (!d.fortran) need("False");
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        read_shape(d);
        has_shape = true;
      } else {
        fail(fmt::format("\"{}\" in the header", key.substr(0, 20)));
      }
      if (!take(",")) {
        need("}");
        break;
      }
    }
    if (!has_descr || !has_order || !has_shape)
      fail("the header lacks descr, fortran_order or shape");
  }

  void read_dtype(Description& d) {
    skip_spaces();
    if (text_.empty() || text_[0] != '\'') fail("structured dtypes are not known");
    const std::string_view descr = quoted();
    const char order = descr.empty() ? '?' : descr[0];
    if (order != '<' && order != '>' && order != '|' && order != '=')
      fail(fmt::format("dtype '{}' is not known", descr.substr(0, 20)));
    for (const auto& [kind, dtype] : kNumpyNames)
      if (descr.substr(1) == kind) {
        d.dtype = dtype;
        d.swapped = order == '>' && item_size(dtype) > 1;
        return;
      }
    fail(fmt::format("dtype '{}' is not known", descr.substr(0, 20)));
  }

  void read_shape(Description& d) {
    need("(");
    while (!take(")")) {
      skip_spaces();
      std::int64_t size = 0;
      const auto parsed = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (parsed.ec != std::errc() || size < 0 || d.sizes.size() == kMaxDims)
        fail("the shape is no list of sizes");
      text_.remove_prefix(static_cast<std::size_t>(parsed.ptr - text_.data()));
      d.sizes.push_back(size);
      if (!take(",")) {
        need(")");
        break;
      }
    }
  }

  void check_size(const Description& d) const {
    std::int64_t numel = 0;
    try {
      numel = checked_numel(d.sizes);
    } catch (const InvalidArgument& error) {
      fail(error.what());
    }
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(numel), item_size(d.dtype), &bytes) ||
        bytes > bytes_.size() - d.data_begin)
      fail(fmt::format("shape {} of {} needs more than the {} bytes there are", to_string(d.sizes),
                       dtype_name(d.dtype), bytes_.size() - d.data_begin));
    if (d.dtype == DType::kBool && !are_bools(bytes_.substr(d.data_begin, bytes)))
      fail("a bool is neither 0 nor 1");
  }

  const std::string_view bytes_;
  const std::string& name_;
  std::string_view text_;
};

void swap_bytes(char* data, std::size_t bytes, std::size_t item) {
  for (std::size_t i = 0; i < bytes; i += item) std::reverse(data + i, data + i + item);
}

// Gives the contiguous tensor of the file's items its shape.
Tensor shaped(const Tensor& flat, const Description& d) {
  if (!d.fortran) return flat.view(d.sizes);
  DimVector reversed(d.sizes.data(), d.sizes.size());
  std::reverse(reversed.begin(), reversed.end());
  DimVector order;
  for (std::size_t i = d.sizes.size(); i-- > 0;) order.push_back(static_cast<std::int64_t>(i));
  return flat.view(reversed).permute(order);
}

Tensor copied(std::string_view bytes, const Description& d) {
  Tensor flat = empty({numel_of(d.sizes)}, d.dtype);
  if (flat.numel() > 0) {
    std::memcpy(flat.data_ptr(), bytes.data() + d.data_begin, flat.nbytes());
    const std::size_t item = is_complex(d.dtype) ? flat.item_size() / 2 : flat.item_size();
    if (d.swapped) swap_bytes(static_cast<char*>(flat.data_ptr()), flat.nbytes(), item);
  }
  return shaped(flat, d);
}

}  // namespace

Tensor load_npy(const std::string& path) {
  IntrusivePtr<MappedFile> file = MappedFile::open(path);
  const Description d = HeaderReader(file->view(), path).read();
  const std::int64_t numel = numel_of(d.sizes);
  char* data = file->data() + d.data_begin;
  if (d.swapped || numel == 0 || reinterpret_cast<std::uintptr_t>(data) % item_size(d.dtype) != 0)
    return copied(file->view(), d);
  const std::size_t bytes = static_cast<std::size_t>(numel) * item_size(d.dtype);
  DataPtr held(
      data, file.release(),
      [](void* context) {
        IntrusivePtr<MappedFile>::reclaim(static_cast<MappedFile*>(context)).reset();
      },
      Device{});
  return shaped(from_blob(std::move(held), bytes, {numel}, {1}, d.dtype), d);
}

Tensor parse_npy(std::string_view bytes, const std::string& name) {
  return copied(bytes, HeaderReader(bytes, name).read());
}

void save_npy(const std::string& path, const Tensor& tensor) {
  detail::check_defined("save_npy", tensor);
  if (!has_operators(tensor.device()))
    throw InvalidArgument(fmt::format("save_npy: the tensor is on {}; copy it to the cpu",
                                      to_string(tensor.device())));
  const auto known =
      std::find_if(kNumpyNames.begin(), kNumpyNames.end(),
                   [&](const auto& candidate) { return candidate.second == tensor.dtype(); });
  if (known == kNumpyNames.end())
    throw InvalidArgument(
        fmt::format("save_npy: NumPy has no {}; convert it first", dtype_name(tensor.dtype())));
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                   tensor.item_size() == 1 ? '|' : '<', known->first,
                                   fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "),
                                   tensor.dim() == 1 ? "," : "");
  // Data begin at a multiple of 64, so that they can be mapped.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string start(kMagic);
  start += '\x01';
  start += '\0';
  start += static_cast<char>(header.size() & 0xff);
  start += static_cast<char>(header.size() >> 8);
  FileWriter file(path);
  file.write(start.data(), start.size());
  file.write(header.data(), header.size());
  if (tensor.numel() > 0) file.write(contiguous(to_host(tensor)).const_data_ptr(), tensor.nbytes());
  file.commit();
}

}  // namespace tenon
