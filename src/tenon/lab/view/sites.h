// Where the blocks of a trace were asked for, as the viewer names and groups them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

// Every block has a place (a call stack with its tag, say) and every place belongs to a group: its
// innermost frame. A trace without call sites is grouped by size instead.
struct ViewSites {
  std::string grouped_by;                  // "call site" or "size"
  std::vector<std::string> groups;         // names; not necessarily UTF-8
  std::vector<std::uint32_t> group;        // of each place
  std::vector<std::uint32_t> stack;        // of each place: in Trace::sites
  std::vector<std::uint32_t> tag;          // of each place: a text in Trace::sites
  std::vector<std::uint32_t> place;        // of each block
};

ViewSites find_sites(const Trace& trace);

// Whether a frame is the program's own Python.
bool is_own_frame(const SiteTable& sites, std::uint32_t frame);
// A stack in words, innermost first: the program's own frames, or all where it has none.
std::vector<std::string> own_stack(const SiteTable& sites, std::uint32_t site);

}  // namespace tenon
