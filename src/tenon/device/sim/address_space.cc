#include "tenon/device/sim/address_space.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/device/os/os_memory.h"

namespace tenon {
namespace {

constexpr std::uintptr_t kHighestAddress = 0x7f0000000000;
constexpr std::uint64_t kFileBytes = std::uint64_t{1} << 60;  // holes cost nothing

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

SimAddressSpace::SimAddressSpace(const SimOptions& options)
    : options_(options),
      table_(options.page_granularity, options.can_map_twice),
      capacity_bytes_(options.capacity_bytes),
      next_below_(kHighestAddress),
      lowest_address_(kHighestAddress) {
  if (!is_power_of_two(options.alignment) || !is_power_of_two(options.page_granularity))
    raise<InvalidArgument>(
        "a simulated device's alignment ({}) and page granularity ({}) must be powers of two",
        options.alignment, options.page_granularity);
  if (options.real_memory && options.page_granularity % os::page_size() != 0)
    raise<InvalidArgument>(
        "with real memory the page granularity ({}) must be a multiple of the system's pages ({})",
        options.page_granularity, os::page_size());
}

SimAddressSpace::~SimAddressSpace() {
  if (!options_.real_memory) return;
  table_.for_each_region([](std::uintptr_t base, std::uint64_t size_bytes) {
    os::release(pointer(base), size_bytes);
  });
  if (file_ >= 0) ::close(file_);
}

// --- Segments and addresses.

std::optional<Segment> SimAddressSpace::allocate_segment(std::uint64_t size_bytes,
                                                         MemoryKind kind) {
  table_.require_segment_size(size_bytes);
  if (size_bytes > kMaxRequestBytes) return std::nullopt;
  const std::uint64_t size = align_up(size_bytes, options_.alignment);
  if (!fits(size)) return std::nullopt;
  const auto base = new_address(size, options_.alignment, true);
  if (!base) return std::nullopt;
  take(size);
  const bool host_sees_it =
      options_.real_memory && (options_.unified || kind != MemoryKind::kDevice);
  return Segment{pointer(*base), host_sees_it ? pointer(*base) : nullptr, size,
                 table_.add_segment(*base, size), kind};
}

void SimAddressSpace::free_segment(const Segment& segment) {
  table_.require_segment(segment);
  if (options_.real_memory) os::release(segment.base, segment.size_bytes);
  table_.remove_segment(segment);
  used_bytes_ -= segment.size_bytes;
}

std::optional<AddressRange> SimAddressSpace::reserve_address(std::uint64_t size_bytes) {
  table_.require_range_size(size_bytes);
  if (size_bytes > kMaxRequestBytes) return std::nullopt;
  const auto base = new_address(size_bytes, options_.page_granularity, false);
  if (!base) return std::nullopt;
  const AddressRange range{*base, size_bytes};
  table_.add_range(range);
  return range;
}

void SimAddressSpace::release_address(AddressRange range) {
  table_.require_empty_range(range);
  if (options_.real_memory) os::release(pointer(range.base), range.size_bytes);
  table_.remove_range(range);
}

// --- Pages.

std::optional<PageHandle> SimAddressSpace::create_pages(std::uint64_t size_bytes) {
  table_.require_pages_size(size_bytes);
  if (size_bytes > kMaxRequestBytes || !fits(size_bytes)) return std::nullopt;
  if (options_.real_memory && (!open_file() || kFileBytes - file_end_ < size_bytes))
    return std::nullopt;
  take(size_bytes);
  const PageHandle pages = table_.add_pages(size_bytes, file_end_);
  file_end_ += size_bytes;
  return pages;
}

void SimAddressSpace::release_pages(PageHandle pages) { give_back(table_.release_pages(pages)); }

bool SimAddressSpace::map(std::uintptr_t address, PageHandle pages) {
  table_.require_can_map(address, pages);
  if (options_.real_memory && !os::map_file(pointer(address), pages.size_bytes, file_,
                                            table_.backing("map", pages)))
    return false;
  table_.add_mapping(address, pages);
  return true;
}

std::optional<std::vector<std::uint64_t>> SimAddressSpace::set_access(std::uintptr_t address,
                                                                      std::uint64_t size_bytes) {
  auto sizes = table_.handles_in(address, size_bytes);
  if (options_.real_memory && !os::make_accessible(pointer(address), size_bytes))
    return std::nullopt;
  table_.set_accessible(address, size_bytes);
  return sizes;
}

void SimAddressSpace::unmap(std::uintptr_t address, PageHandle pages) {
  table_.require_mapped(address, pages);
  if (options_.real_memory && !os::unmap_file(pointer(address), pages.size_bytes))
    raise<DeviceError>("unmap({:#x}, handle {} of {} bytes): {}", address, pages.id,
                       pages.size_bytes, std::strerror(errno));
  give_back(table_.remove_mapping(address));
}

bool SimAddressSpace::require_accessible(const char* call, const void* address,
                                         std::uint64_t size_bytes) const {
  if (table_.require_accessible(call, address, size_bytes)) return true;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (options_.real_memory || begin < lowest_address_ || begin >= kHighestAddress) return false;
  raise<DeviceError>("{}({:#x}, {} bytes): the address was released", call, begin, size_bytes);
}

// --- Helpers.

bool SimAddressSpace::fits(std::uint64_t size_bytes) const {
  return used_bytes_ <= capacity_bytes_ && size_bytes <= capacity_bytes_ - used_bytes_;
}

void SimAddressSpace::take(std::uint64_t size_bytes) {
  used_bytes_ += size_bytes;
  peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
}

void SimAddressSpace::give_back(const std::optional<AddressTable::Dropped>& dropped) {
  if (!dropped) return;
  if (options_.real_memory) os::discard(file_, dropped->backing, dropped->size_bytes);
  used_bytes_ -= dropped->size_bytes;
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
  auto base = table_.free_below(next_below_, size_bytes, alignment);
  if (!base) base = table_.free_below(kHighestAddress, size_bytes, alignment);
  if (!base) return std::nullopt;
  next_below_ = *base;
  lowest_address_ = std::min(lowest_address_, next_below_);
  return base;
}

bool SimAddressSpace::open_file() {
  if (file_ < 0) file_ = os::create_file("tenon-sim", kFileBytes);
  return file_ >= 0;
}

}  // namespace tenon
