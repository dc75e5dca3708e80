#include "tenon/device/sim/address_space.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/device/os/os_memory.h"

namespace tenon {
namespace {

constexpr std::uintptr_t kHighestAddress = 0x7f0000000000;
constexpr std::uint64_t kFileBytes = std::uint64_t{1} << 60;  // holes cost nothing

[[noreturn]] void fail(const std::string& call, const std::string& reason) {
  throw DeviceError(fmt::format("{}: {}", call, reason));
}

std::string show(PageHandle pages) {
  return fmt::format("handle {} of {} bytes", pages.id, pages.size_bytes);
}

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

SimAddressSpace::SimAddressSpace(const SimOptions& options)
    : options_(options),
      capacity_bytes_(options.capacity_bytes),
      lowest_address_(kHighestAddress) {
  if (!is_power_of_two(options.alignment) || !is_power_of_two(options.page_granularity))
    throw InvalidArgument(fmt::format(
        "a simulated device's alignment ({}) and page granularity ({}) must be powers of two",
        options.alignment, options.page_granularity));
  if (options.real_memory && options.page_granularity % os::page_size() != 0)
    throw InvalidArgument(fmt::format(
        "with real memory the page granularity ({}) must be a multiple of the system's pages ({})",
        options.page_granularity, os::page_size()));
}

SimAddressSpace::~SimAddressSpace() {
  if (!options_.real_memory) return;
  for (const auto& [base, region] : regions_) os::release(pointer(base), region.size_bytes);
  if (file_ >= 0) ::close(file_);
}

// --- Segments.

std::optional<Segment> SimAddressSpace::allocate_segment(std::uint64_t size_bytes,
                                                         MemoryKind kind) {
  if (size_bytes == 0) fail("allocate_segment(0)", "a segment has at least one byte");
  if (size_bytes > kMaxRequestBytes) return std::nullopt;
  const std::uint64_t size = align_up(size_bytes, options_.alignment);
  if (!fits(size)) return std::nullopt;
  const auto base = new_address(size, options_.alignment, true);
  if (!base) return std::nullopt;
  take(size);
  const std::uint64_t id = next_id_++;
  regions_[*base] = Region{size, id};
  const bool host_sees_it = options_.real_memory && (options_.unified || kind != MemoryKind::kDevice);
  return Segment{pointer(*base), host_sees_it ? pointer(*base) : nullptr, size, id, kind};
}

void SimAddressSpace::require_segment(const Segment& segment) const {
  const auto base = reinterpret_cast<std::uintptr_t>(segment.base);
  const auto it = regions_.find(base);
  if (it != regions_.end() && it->second.segment != 0 && it->second.segment == segment.handle &&
      it->second.size_bytes == segment.size_bytes)
    return;
  fail(fmt::format("free_segment({:#x}, {} bytes, handle {})", base, segment.size_bytes,
                   segment.handle),
       "no such segment is held; it was freed already or comes from elsewhere");
}

void SimAddressSpace::free_segment(const Segment& segment) {
  require_segment(segment);
  if (options_.real_memory) os::release(segment.base, segment.size_bytes);
  regions_.erase(reinterpret_cast<std::uintptr_t>(segment.base));
  used_bytes_ -= segment.size_bytes;
}

// --- Addresses.

std::optional<AddressRange> SimAddressSpace::reserve_address(std::uint64_t size_bytes) {
  const std::string call = fmt::format("reserve_address({})", size_bytes);
  require_granular(call, size_bytes, "the size");
  if (size_bytes == 0) fail(call, "an address range has at least one page");
  if (size_bytes > kMaxRequestBytes) return std::nullopt;
  const auto base = new_address(size_bytes, options_.page_granularity, false);
  if (!base) return std::nullopt;
  regions_[*base] = Region{size_bytes};
  return AddressRange{*base, size_bytes};
}

void SimAddressSpace::release_address(AddressRange range) {
  const std::string call = fmt::format("release_address({:#x}, {})", range.base, range.size_bytes);
  const auto it = regions_.find(range.base);
  if (it == regions_.end() || it->second.segment != 0 || it->second.size_bytes != range.size_bytes)
    fail(call, "no such range is reserved");
  const auto first = mappings_.lower_bound(range.base);
  if (first != mappings_.end() && first->first < range.base + range.size_bytes)
    fail(call, fmt::format("{} is still mapped at {:#x}; unmap it first", show(first->second.pages),
                           first->first));
  if (options_.real_memory) os::release(pointer(range.base), range.size_bytes);
  regions_.erase(it);
}

// --- Pages.

std::optional<PageHandle> SimAddressSpace::create_pages(std::uint64_t size_bytes) {
  const std::string call = fmt::format("create_pages({})", size_bytes);
  require_granular(call, size_bytes, "the size");
  if (size_bytes == 0) fail(call, "a handle has at least one page");
  if (size_bytes > kMaxRequestBytes || !fits(size_bytes)) return std::nullopt;
  if (options_.real_memory && (!open_file() || kFileBytes - file_end_ < size_bytes))
    return std::nullopt;
  take(size_bytes);
  const std::uint64_t id = next_id_++;
  pages_[id] = Pages{size_bytes, 0, false, file_end_};
  file_end_ += size_bytes;
  return PageHandle{id, size_bytes};
}

void SimAddressSpace::release_pages(PageHandle pages) {
  require_pages(fmt::format("release_pages({})", show(pages)), pages);
  pages_.at(pages.id).released = true;
  drop_if_unused(pages.id);
}

bool SimAddressSpace::map(std::uintptr_t address, PageHandle pages) {
  const std::string call = fmt::format("map({:#x}, {})", address, show(pages));
  require_granular(call, address, "the address");
  const Pages& known = require_pages(call, pages);
  if (known.mappings > 0 && !options_.can_map_twice)
    fail(call, "the handle is mapped already, and this device cannot map it twice");
  const auto region = region_of(address);
  if (region == regions_.end() || region->second.segment != 0 ||
      region->first + region->second.size_bytes - address < pages.size_bytes)
    fail(call, "the addresses are not inside one reserved range");
  const auto next = mappings_.lower_bound(address);
  if (mapping_of(address) != mappings_.end() ||
      (next != mappings_.end() && next->first < address + pages.size_bytes))
    fail(call, "something is mapped there already");
  if (options_.real_memory &&
      !os::map_file(pointer(address), pages.size_bytes, file_, known.file_offset))
    return false;
  mappings_[address] = Mapping{pages};
  ++pages_.at(pages.id).mappings;
  return true;
}

std::vector<std::uint64_t> SimAddressSpace::handles_in(std::uintptr_t address,
                                                       std::uint64_t size_bytes) const {
  const std::string call = fmt::format("set_access({:#x}, {})", address, size_bytes);
  if (size_bytes == 0) fail(call, "the range is empty");
  std::vector<std::uint64_t> sizes;
  std::uintptr_t at = address;
  for (auto it = mappings_.find(address); at < address + size_bytes; ++it) {
    if (it == mappings_.end() || it->first != at)
      fail(call, fmt::format("no handle starts at {:#x}", at));
    sizes.push_back(it->second.pages.size_bytes);
    at += it->second.pages.size_bytes;
  }
  if (at != address + size_bytes)
    fail(call, fmt::format("the range ends inside a handle that reaches to {:#x}", at));
  return sizes;
}

bool SimAddressSpace::set_access(std::uintptr_t address, std::uint64_t size_bytes) {
  handles_in(address, size_bytes);
  if (options_.real_memory && !os::make_accessible(pointer(address), size_bytes)) return false;
  for (auto it = mappings_.find(address);
       it != mappings_.end() && it->first < address + size_bytes; ++it)
    it->second.accessible = true;
  return true;
}

void SimAddressSpace::require_mapped(std::uintptr_t address, PageHandle pages) const {
  const auto it = mappings_.find(address);
  if (it != mappings_.end() && it->second.pages.id == pages.id &&
      it->second.pages.size_bytes == pages.size_bytes)
    return;
  const std::string call = fmt::format("unmap({:#x}, {})", address, show(pages));
  if (it == mappings_.end()) fail(call, "no handle's mapping starts there");
  fail(call, fmt::format("{} is mapped there", show(it->second.pages)));
}

void SimAddressSpace::unmap(std::uintptr_t address, PageHandle pages) {
  require_mapped(address, pages);
  if (options_.real_memory && !os::unmap_file(pointer(address), pages.size_bytes))
    fail(fmt::format("unmap({:#x}, {})", address, show(pages)), std::strerror(errno));
  mappings_.erase(address);
  --pages_.at(pages.id).mappings;
  drop_if_unused(pages.id);
}

// --- Contents.

bool SimAddressSpace::require_accessible(const char* call, const void* address,
                                         std::uint64_t size_bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + size_bytes;
  const bool fake_one = !options_.real_memory && begin >= lowest_address_ && begin < kHighestAddress;
  const auto region = region_of(begin);
  if (region == regions_.end()) {
    if (!fake_one) return false;
    fail(fmt::format("{}({:#x}, {} bytes)", call, begin, size_bytes),
         "the address is not reserved (any more)");
  }
  if (end > region->first + region->second.size_bytes)
    fail(fmt::format("{}({:#x}, {} bytes)", call, begin, size_bytes),
         fmt::format("the segment or range ends at {:#x}",
                     region->first + region->second.size_bytes));
  if (region->second.segment != 0) return true;
  for (std::uintptr_t at = begin; at < end;) {
    const auto it = mapping_of(at);
    if (it == mappings_.end() || !it->second.accessible)
      fail(fmt::format("{}({:#x}, {} bytes)", call, begin, size_bytes),
           fmt::format("{:#x} {}", at, it == mappings_.end() ? "is not mapped" : "lacks set_access"));
    at = it->first + it->second.pages.size_bytes;
  }
  return true;
}

// --- Helpers.

bool SimAddressSpace::fits(std::uint64_t size_bytes) const {
  return used_bytes_ <= capacity_bytes_ && size_bytes <= capacity_bytes_ - used_bytes_;
}

void SimAddressSpace::take(std::uint64_t size_bytes) {
  used_bytes_ += size_bytes;
  peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
}

std::optional<std::uintptr_t> SimAddressSpace::new_address(std::uint64_t size_bytes,
                                                           std::uint64_t alignment,
                                                           bool with_memory) {
  if (options_.real_memory) {
    void* base = with_memory ? os::allocate(size_bytes, alignment)
                             : os::reserve(size_bytes, alignment);
    if (base == nullptr) return std::nullopt;
    return reinterpret_cast<std::uintptr_t>(base);
  }
  if (size_bytes + alignment > lowest_address_) return std::nullopt;
  lowest_address_ = align_down(lowest_address_ - size_bytes, alignment);
  return lowest_address_;
}

bool SimAddressSpace::open_file() {
  if (file_ < 0) file_ = os::create_file("tenon-sim", kFileBytes);
  return file_ >= 0;
}

void SimAddressSpace::drop_if_unused(std::uint64_t pages_id) {
  const auto it = pages_.find(pages_id);
  if (!it->second.released || it->second.mappings > 0) return;
  if (options_.real_memory) os::discard(file_, it->second.file_offset, it->second.size_bytes);
  used_bytes_ -= it->second.size_bytes;
  pages_.erase(it);
}

SimAddressSpace::Regions::const_iterator SimAddressSpace::region_of(std::uintptr_t address) const {
  auto it = regions_.upper_bound(address);
  if (it == regions_.begin()) return regions_.end();
  --it;
  return address - it->first < it->second.size_bytes ? it : regions_.end();
}

SimAddressSpace::Mappings::const_iterator SimAddressSpace::mapping_of(
    std::uintptr_t address) const {
  auto it = mappings_.upper_bound(address);
  if (it == mappings_.begin()) return mappings_.end();
  --it;
  return address - it->first < it->second.pages.size_bytes ? it : mappings_.end();
}

const SimAddressSpace::Pages& SimAddressSpace::require_pages(const std::string& call,
                                                             PageHandle pages) const {
  const auto it = pages_.find(pages.id);
  if (it == pages_.end() || it->second.released)
    fail(call, "no such handle; it was released already or never created");
  if (it->second.size_bytes != pages.size_bytes)
    fail(call, fmt::format("the handle has {} bytes", it->second.size_bytes));
  return it->second;
}

void SimAddressSpace::require_granular(const std::string& call, std::uint64_t value,
                                       const char* what) const {
  if (!is_aligned(value, options_.page_granularity))
    fail(call, fmt::format("{} must be a multiple of the page granularity, {}", what,
                           options_.page_granularity));
}

}  // namespace tenon
