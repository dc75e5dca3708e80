#include "tenon/lab/view/sites.h"

#include <bit>
#include <unordered_map>

#include "tenon/base/byte_size.h"
#include "tenon/trace/call_site.h"

namespace tenon {
namespace {

// Numbers names as they come.
template <typename Key>
class Numbering {
 public:
  // The key's number, and whether it is new.
  std::pair<std::uint32_t, bool> operator()(const Key& key) {
    const auto [at, added] =
        numbers_.try_emplace(key, static_cast<std::uint32_t>(numbers_.size()));
    return {at->second, added};
  }

 private:
  std::unordered_map<Key, std::uint32_t> numbers_;
};

bool has_sites(const Trace& trace) {
  for (const TraceEvent& event : trace.events)
    if (event.op == TraceOp::kAlloc && event.site != 0) return true;
  return false;
}

ViewSites group_by_site(const Trace& trace) {
  constexpr const char* kEarly = "(live before the recording began)";
  constexpr const char* kUnknown = "(no call site recorded)";
  ViewSites sites;
  sites.grouped_by = "call site";
  Numbering<std::string> groups;
  Numbering<std::uint64_t> places;
  const CallSiteTable call_sites(*trace.sites);
  for (const TraceEvent& event : trace.events) {
    if (event.op != TraceOp::kAlloc) continue;
    const bool early = event.block < trace.early_blocks;
    const auto [place, added] = places(std::uint64_t{event.site} * 2 + (early ? 1 : 0));
    if (added) {
      std::string name = call_sites.site_name(*trace.sites, event.site);
      if (name.empty()) name = early ? kEarly : kUnknown;
      const auto [group, new_group] = groups(name);
      if (new_group) sites.groups.push_back(name);
      sites.group.push_back(group);
      sites.stack.push_back(trace.sites->site(event.site).stack);
      sites.tag.push_back(trace.sites->site(event.site).tag);
    }
    sites.place.push_back(place);
  }
  return sites;
}

// "12 MiB", or where there are too many sizes to tell apart "8 MiB to 16 MiB".
std::string size_name(std::uint64_t size_bytes, bool exact) {
  if (exact || size_bytes == 0) return format_byte_size(size_bytes);
  const std::uint64_t low = std::bit_floor(size_bytes);
  return format_byte_size(low) + " to " + format_byte_size(2 * low);
}

ViewSites group_by_size(const Trace& trace) {
  constexpr std::size_t kMostExact = 2048;
  ViewSites sites;
  sites.grouped_by = "size";
  Numbering<std::uint64_t> sizes;
  std::size_t distinct = 0;
  for (const TraceEvent& event : trace.events)
    if (event.op == TraceOp::kAlloc && sizes(event.size_bytes).second) ++distinct;
  const bool exact = distinct <= kMostExact;
  Numbering<std::uint64_t> keys;
  for (const TraceEvent& event : trace.events) {
    if (event.op != TraceOp::kAlloc) continue;
    const auto [place, added] =
        keys(exact || event.size_bytes == 0 ? event.size_bytes : std::bit_floor(event.size_bytes));
    if (added) {
      sites.groups.push_back(size_name(event.size_bytes, exact));
      sites.group.push_back(place);
      sites.stack.push_back(0);
      sites.tag.push_back(0);
    }
    sites.place.push_back(place);
  }
  return sites;
}

}  // namespace

ViewSites find_sites(const Trace& trace) {
  return has_sites(trace) ? group_by_site(trace) : group_by_size(trace);
}

}  // namespace tenon
