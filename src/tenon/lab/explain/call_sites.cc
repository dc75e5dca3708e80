#include "tenon/base/printable.h"
#include "tenon/lab/explain/call_sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tenon {

CallSites::CallSites(const SiteTable& sites) : table_(sites) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> known;  // call site and tag
  std::map<std::string, std::uint32_t> named;
  known.emplace(std::pair(0u, 0u), 0u);
  names_.emplace_back("no call stack");
  for (std::uint32_t number = 0; number < sites.sites(); ++number) {
    const Site& site = sites.site(number);
    stacks_.push_back(site.stack);
    const std::uint32_t place = table_.of_stack(site.stack);
    const auto [found, fresh] = known.try_emplace(std::pair(place, site.tag), 0u);
    if (fresh) {
      std::string name = place == 0 ? "no call stack" : table_.name(place);
      if (site.tag != 0) name += fmt::format(" [{}]", one_line(sites.text(site.tag)));
      const auto [same, first] =
          named.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
      if (first) names_.push_back(std::move(name));
      found->second = same->second;
    }
    groups_.push_back(found->second);
  }
}

std::vector<std::uint32_t> phases_by_event(const Trace& trace) {
  std::vector<std::uint32_t> phases(trace.events.size(), 0);
  std::vector<std::uint32_t> open;
  std::size_t event = 0;
  const auto fill = [&](std::size_t end) {
    const std::uint32_t phase = open.empty() ? 0 : open.back();
    for (; event < end; ++event) phases[event] = phase;
  };
  for (const TraceMark& mark : trace.marks) {
    fill(std::min<std::size_t>(mark.event, phases.size()));
    if (mark.kind == MarkKind::kPhaseBegin) open.push_back(mark.text);
    if (mark.kind != MarkKind::kPhaseEnd) continue;
    const auto begun = std::find(open.rbegin(), open.rend(), mark.text);
    if (begun != open.rend()) open.erase(std::prev(begun.base()));
  }
  fill(phases.size());
  return phases;
}

}  // namespace tenon
