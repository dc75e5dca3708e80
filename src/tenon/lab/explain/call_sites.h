// The places of a program that a report speaks of. Thread-safe once made. Throws std::out_of_range
// for a number that is not there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/trace/call_site.h"
#include "tenon/trace/trace.h"

namespace tenon {

// Groups the sites of a trace for people: what is called the same (trace/call_site.h) and has the
// same tag is one group. Group 0 is "no call stack". Built in O(frames + sites).
class CallSites {
 public:
  explicit CallSites(const SiteTable& sites);

  // The group of a site; how many groups there are.
  std::uint32_t group(std::uint32_t site) const { return groups_.at(site); }
  std::size_t size() const { return names_.size(); }
  // "forward model.py:40 via relu torch/nn/functional.py:1723"
  const std::string& name(std::uint32_t group) const { return names_.at(group); }
  // What a site's stack says.
  const CallSite& call_site(std::uint32_t site) const {
    return table_.call_site(table_.of_stack(stacks_.at(site)));
  }
  // What the call sites are.
  const CallSiteTable& table() const { return table_; }

 private:
  CallSiteTable table_;
  std::vector<std::uint32_t> stacks_;  // by site
  std::vector<std::uint32_t> groups_;  // by site
  std::vector<std::string> names_;
};

// The innermost phase that was open at each event, as a text of the trace's sites; 0: none.
std::vector<std::uint32_t> phases_by_event(const Trace& trace);

}  // namespace tenon
