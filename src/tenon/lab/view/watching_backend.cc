#include "tenon/lab/view/watching_backend.h"

namespace tenon {

void WatchingBackend::note_held() {
  if (!watching_) return;
  const std::uint64_t bytes = device_.used_bytes();
  if (held_.empty() ? bytes == 0 : held_.back().bytes == bytes) return;
  held_.push_back({op_, bytes});
}

void WatchingBackend::note_backing(bool begins, bool page, std::uint64_t address,
                                   std::uint64_t size_bytes) {
  if (watching_) backing_.push_back({op_, begins, page, address, size_bytes});
}

std::optional<Segment> WatchingBackend::allocate_segment(std::uint64_t size_bytes,
                                                         MemoryKind kind) {
  auto segment = device_.allocate_segment(size_bytes, kind);
  if (segment) {
    note_backing(true, false, reinterpret_cast<std::uintptr_t>(segment->base),
                 segment->size_bytes);
    note_held();
  }
  return segment;
}

void WatchingBackend::free_segment(const Segment& segment) {
  device_.free_segment(segment);
  note_backing(false, false, reinterpret_cast<std::uintptr_t>(segment.base), segment.size_bytes);
  note_held();
}

std::optional<PageHandle> WatchingBackend::create_pages(std::uint64_t size_bytes) {
  auto pages = device_.create_pages(size_bytes);
  if (pages) note_held();
  return pages;
}

void WatchingBackend::release_pages(PageHandle pages) {
  device_.release_pages(pages);
  note_held();
}

bool WatchingBackend::map(std::uintptr_t address, PageHandle pages) {
  if (!device_.map(address, pages)) return false;
  mappings_[address] = {pages.size_bytes, pages.id};
  const auto [place, first] = place_of_handle_.try_emplace(pages.id, address);
  if (!first) {
    note_backing(false, true, place->second, pages.size_bytes);
    place->second = address;
  }
  note_backing(true, true, address, pages.size_bytes);
  return true;
}

void WatchingBackend::unmap(std::uintptr_t address, PageHandle pages) {
  device_.unmap(address, pages);
  mappings_.erase(address);
  const auto place = place_of_handle_.find(pages.id);
  if (place != place_of_handle_.end() && place->second == address) {
    place_of_handle_.erase(place);
    note_backing(false, true, address, pages.size_bytes);
  }
  note_held();
}

void WatchingBackend::note_block(std::uint64_t address, std::uint64_t size_bytes) {
  if (mappings_.size() == place_of_handle_.size()) return;  // no page has a second address
  auto at = mappings_.upper_bound(address);
  if (at != mappings_.begin()) --at;
  for (; at != mappings_.end() && at->first < address + size_bytes; ++at) {
    if (at->first + at->second.size_bytes <= address) continue;
    const auto [place, lost] = place_of_handle_.try_emplace(at->second.handle, at->first);
    if (!lost && place->second == at->first) continue;
    if (!lost) note_backing(false, true, place->second, at->second.size_bytes);
    place->second = at->first;
    note_backing(true, true, at->first, at->second.size_bytes);
  }
}

}  // namespace tenon
