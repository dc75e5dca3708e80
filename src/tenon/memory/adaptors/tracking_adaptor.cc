#include "tenon/memory/adaptors/tracking_adaptor.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tenon/base/byte_size.h"

namespace tenon {

void TrackedBlocks::add(TrackedBlock& block) {
  const std::lock_guard lock(mutex_);
  block.number = ++requests_;
  live_.insert(&block);
  live_bytes_ += block.size_bytes;
}

void TrackedBlocks::remove(const TrackedBlock& block) {
  const std::lock_guard lock(mutex_);
  live_.erase(&block);
  live_bytes_ -= block.size_bytes;
}

std::uint64_t TrackedBlocks::live_blocks() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

std::uint64_t TrackedBlocks::live_bytes() const {
  const std::lock_guard lock(mutex_);
  return live_bytes_;
}

std::vector<TrackedBlock> TrackedBlocks::blocks() const {
  std::vector<TrackedBlock> out;
  {
    const std::lock_guard lock(mutex_);
    for (const TrackedBlock* block : live_) out.push_back(*block);
  }
  std::sort(out.begin(), out.end(),
            [](const TrackedBlock& a, const TrackedBlock& b) { return a.number < b.number; });
  return out;
}

std::vector<TrackedSite> TrackedBlocks::call_sites() const {
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

std::string TrackedBlocks::leak_report() const {
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

}  // namespace tenon
