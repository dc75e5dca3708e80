#include "tenon/memory/adaptors/tracking_adaptor.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tenon/base/byte_size.h"

namespace tenon {

template <typename Base>
DataPtr TrackingAdaptor<Base>::serve(std::size_t size_bytes, Stream stream) {
  DataPtr inner = this->from_upstream(size_bytes, stream);
  if (inner == nullptr) return inner;
  auto block = std::make_unique<Tracked>();
  Tracked* const record = block.get();
  record->tag = current_tag();
  record->made_at = CallStack::capture(stack_depth_, 2);  // without serve and allocate
  DataPtr data = this->wrap(std::move(inner), size_bytes, stream, std::move(block));
  const std::lock_guard lock(mutex_);
  record->number = ++requests_;
  live_.insert(record);
  live_bytes_ += size_bytes;
  return data;
}

template <typename Base>
void TrackingAdaptor<Base>::take_back(std::unique_ptr<Block> block) {
  {
    const std::lock_guard lock(mutex_);
    live_.erase(static_cast<const Tracked*>(block.get()));
    live_bytes_ -= block->size_bytes;
  }
  Adaptor<Base>::take_back(std::move(block));
}

template <typename Base>
std::uint64_t TrackingAdaptor<Base>::live_blocks() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

template <typename Base>
std::uint64_t TrackingAdaptor<Base>::live_bytes() const {
  const std::lock_guard lock(mutex_);
  return live_bytes_;
}

template <typename Base>
std::vector<TrackedBlock> TrackingAdaptor<Base>::blocks() const {
  std::vector<TrackedBlock> out;
  {
    const std::lock_guard lock(mutex_);
    for (const Tracked* block : live_)
      out.push_back({block->data, block->size_bytes, block->number, block->tag, block->made_at});
  }
  std::sort(out.begin(), out.end(),
            [](const TrackedBlock& a, const TrackedBlock& b) { return a.number < b.number; });
  return out;
}

template <typename Base>
std::vector<TrackedSite> TrackingAdaptor<Base>::call_sites() const {
  std::map<std::tuple<CallStack, const char*, const char*>, TrackedSite> by_place;
  for (const TrackedBlock& block : blocks()) {
    TrackedSite& site = by_place[{block.made_at, block.tag.phase, block.tag.call_site}];
    ++site.count;
    site.size_bytes += block.size_bytes;
    site.tag = block.tag;
    site.made_at = block.made_at;
  }
  std::vector<TrackedSite> out;
  for (const auto& [place, site] : by_place) out.push_back(site);
  std::stable_sort(out.begin(), out.end(), [](const TrackedSite& a, const TrackedSite& b) {
    return a.size_bytes > b.size_bytes;
  });
  return out;
}

template <typename Base>
std::string TrackingAdaptor<Base>::leak_report() const {
  const std::vector<TrackedSite> sites = call_sites();
  if (sites.empty()) return "no blocks are alive\n";
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::string text;
  for (const TrackedSite& site : sites) {
    count += site.count;
    bytes += site.size_bytes;
    text += fmt::format("  {} in {} block(s)", format_byte_size(site.size_bytes), site.count);
    if (site.tag.phase != nullptr) text += fmt::format(", phase {}", site.tag.phase);
    if (site.tag.call_site != nullptr) text += fmt::format(", by {}", site.tag.call_site);
    text += ", made at\n" + (site.made_at.empty() ? "    (no stack)\n" : site.made_at.to_string());
  }
  return fmt::format("{} block(s) alive, {}, from {} place(s):\n", count, format_byte_size(bytes),
                     sites.size()) +
         text;
}

template class TrackingAdaptor<Allocator>;
template class TrackingAdaptor<DeviceAllocator>;

}  // namespace tenon
