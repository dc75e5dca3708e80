#include "tenon/device/address_table.h"

#include <fmt/format.h>

#include <iterator>

#include "tenon/base/align.h"
#include "tenon/base/error.h"

namespace tenon {
namespace {

// `call` makes the text of the call, which only a failure needs: a free must not allocate.
template <typename Call>
[[noreturn]] void fail(const Call& call, const std::string& reason) {
  raise<DeviceError>("{}: {}", call(), reason);
}

std::string show(PageHandle pages) {
  return fmt::format("handle {} of {} bytes", pages.id, pages.size_bytes);
}

}  // namespace

// --- Checks.

template <typename Call>
const AddressTable::Pages& AddressTable::require_pages(const Call& call, PageHandle pages) const {
  const auto it = pages_.find(pages.id);
  if (it == pages_.end() || it->second.released)
    fail(call, "no such handle; it was released already or never created");
  if (it->second.size_bytes != pages.size_bytes)
    fail(call, fmt::format("the handle has {} bytes", it->second.size_bytes));
  return it->second;
}

template <typename Call>
void AddressTable::require_granular(const Call& call, std::uint64_t size_bytes) const {
  if (size_bytes == 0 || !is_aligned(size_bytes, page_granularity_))
    fail(call, fmt::format("the size must be a positive multiple of the page granularity, {}",
                           page_granularity_));
}

// --- Segments.

void AddressTable::require_segment_size(std::uint64_t size_bytes) const {
  if (size_bytes == 0)
    fail([] { return "allocate_segment(0)"; }, "a segment has at least one byte");
}

std::uint64_t AddressTable::add_segment(std::uintptr_t base, std::uint64_t size_bytes) {
  regions_[base] = Region{size_bytes, next_id_};
  return next_id_++;
}

void AddressTable::require_segment(const Segment& segment) const {
  const auto base = reinterpret_cast<std::uintptr_t>(segment.base);
  const auto it = regions_.find(base);
  if (it != regions_.end() && it->second.segment != 0 && it->second.segment == segment.handle &&
      it->second.size_bytes == segment.size_bytes)
    return;
  const auto call = [&] {
    return fmt::format("free_segment({:#x}, {} bytes, handle {})", base, segment.size_bytes,
                       segment.handle);
  };
  fail(call, "no such segment is held; it was freed already or comes from elsewhere");
}

void AddressTable::remove_segment(const Segment& segment) {
  regions_.erase(reinterpret_cast<std::uintptr_t>(segment.base));
}

// --- Address ranges.

void AddressTable::require_range_size(std::uint64_t size_bytes) const {
  require_granular([&] { return fmt::format("reserve_address({})", size_bytes); }, size_bytes);
}

void AddressTable::add_range(AddressRange range) {
  regions_[range.base] = Region{range.size_bytes};
}

void AddressTable::require_empty_range(AddressRange range) const {
  const auto call = [&] {
    return fmt::format("release_address({:#x}, {})", range.base, range.size_bytes);
  };
  const auto it = regions_.find(range.base);
  if (it == regions_.end() || it->second.segment != 0 || it->second.size_bytes != range.size_bytes)
    fail(call, "no such range is reserved");
  const auto first = mappings_.lower_bound(range.base);
  if (first != mappings_.end() && first->first < range.base + range.size_bytes)
    fail(call, fmt::format("{} is still mapped at {:#x}; unmap it first", show(first->second.pages),
                           first->first));
}

std::optional<std::uintptr_t> AddressTable::free_below(std::uintptr_t end, std::uint64_t size_bytes,
                                                      std::uint64_t alignment) const {
  while (end > size_bytes + alignment) {
    const std::uintptr_t base = align_down(end - size_bytes, alignment);
    const auto above = regions_.lower_bound(base + size_bytes);
    if (above == regions_.begin()) return base;
    const auto& [below, region] = *std::prev(above);
    if (below + region.size_bytes <= base) return base;
    end = below;
  }
  return std::nullopt;
}

void AddressTable::remove_range(AddressRange range) { regions_.erase(range.base); }

// --- Pages.

void AddressTable::require_pages_size(std::uint64_t size_bytes) const {
  require_granular([&] { return fmt::format("create_pages({})", size_bytes); }, size_bytes);
}

PageHandle AddressTable::add_pages(std::uint64_t size_bytes, std::uint64_t backing) {
  pages_[next_id_] = Pages{size_bytes, backing};
  return PageHandle{next_id_++, size_bytes};
}

std::uint64_t AddressTable::backing(const char* call, PageHandle pages) const {
  return require_pages([&] { return fmt::format("{}({})", call, show(pages)); }, pages).backing;
}

std::optional<AddressTable::Dropped> AddressTable::release_pages(PageHandle pages) {
  require_pages([&] { return fmt::format("release_pages({})", show(pages)); }, pages);
  pages_.at(pages.id).released = true;
  return drop_if_unused(pages.id);
}

// --- Mappings.

void AddressTable::require_can_map(std::uintptr_t address, PageHandle pages) const {
  const auto call = [&] { return fmt::format("map({:#x}, {})", address, show(pages)); };
  if (!is_aligned(address, page_granularity_))
    fail(call, fmt::format("the address must be a multiple of the page granularity, {}",
                           page_granularity_));
  const Pages& known = require_pages(call, pages);
  if (known.mappings > 0 && !can_map_twice_)
    fail(call, "the handle is mapped already, and this device cannot map it twice");
  const auto region = region_of(address);
  if (region == regions_.end() || region->second.segment != 0 ||
      region->first + region->second.size_bytes - address < pages.size_bytes)
    fail(call, "the addresses are not inside one reserved range");
  const auto next = mappings_.lower_bound(address);
  if (mapping_of(address) != mappings_.end() ||
      (next != mappings_.end() && next->first < address + pages.size_bytes))
    fail(call, "something is mapped there already");
}

void AddressTable::add_mapping(std::uintptr_t address, PageHandle pages) {
  mappings_[address] = Mapping{pages};
  ++pages_.at(pages.id).mappings;
}

std::vector<std::uint64_t> AddressTable::handles_in(std::uintptr_t address,
                                                    std::uint64_t size_bytes) const {
  const auto call = [&] { return fmt::format("set_access({:#x}, {})", address, size_bytes); };
  if (size_bytes == 0) fail(call, "the range is empty");
  std::vector<std::uint64_t> sizes;
  std::uintptr_t at = address;
  for (auto it = mappings_.find(address); at < address + size_bytes; ++it) {
    if (it == mappings_.end() || it->first != at)
      fail(call, fmt::format("no handle's mapping starts at {:#x}", at));
    sizes.push_back(it->second.pages.size_bytes);
    at += it->second.pages.size_bytes;
  }
  if (at != address + size_bytes)
    fail(call, fmt::format("the range ends inside a handle that reaches to {:#x}", at));
  return sizes;
}

void AddressTable::set_accessible(std::uintptr_t address, std::uint64_t size_bytes) {
  for (auto it = mappings_.find(address);
       it != mappings_.end() && it->first < address + size_bytes; ++it)
    it->second.accessible = true;
}

void AddressTable::require_mapped(std::uintptr_t address, PageHandle pages) const {
  const auto it = mappings_.find(address);
  if (it != mappings_.end() && it->second.pages.id == pages.id &&
      it->second.pages.size_bytes == pages.size_bytes)
    return;
  const auto call = [&] { return fmt::format("unmap({:#x}, {})", address, show(pages)); };
  if (it == mappings_.end()) fail(call, "no handle's mapping starts there");
  fail(call, fmt::format("{} is mapped there", show(it->second.pages)));
}

std::optional<AddressTable::Dropped> AddressTable::remove_mapping(std::uintptr_t address) {
  const auto it = mappings_.find(address);
  const std::uint64_t pages_id = it->second.pages.id;
  mappings_.erase(it);
  --pages_.at(pages_id).mappings;
  return drop_if_unused(pages_id);
}

// --- Contents.

bool AddressTable::require_accessible(const char* call, const void* address,
                                      std::uint64_t size_bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + size_bytes;
  const auto refuse = [&](const std::string& reason) {
    fail([&] { return fmt::format("{}({:#x}, {} bytes)", call, begin, size_bytes); }, reason);
  };
  const auto region = region_of(begin);
  if (region == regions_.end()) return false;
  const std::uintptr_t region_end = region->first + region->second.size_bytes;
  if (end > region_end || end < begin)
    refuse(fmt::format("the segment or range ends at {:#x}", region_end));
  if (region->second.segment != 0) return true;
  for (std::uintptr_t at = begin; at < end;) {
    const auto it = mapping_of(at);
    if (it == mappings_.end()) refuse(fmt::format("{:#x} is not mapped", at));
    if (!it->second.accessible) refuse(fmt::format("{:#x} lacks set_access", at));
    at = it->first + it->second.pages.size_bytes;
  }
  return true;
}

// --- Helpers.

AddressTable::Regions::const_iterator AddressTable::region_of(std::uintptr_t address) const {
  auto it = regions_.upper_bound(address);
  if (it == regions_.begin()) return regions_.end();
  --it;
  return address - it->first < it->second.size_bytes ? it : regions_.end();
}

AddressTable::Mappings::const_iterator AddressTable::mapping_of(std::uintptr_t address) const {
  auto it = mappings_.upper_bound(address);
  if (it == mappings_.begin()) return mappings_.end();
  --it;
  return address - it->first < it->second.pages.size_bytes ? it : mappings_.end();
}

std::optional<AddressTable::Dropped> AddressTable::drop_if_unused(std::uint64_t pages_id) {
  const auto it = pages_.find(pages_id);
  if (!it->second.released || it->second.mappings > 0) return std::nullopt;
  const Dropped dropped{it->second.size_bytes, it->second.backing};
  pages_.erase(it);
  return dropped;
}

}  // namespace tenon
