#include "tenon/tensor/interop/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

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

using Json = nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr const char* kMetadata = "__metadata__";

constexpr std::array<std::pair<std::string_view, DType>, 16> kSafetensorsNames = {{
    {"BOOL", DType::kBool},
    {"U8", DType::kU8},
    {"I8", DType::kI8},
    {"I16", DType::kI16},
    {"I32", DType::kI32},
    {"I64", DType::kI64},
    {"F16", DType::kF16},
    {"BF16", DType::kBF16},
    {"F32", DType::kF32},
    {"F64", DType::kF64},
    {"C64", DType::kC64},
    {"U16", DType::kU16},
    {"U32", DType::kU32},
    {"U64", DType::kU64},
    {"F8_E4M3", DType::kF8E4M3},
    {"F8_E5M2", DType::kF8E5M2},
}};

// Looks a header over before it becomes an object, which would keep one of two equal names, and
// which a bomb of brackets would make as deep as it is long. Linear; the library's parser with a
// callback is not.
class HeaderCheck : public nlohmann::json_sax<Json> {
 public:
  const std::string& duplicate() const { return duplicate_; }
  bool too_deep() const { return too_deep_; }
  const std::string& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (!levels_.back().insert(name).second) duplicate_ = name;
    return true;
  }
  bool parse_error(std::size_t place, const std::string&, const Json::exception&) override {
    error_ = fmt::format("the header is no JSON at its byte {}", place);
    return false;
  }

 private:
  bool open() {
    constexpr std::size_t kMostLevels = 8;
    too_deep_ = levels_.size() >= kMostLevels;
    levels_.emplace_back();
    return !too_deep_;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  std::vector<std::unordered_set<std::string>> levels_;  // names of what is open
  std::string duplicate_;
  std::string error_;
  bool too_deep_ = false;
};

struct Entry {
  std::string name;
  DType dtype = DType::kF32;
  DimVector sizes;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

class Header {
 public:
  Header(std::string_view bytes, const std::string& name) : name_(name) {
    if (bytes.size() < 8) fail("it is shorter than the 8 bytes of a header's length");
    std::uint64_t length = 0;
    for (int i = 7; i >= 0; --i)
      length = length << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
    if (length > kMaxHeaderBytes || length > bytes.size() - 8)
      fail(fmt::format("a header of {} bytes in a file of {}; at most {} are allowed", length,
                       bytes.size(), kMaxHeaderBytes));
    data_ = bytes.substr(8 + static_cast<std::size_t>(length));
    parse(bytes.substr(8, static_cast<std::size_t>(length)));
    check_coverage();
  }

  const std::vector<Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::string_view data() const { return data_; }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw ParseError(name_, 0, 0, "no safetensors file: " + reason);
  }

  void parse(std::string_view text) {
    if (text.empty() || text[0] != '{') fail("the header does not begin with '{'");
    HeaderCheck check;
    Json::sax_parse(text, &check);
    if (check.too_deep()) fail("the header is nested too deeply");
    if (!check.error().empty()) fail(check.error());
    if (!check.duplicate().empty()) fail(fmt::format("\"{}\" comes twice", check.duplicate()));
    const Json header = Json::parse(text);
    if (!header.is_object()) fail("the header is no object");
    for (const auto& [key, value] : header.items()) {
      if (key == kMetadata)
        read_metadata(value);
      else
        entries_.push_back(read_entry(key, value));
    }
  }

  void read_metadata(const Json& value) {
    if (!value.is_object()) fail("__metadata__ is no object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail(fmt::format("__metadata__: \"{}\" is no string", key));
      metadata_[key] = text.get<std::string>();
    }
  }

  std::uint64_t read_number(const std::string& tensor, const Json& value) const {
    if (!value.is_number_unsigned())
      fail(fmt::format("\"{}\": {} is no size", tensor, value.dump()));
    return value.get<std::uint64_t>();
  }

  Entry read_entry(const std::string& name, const Json& value) const {
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
        !value.contains("shape") || !value.contains("data_offsets"))
      fail(fmt::format("\"{}\": it must have dtype, shape and data_offsets", name));
    Entry entry;
    entry.name = name;
    const Json& dtype = value["dtype"];
    const auto known = std::find_if(
        kSafetensorsNames.begin(), kSafetensorsNames.end(), [&](const auto& candidate) {
          return dtype.is_string() && dtype.get_ref<const std::string&>() == candidate.first;
        });
    if (known == kSafetensorsNames.end())
      fail(fmt::format("\"{}\": dtype {} is not known", name, dtype.dump()));
    entry.dtype = known->second;
    read_shape(entry, value["shape"]);
    const Json& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2)
      fail(fmt::format("\"{}\": data_offsets are no pair", name));
    entry.begin = read_number(name, offsets[0]);
    entry.end = read_number(name, offsets[1]);
    check_extent(entry);
    return entry;
  }

  void read_shape(Entry& entry, const Json& shape) const {
    if (!shape.is_array() || shape.size() > kMaxDims)
      fail(fmt::format("\"{}\": the shape is no list of at most {} sizes", entry.name, kMaxDims));
    for (const Json& size : shape) {
      const std::uint64_t value = read_number(entry.name, size);
      if (value > INT64_MAX) fail(fmt::format("\"{}\": size {} is too large", entry.name, value));
      entry.sizes.push_back(static_cast<std::int64_t>(value));
    }
  }

  void check_extent(const Entry& entry) const {
    std::int64_t numel = 0;
    try {
      numel = checked_numel(entry.sizes);
    } catch (const InvalidArgument& error) {
      fail(fmt::format("\"{}\": {}", entry.name, error.what()));
    }
    std::uint64_t bytes = 0;
    if (entry.begin > entry.end || entry.end > data_.size() ||
        __builtin_mul_overflow(static_cast<std::uint64_t>(numel), item_size(entry.dtype), &bytes) ||
        entry.end - entry.begin != bytes)
      fail(fmt::format("\"{}\": bytes {} to {} of {} for {} {}", entry.name, entry.begin, entry.end,
                       data_.size(), dtype_name(entry.dtype), to_string(entry.sizes)));
    if (entry.dtype == DType::kBool && !are_bools(data_.substr(entry.begin, bytes)))
      fail(fmt::format("\"{}\": a bool is neither 0 nor 1", entry.name));
  }

  // Every byte belongs to exactly one tensor.
  void check_coverage() {
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t covered = 0;
    for (const Entry& entry : entries_) {
      if (entry.begin != covered)
        fail(
            fmt::format("\"{}\" begins at byte {}, {} are taken: tensors must neither overlap "
                        "nor leave gaps",
                        entry.name, entry.begin, covered));
      covered = entry.end;
    }
    if (covered != data_.size())
      fail(fmt::format("{} bytes after the last tensor", data_.size() - covered));
  }

  const std::string name_;
  std::string_view data_;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

