#include "tenon/nn/data/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/gzip.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/interop/mapped_file.h"

namespace tenon::nn {
namespace {

constexpr std::uint64_t kMostBytes = 4 * kGiB;

struct Type {
  unsigned char code;
  DType dtype;
};
constexpr Type kTypes[] = {{0x08, DType::kU8},  {0x09, DType::kI8},  {0x0B, DType::kI16},
                           {0x0C, DType::kI32}, {0x0D, DType::kF32}, {0x0E, DType::kF64}};

unsigned char byte_at(std::string_view bytes, std::size_t i) {
  return static_cast<unsigned char>(bytes[i]);
}

// Big-endian elements as the host has them, and back: the same permutation.
void swap_elements(char* data, std::size_t count, std::size_t item) {
  if (item == 1) return;
  for (std::size_t i = 0; i < count; ++i) std::reverse(data + i * item, data + (i + 1) * item);
}

}  // namespace

Tensor parse_idx(std::string_view bytes, const std::string& name) {
  const auto fail = [&](const std::string& reason) { return ParseError(name, 0, 0, reason); };
  if (bytes.size() < 4 || byte_at(bytes, 0) != 0 || byte_at(bytes, 1) != 0)
    throw fail("no IDX file: it does not begin with two zero bytes");
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                 [&](const Type& t) { return t.code == byte_at(bytes, 2); });
  if (type == std::end(kTypes))
    throw fail(fmt::format("IDX type {:#04x} is unknown", byte_at(bytes, 2)));
  const std::size_t ndim = byte_at(bytes, 3);
  if (ndim > kMaxDims)
    throw fail(fmt::format("{} dimensions; at most {} can be read", ndim, kMaxDims));
  const std::size_t header = 4 + 4 * ndim;
  if (bytes.size() < header)
    throw fail(fmt::format("the header of {} bytes is cut off at {}", header, bytes.size()));
  DimVector sizes;
  std::uint64_t count = 1;
  std::uint64_t room = 1;  // with sizes of 0 counted as 1: strides are made of these
  for (std::size_t d = 0; d < ndim; ++d) {
    std::uint64_t size = 0;
    for (std::size_t i = 0; i < 4; ++i) size = size << 8 | byte_at(bytes, 4 + 4 * d + i);
    room *= std::max<std::uint64_t>(size, 1);
    if (room > kMostBytes)
      throw fail(fmt::format("its sizes come to more than {}", format_byte_size(kMostBytes)));
    count *= size;
    sizes.push_back(static_cast<std::int64_t>(size));
  }
  const std::size_t item = item_size(type->dtype);
  if (bytes.size() - header != count * item)
    throw fail(fmt::format("shape {} of {} takes {} bytes, but {} follow the header",
                           to_string(IntList(sizes)), dtype_name(type->dtype), count * item,
                           bytes.size() - header));
  const Tensor tensor = empty(sizes, type->dtype);
  if (count > 0) {
    auto* data = static_cast<char*>(tensor.data_ptr());
    std::memcpy(data, bytes.data() + header, count * item);
    swap_elements(data, count, item);
  }
  return tensor;
}

Tensor load_idx(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!is_gzip(file->view())) return parse_idx(file->view(), path);
  return parse_idx(inflate_gzip(file->view(), path), path);
}

std::string format_idx(const Tensor& tensor) {
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                 [&](const Type& t) { return t.dtype == tensor.dtype(); });
  if (type == std::end(kTypes) || tensor.device() != Device{})
    throw InvalidArgument(fmt::format("IDX has no tensors of {} on {}", dtype_name(tensor.dtype()),
                                      to_string(tensor.device())));
  std::string out = {'\0', '\0', static_cast<char>(type->code), static_cast<char>(tensor.dim())};
  for (const std::int64_t size : tensor.sizes()) {
    if (size > 0xFFFFFFFFLL)
      throw InvalidArgument(fmt::format("IDX has no sizes above 2^32 - 1: {}", size));
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(size >> shift));
  }
  const Tensor dense = contiguous(tensor);
  const std::size_t header = out.size();
  if (dense.nbytes() > 0)
    out.append(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  swap_elements(out.data() + header, static_cast<std::size_t>(dense.numel()), dense.item_size());
  return out;
}

}  // namespace tenon::nn
