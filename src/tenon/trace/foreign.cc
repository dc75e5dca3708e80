#include "tenon/trace/foreign.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace tenon {
namespace {

constexpr std::string_view kBringInstead =
    ": give a snapshot by torch.cuda.memory._dump_snapshot or, of a program without PyTorch, CSV "
    "with the columns time_us,op,id,size,stream";

constexpr std::string_view kPprof =
    "is a pprof profile (JAX, Go, gperftools), which has sums of bytes for each stack, and no "
    "single blocks or times";
constexpr std::string_view kHeapProfile =
    "is a heap profile of tcmalloc or Go, which has sums of bytes for each stack, and no single "
    "blocks or times";
constexpr std::string_view kJemalloc =
    "is a heap profile of jemalloc, which has sums of bytes for each stack of sampled requests, "
    "and no single blocks or times";
constexpr std::string_view kXplane =
    "is a profile of XLA or TensorFlow (xplane.pb), whose events of memory are not read";
constexpr std::string_view kMemoryProfile =
    "is a memory profile of TensorFlow or XLA, which has samples of an allocator's sums and the "
    "blocks of one moment, not each request and free";
constexpr std::string_view kNsight =
    "is a report of Nsight Systems, which has the driver's allocations at most, not the blocks "
    "that a framework's allocator makes of them";
constexpr std::string_view kSqlite =
    "is an SQLite database; an export of Nsight Systems has the driver's allocations at most, not "
    "the blocks that a framework's allocator makes of them";
constexpr std::string_view kSanitizer =
    "is a log of compute-sanitizer, which has errors of kernels and leaks of the driver's "
    "allocations, not each request and free";

constexpr std::string_view kWebPage =
    "is a web page, and none that torch.cuda._memory_viz wrote, which hold their snapshot";

constexpr std::string_view kDocument = "<!DOCTYPE HTML";

enum Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct ProtoField {
  std::uint64_t number;
  Wire wire;
  std::string_view bytes;  // of kBytes
};

// The fields of a message of Protocol Buffers, in order.
class ProtoFields {
 public:
  explicit ProtoFields(std::string_view left) : left_(left) {}

  // Nothing at the end, and where the bytes are no such message.
  std::optional<ProtoField> next() {
    if (left_.empty()) return std::nullopt;
    sound_ = false;
    const std::optional<std::uint64_t> tag = varint();
    if (!tag || *tag >> 3 == 0) return std::nullopt;
    ProtoField field = {*tag >> 3, static_cast<Wire>(*tag & 7), {}};
    std::optional<std::uint64_t> size;
    switch (field.wire) {
      case kVarint: size = varint() ? std::optional<std::uint64_t>(0) : std::nullopt; break;
      case kFixed64: size = 8; break;
      case kFixed32: size = 4; break;
      case kBytes: size = varint(); break;
      default: break;
    }
    if (!size || *size > left_.size()) return std::nullopt;
    field.bytes = left_.substr(0, *size);
    left_.remove_prefix(*size);
    sound_ = true;
    return field;
  }
  // Whether all bytes so far are fields.
  bool sound() const { return sound_; }

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::string_view left_;
  bool sound_ = true;
};

// profile.proto of pprof: fields 1 to 6 are messages and texts, of which the first is empty.
bool is_pprof(std::string_view bytes) {
  constexpr std::uint64_t kSampleType = 1, kText = 6, kComment = 13, kLast = 15;
  bool has_type = false, has_text = false;
  ProtoFields fields(bytes);
  while (const std::optional<ProtoField> field = fields.next()) {
    const bool text_or_message = field->wire == kBytes;
    if (field->number > kLast) return false;
    if (text_or_message != (field->number <= kText) && field->number != kComment) return false;
    if (field->number == kText && !has_text && !field->bytes.empty()) return false;
    has_type = has_type || field->number == kSampleType;
    has_text = has_text || field->number == kText;
  }
  return fields.sound() && has_type && has_text;
}

// xplane.proto of TSL: fields 1 to 4 are messages and texts; planes have names like "/host:CPU".
bool is_xplane(std::string_view bytes) {
  constexpr std::uint64_t kPlane = 1, kPlaneName = 2, kLast = 4;
  bool named = false;
  ProtoFields fields(bytes);
  while (const std::optional<ProtoField> field = fields.next()) {
    if (field->number > kLast || field->wire != kBytes) return false;
    if (field->number != kPlane || named) continue;
    ProtoFields plane(field->bytes);
    while (const std::optional<ProtoField> part = plane.next())
      if (part->number == kPlaneName && part->wire == kBytes)
        named = named || part->bytes.starts_with("/host:") || part->bytes.starts_with("/device:");
  }
  return fields.sound() && named;
}

bool is_web_page(std::string_view bytes) {
  const std::size_t at = bytes.find_first_not_of(" \t\r\n");
  if (at == bytes.npos) return false;
  const std::string_view head = bytes.substr(at, kDocument.size());
  return head.starts_with("<html") ||
         std::equal(head.begin(), head.end(), kDocument.begin(), kDocument.end(),
                    [](char a, char b) { return (a >= 'a' && a <= 'z' ? a - 32 : a) == b; });
}

std::string_view kind_of(std::string_view bytes, std::string_view path) {
  if (bytes.starts_with("heap profile:")) return kHeapProfile;
  if (bytes.starts_with("heap_v2/")) return kJemalloc;
  if (bytes.starts_with("SQLite format 3")) return kSqlite;
  for (const std::string_view tool : {"========= COMPUTE-SANITIZER", "========= CUDA-MEMCHECK"})
    if (bytes.starts_with(tool)) return kSanitizer;
  for (const std::string_view ending : {".nsys-rep", ".qdrep", ".qdstrm"})
    if (path.ends_with(ending)) return kNsight;
  if (is_web_page(bytes)) return kWebPage;
  if (is_pprof(bytes)) return kPprof;
  if (is_xplane(bytes)) return kXplane;
  return {};
}

}  // namespace

std::string foreign_format(std::string_view bytes, std::string_view path) {
  const std::string_view what = kind_of(bytes, path);
  return what.empty() ? std::string() : fmt::format("{}{}", what, kBringInstead);
}
std::string foreign_json(std::string_view key) {
  if (key != "memoryProfilePerAllocator") return {};
  return fmt::format("{}{}", kMemoryProfile, kBringInstead);
}

}  // namespace tenon