Tensor copy_of(const Entry& entry, const char* data) {
  Tensor tensor = empty(entry.sizes, entry.dtype);
  if (tensor.numel() > 0) std::memcpy(tensor.data_ptr(), data, tensor.nbytes());
  return tensor;
}

// Over the file's own pages; each tensor keeps the mapping.
Tensor mapped(const Entry& entry, const IntrusivePtr<MappedFile>& file, char* data) {
  DataPtr held(
      data, IntrusivePtr<MappedFile>(file).release(),
      [](void* context) {
        IntrusivePtr<MappedFile>::reclaim(static_cast<MappedFile*>(context)).reset();
      },
      Device{});
  return from_blob(std::move(held), static_cast<std::size_t>(entry.end - entry.begin), entry.sizes,
                   strides_for(entry.sizes), entry.dtype);
}

std::size_t alignment_of(DType dtype) {
  return is_complex(dtype) ? item_size(dtype) / 2 : item_size(dtype);
}

void check_text(const char* part, const std::string& text) {
  try {
    static_cast<void>(Json(text).dump());
  } catch (const Json::type_error&) {
    throw InvalidArgument(fmt::format(
        "save_safetensors: {} {} is not UTF-8, which the format's header is", part,
        Json(text).dump(-1, ' ', true, Json::error_handler_t::replace)));
  }
}

// Throws InvalidArgument for tensors that have no value, or a name that no file may have.
void check_entries(const std::map<std::string, Tensor>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  for (const auto& [name, tensor] : tensors) {
    check_text("the name", name);
    if (name == kMetadata)
      throw InvalidArgument(fmt::format(
          "save_safetensors: a tensor named {}, where the format keeps its metadata; rename it",
          kMetadata));
    if (!tensor.defined())
      detail::refuse_undefined(fmt::format("save_safetensors: \"{}\"", name).c_str());
  }
  for (const auto& [key, value] : metadata) {
    check_text("the metadata's key", key);
    check_text("the metadata's value", value);
  }
}

std::string_view name_of(const std::string& tensor, DType dtype) {
  for (const auto& [name, known] : kSafetensorsNames)
    if (known == dtype) return name;
  throw InvalidArgument(fmt::format(
      "save_safetensors: \"{}\" is {}, which the format does not have", tensor, dtype_name(dtype)));
}

}  // namespace

SafeTensors load_safetensors(const std::string& path) {
  const IntrusivePtr<MappedFile> file = MappedFile::open(path);
  const Header header(file->view(), path);
  SafeTensors result{{}, header.metadata()};
  for (const Entry& entry : header.entries()) {
    char* data = file->data() + (header.data().data() - file->data()) + entry.begin;
    const bool aligned = reinterpret_cast<std::uintptr_t>(data) % alignment_of(entry.dtype) == 0;
    result.tensors[entry.name] =
        aligned && entry.begin < entry.end ? mapped(entry, file, data) : copy_of(entry, data);
  }
  return result;
}

SafeTensors parse_safetensors(std::string_view bytes, const std::string& name) {
  const Header header(bytes, name);
  SafeTensors result{{}, header.metadata()};
  for (const Entry& entry : header.entries())
    result.tensors[entry.name] = copy_of(entry, header.data().data() + entry.begin);
  return result;
}

void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  check_entries(tensors, metadata);
  std::vector<std::pair<std::string, Tensor>> order(tensors.begin(), tensors.end());
  // Large items first: then every tensor is aligned if the data are.
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return alignment_of(a.second.dtype()) > alignment_of(b.second.dtype());
  });
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : order) {
    if (!has_operators(tensor.device()))
      throw InvalidArgument(fmt::format("save_safetensors: \"{}\" is on {}; copy it to the cpu",
                                        name, to_string(tensor.device())));
    header[name] = {
        {"dtype", name_of(name, tensor.dtype())},
        {"shape", std::vector<std::int64_t>(tensor.sizes().begin(), tensor.sizes().end())},
        {"data_offsets", {offset, offset + tensor.nbytes()}}};
    offset += tensor.nbytes();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::array<char, 8> length;
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  FileWriter file(path);
  file.write(length.data(), length.size());
  file.write(text.data(), text.size());
  for (const auto& [name, tensor] : order)
    if (tensor.numel() > 0)
      file.write(contiguous(to_host(tensor)).const_data_ptr(), tensor.nbytes());
  file.commit();
}

}  // namespace tenon
