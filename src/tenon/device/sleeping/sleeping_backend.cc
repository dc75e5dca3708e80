#include "tenon/device/sleeping/sleeping_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"

namespace tenon {
namespace {

struct Backends {
  std::mutex mutex;
  std::vector<SleepingBackend*> all;
};

Backends& backends() {
  static auto* const the_backends = new Backends;
  return *the_backends;
}

template <typename Call>
std::uint64_t for_tag(const std::string& tag, Call&& call) {
  Backends& known = backends();
  const std::lock_guard lock(known.mutex);
  std::uint64_t sum = 0;
  std::string tags;
  bool found = false;
  for (SleepingBackend* backend : known.all) {
    tags += (tags.empty() ? "" : ", ") + backend->tag();
    if (backend->tag() != tag) continue;
    found = true;
    sum += call(*backend);
  }
  if (!found)
    throw InvalidArgument(fmt::format("\"{}\": no memory has this tag; the tags are: {}", tag,
                                      tags.empty() ? "none" : tags));
  return sum;
}

}  // namespace

SleepingBackend::SleepingBackend(Backend& driver, std::string tag)
    : ForwardingBackend(driver), tag_(std::move(tag)), limits_(driver.limits()) {
  if (tag_.empty()) throw InvalidArgument("sleeping memory needs a tag, such as \"weights\"");
  if (!limits_.has_virtual_memory)
    throw InvalidArgument(fmt::format(
        "\"{}\": {} has no virtual memory, so its memory cannot leave its addresses", tag_,
        to_string(driver.device())));
  limits_.alignment = std::max(limits_.alignment, limits_.page_granularity);
  limits_.has_virtual_memory = limits_.can_map_twice = limits_.can_export = false;
  limits_.page_granularity = 0;
  limits_.idle_ns = 0;
  Backends& known = backends();
  const std::lock_guard lock(known.mutex);
  known.all.push_back(this);
}

SleepingBackend::~SleepingBackend() {
  {
    Backends& known = backends();
    const std::lock_guard lock(known.mutex);
    std::erase(known.all, this);
  }
  while (!pieces_.empty()) {
    const std::uintptr_t first = pieces_.begin()->first;
    Segment segment;
    segment.base = reinterpret_cast<void*>(first);
    ignore_refusal([&] { free_segment(segment); });
    pieces_.erase(first);  // what the driver refuses stays with it
  }
}

void SleepingBackend::refuse(const char* call) const {
  throw DeviceError(fmt::format(
      "{}: memory \"{}\" that sleeps is made of segments; take a policy over segments (caching, "
      "pool, buddy, arena)",
      call, tag_));
}

std::string SleepingBackend::description() const {
  return fmt::format("{}, memory \"{}\" may sleep", driver_.description(), tag_);
}

// Pages behind the piece's addresses. False: out of memory, and it is as before.
bool SleepingBackend::back(Piece& piece) {
  const auto pages = driver_.create_pages(piece.range.size_bytes);
  if (!pages) return false;
  if (!driver_.map(piece.range.base, *pages)) {
    driver_.release_pages(*pages);
    return false;
  }
  if (!driver_.set_access(piece.range.base, piece.range.size_bytes)) {
    driver_.unmap(piece.range.base, *pages);
    driver_.release_pages(*pages);
    return false;
  }
  piece.pages = *pages;
  return true;
}

std::optional<Segment> SleepingBackend::allocate_segment(std::uint64_t size_bytes,
                                                         MemoryKind kind) {
  if (kind != MemoryKind::kDevice && kind != MemoryKind::kShared)
    throw DeviceError(fmt::format("allocate_segment: pinned and managed memory cannot sleep; "
                                  "take it from the driver of \"{}\"", tag_));
  const std::uint64_t rounded = round_up(size_bytes, driver_.limits().page_granularity);
  const std::lock_guard lock(mutex_);
  const auto range = driver_.reserve_address(rounded);
  if (!range) return std::nullopt;
  Piece piece{*range, {}, {}};
  if (!back(piece)) {
    driver_.release_address(*range);
    return std::nullopt;
  }
  Segment segment;
  segment.base = reinterpret_cast<void*>(range->base);
  if (limits_.unified || device().type == DeviceType::kCpu) segment.host = segment.base;
  segment.size_bytes = rounded;
  segment.kind = kind;
  pieces_.emplace(range->base, std::move(piece));
  return segment;
}

void SleepingBackend::free_segment(const Segment& segment) {
  const std::lock_guard lock(mutex_);
  const auto found = pieces_.find(reinterpret_cast<std::uintptr_t>(segment.base));
  if (found == pieces_.end())
    throw DeviceError(fmt::format("free_segment({}): no segment of \"{}\"", segment.base, tag_));
  Piece& piece = found->second;
  if (piece.pages.id != 0) {
    driver_.synchronize();  // as freeing a segment does
    driver_.unmap(piece.range.base, piece.pages);
    driver_.release_pages(std::exchange(piece.pages, {}));
  }
  driver_.release_address(piece.range);
  pieces_.erase(found);
}

std::uint64_t SleepingBackend::put_to_sleep(Piece& piece, SleepLevel level) {
  if (piece.pages.id == 0) return 0;
  if (level == SleepLevel::kToHost) {
    if (!limits_.has_real_memory)
      throw DeviceError(fmt::format("sleep: {} has no contents to copy; sleep \"{}\" by kDrop",
                                    to_string(device()), tag_));
    std::vector<std::uint8_t> contents(piece.range.size_bytes);
    const Stream stream{device(), 0};
    driver_.copy(contents.data(), reinterpret_cast<void*>(piece.range.base), contents.size(),
                 stream);
    driver_.synchronize(stream);
    piece.contents = std::move(contents);
  }
  driver_.unmap(piece.range.base, piece.pages);
  driver_.release_pages(std::exchange(piece.pages, {}));
  return piece.range.size_bytes;
}

std::uint64_t SleepingBackend::sleep(SleepLevel level) {
  const std::lock_guard lock(mutex_);
  driver_.synchronize();  // unmapping waits for no stream
  std::uint64_t bytes = 0;
  for (auto& [base, piece] : pieces_) bytes += put_to_sleep(piece, level);
  return bytes;
}

std::uint64_t SleepingBackend::sleep_segment(const void* address, SleepLevel level) {
  const std::lock_guard lock(mutex_);
  Piece* piece = find(address);
  if (piece == nullptr)
    throw InvalidArgument(
        fmt::format("sleep_segment({}): no memory of \"{}\"", address, tag_));
  driver_.synchronize();
  return put_to_sleep(*piece, level);
}

std::uint64_t SleepingBackend::wake() {
  const std::lock_guard lock(mutex_);
  const Stream stream{device(), 0};
  std::uint64_t bytes = 0;
  for (auto& [base, piece] : pieces_) {
    if (piece.pages.id != 0) continue;
    if (!back(piece)) {
      OutOfMemoryDetails details;
      details.allocator = fmt::format("waking \"{}\"", tag_);
      details.device = to_string(device());
      details.requested_bytes = piece.range.size_bytes;
      details.limit_bytes = driver_.total_bytes();
      details.advice = "what is awake stays awake; free memory and wake again";
      throw OutOfMemory(std::move(details));
    }
    bytes += piece.range.size_bytes;
    if (piece.contents.empty()) continue;
    driver_.copy(reinterpret_cast<void*>(base), piece.contents.data(), piece.contents.size(),
                 stream);
    driver_.synchronize(stream);
    piece.contents = {};
  }
  return bytes;
}

SleepingBackend::Piece* SleepingBackend::find(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto piece = pieces_.upper_bound(at);
  if (piece == pieces_.begin()) return nullptr;
  --piece;
  return at - piece->first < piece->second.range.size_bytes ? &piece->second : nullptr;
}

void SleepingBackend::check_awake(const void* address, const char* call) const {
  const Piece* piece = const_cast<SleepingBackend*>(this)->find(address);
  if (piece != nullptr && piece->pages.id == 0)
    throw DeviceError(fmt::format("{}({}): memory \"{}\" is asleep; wake it first", call, address,
                                  tag_));
}

void SleepingBackend::copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) {
  const std::lock_guard lock(mutex_);
  check_awake(dest, "copy");
  check_awake(src, "copy");
  driver_.copy(dest, src, size_bytes, stream);
}

void SleepingBackend::fill(void* dest, std::uint8_t value, std::uint64_t size_bytes,
                           Stream stream) {
  const std::lock_guard lock(mutex_);
  check_awake(dest, "fill");
  driver_.fill(dest, value, size_bytes, stream);
}

std::uint64_t SleepingBackend::sleeping_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [base, piece] : pieces_) sum += piece.pages.id == 0 ? piece.range.size_bytes : 0;
  return sum;
}

std::uint64_t SleepingBackend::awake_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [base, piece] : pieces_) sum += piece.pages.id != 0 ? piece.range.size_bytes : 0;
  return sum;
}

std::uint64_t SleepingBackend::host_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [base, piece] : pieces_) sum += piece.contents.size();
  return sum;
}

std::uint64_t sleep(const std::string& tag, SleepLevel level) {
  return for_tag(tag, [&](SleepingBackend& backend) { return backend.sleep(level); });
}

std::uint64_t wake(const std::string& tag) {
  return for_tag(tag, [](SleepingBackend& backend) { return backend.wake(); });
}

}  // namespace tenon
