// The places of a program that a report speaks of.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

// Groups the sites of a trace for people: what the innermost frame is called, and which line of
// the program's own code called it (the innermost frame outside installed packages). Sites that
// agree in both, and in their tag, are one group. Group 0 is "no call stack". Built in O(sites).
class CallSites {
 public:
  explicit CallSites(const SiteTable& sites);

  std::uint32_t group(std::uint32_t site) const { return groups_.at(site); }
  std::size_t size() const { return names_.size(); }
  // "relu torch/nn/functional.py:1723 from forward model.py:40"
  const std::string& name(std::uint32_t group) const { return names_.at(group); }

 private:
  std::vector<std::uint32_t> groups_;  // by site
  std::vector<std::string> names_;
};

// The innermost phase that was open at each event, as a text of the trace's sites; 0: none.
std::vector<std::uint32_t> phases_by_event(const Trace& trace);

// Long paths of installed packages begin behind "site-packages/".
std::string_view short_path(std::string_view path);

}  // namespace tenon
