#include "tenon/lab/explain/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tenon/base/byte_size.h"
#include "tenon/base/printable.h"
#include "tenon/lab/explain/block_sites.h"
#include "tenon/lab/text_table.h"

namespace tenon {
namespace {

using Rows = std::map<std::string, DiffRow>;
struct Tables {
  Rows categories;
  Rows sites;
  Rows phases;
};

// "f a.py:12 from g b.py:3" -> "f a.py from g b.py".
std::string dropped_lines(const std::string& name) {
  std::string out;
  for (std::size_t i = 0; i < name.size();) {
    if (name[i] == ':' && i + 1 < name.size() && name[i + 1] >= '0' && name[i + 1] <= '9') {
      for (++i; i < name.size() && name[i] >= '0' && name[i] <= '9';) ++i;
    } else {
      out += name[i++];
    }
  }
  return out;
}

struct Side {
  std::uint64_t DiffRow::*live;
  std::uint64_t DiffRow::*allocated;
  std::uint64_t DiffRow::*count;
};
constexpr Side kBefore = {&DiffRow::before_bytes, &DiffRow::before_allocated,
                          &DiffRow::before_count};
constexpr Side kAfter = {&DiffRow::after_bytes, &DiffRow::after_allocated, &DiffRow::after_count};

// Adds one recording to the rows; returns its live peak and what it allocated in all.
std::pair<std::uint64_t, std::uint64_t> add(const Trace& trace, const Side& side,
                                            bool without_lines, Tables& rows) {
  const TraceFacts facts(trace);
  const Moment peak = live_peak(trace);
  BlockSites names(facts);
  std::vector<DiffRow*> site_rows;  // by group
  std::array<DiffRow*, kCategories> category_rows;
  for (std::size_t i = 0; i < kCategories; ++i)
    category_rows[i] = &rows.categories[std::string(kCategoryNames[i])];
  std::map<std::uint32_t, DiffRow*> phase_rows;
  std::uint64_t allocated = 0;
  for (std::uint32_t block = 0; block < trace.blocks; ++block) {
    const Lifetime& life = facts.lives[block];
    const std::uint32_t text = block < trace.early_blocks ? 0 : facts.phases[life.alloc];
    DiffRow*& phase = phase_rows[text];
    if (phase == nullptr)
      phase = &rows.phases[text == 0 ? "outside any phase" : one_line(trace.sites->text(text))];
    const bool live = life.live_after(peak.events);
    const std::uint32_t group = names.group(block);
    if (group == site_rows.size()) {
      const std::string& name = names.name(group);
      site_rows.push_back(&rows.sites[without_lines ? dropped_lines(name) : name]);
    }
    DiffRow* category =
        category_rows[static_cast<std::size_t>(facts.categories.blocks[block].category)];
    for (DiffRow* row : {site_rows[group], phase, category}) {
      row->*side.allocated += life.size_bytes;
      ++(row->*side.count);
      if (live) row->*side.live += life.size_bytes;
    }
    allocated += life.size_bytes;
  }
  return {peak.bytes, allocated};
}

std::vector<DiffRow> ordered(Rows rows) {
  std::vector<DiffRow> out;
  for (auto& [name, row] : rows) {
    if (row.before_count == 0 && row.after_count == 0) continue;
    row.name = name;
    out.push_back(std::move(row));
  }
  std::stable_sort(out.begin(), out.end(), [](const DiffRow& a, const DiffRow& b) {
    if (a.growth_bytes() != b.growth_bytes()) return a.growth_bytes() > b.growth_bytes();
    return a.after_allocated > b.after_allocated;
  });
  return out;
}

std::string change(std::uint64_t before, std::uint64_t after) {
  if (before == after) return "0";
  return before < after ? "+" + format_byte_size(after - before)
                        : "-" + format_byte_size(before - after);
}

// Rows that changed, the largest changes either way first.
std::string table_of(const char* title, const std::vector<DiffRow>& all, std::size_t rows) {
  std::vector<const DiffRow*> changed;
  for (const DiffRow& row : all)
    if (row.growth_bytes() != 0 || row.is_new() || row.is_gone() ||
        row.before_allocated != row.after_allocated)
      changed.push_back(&row);
  std::stable_sort(changed.begin(), changed.end(), [](const DiffRow* a, const DiffRow* b) {
    return std::llabs(a->growth_bytes()) > std::llabs(b->growth_bytes());
  });
  if (changed.empty()) return fmt::format("\n  {}: no difference\n", title);
  TextTable table({title, "at the peak", "before", "after", "allocated", "", ""});
  for (std::size_t i = 0; i < changed.size() && i < rows; ++i) {
    const DiffRow& row = *changed[i];
    table.add({row.name, change(row.before_bytes, row.after_bytes),
               format_byte_size(row.before_bytes), format_byte_size(row.after_bytes),
               change(row.before_allocated, row.after_allocated),
               fmt::format("{} to {} times", row.before_count, row.after_count),
               row.is_new()    ? "new"
               : row.is_gone() ? "gone"
                               : ""});
  }
  std::string text = "\n" + table.format();
  if (changed.size() > rows) text += fmt::format("  ... and {} more\n", changed.size() - rows);
  return text;
}

nlohmann::ordered_json rows_of(const std::vector<DiffRow>& rows) {
  auto list = nlohmann::ordered_json::array();
  for (const DiffRow& row : rows)
    list.push_back({{"name", row.name},
                    {"growth_bytes", row.growth_bytes()},
                    {"before_bytes", row.before_bytes},
                    {"after_bytes", row.after_bytes},
                    {"before_allocated_bytes", row.before_allocated},
                    {"after_allocated_bytes", row.after_allocated},
                    {"before_count", row.before_count},
                    {"after_count", row.after_count},
                    {"new", row.is_new()},
                    {"gone", row.is_gone()}});
  return list;
}

// The same device's trace in the other recording, or one without events.
Trace matching(const std::vector<Trace>& others, const Trace& trace) {
  const auto same = std::find_if(others.begin(), others.end(), [&](const Trace& other) {
    return other.device == trace.device && other.device_name == trace.device_name;
  });
  if (same != others.end()) return *same;
  Trace none;
  none.name = "nothing";
  return none;
}

}  // namespace

TraceDiff diff(const Trace& before, const Trace& after, bool without_lines) {
  TraceDiff result;
  result.before = before.name;
  result.after = after.name;
  Tables rows;
  std::tie(result.before_peak_bytes, result.before_allocated) =
      add(before, kBefore, without_lines, rows);
  std::tie(result.after_peak_bytes, result.after_allocated) =
      add(after, kAfter, without_lines, rows);
  result.categories = ordered(std::move(rows.categories));
  result.sites = ordered(std::move(rows.sites));
  result.phases = ordered(std::move(rows.phases));
  return result;
}

std::vector<TraceDiff> diff_all(const std::vector<Trace>& before, const std::vector<Trace>& after,
                                bool without_lines) {
  std::vector<TraceDiff> diffs;
  if (before.size() == 1 && after.size() == 1) {
    diffs.push_back(diff(before[0], after[0], without_lines));
    return diffs;
  }
  for (const Trace& trace : before)
    diffs.push_back(diff(trace, matching(after, trace), without_lines));
  for (const Trace& trace : after)
    if (matching(before, trace).events.empty())
      diffs.push_back(diff(matching(before, trace), trace, without_lines));
  return diffs;
}

std::string diff_text(const TraceDiff& diff, std::size_t rows) {
  std::string text = fmt::format(
      "{} -> {}\n  live peak {} -> {} ({}), allocated in all {} -> {} ({})\n", diff.before,
      diff.after, format_byte_size(diff.before_peak_bytes), format_byte_size(diff.after_peak_bytes),
      change(diff.before_peak_bytes, diff.after_peak_bytes),
      format_byte_size(diff.before_allocated), format_byte_size(diff.after_allocated),
      change(diff.before_allocated, diff.after_allocated));
  text += table_of("category", diff.categories, rows);
  text += table_of("call site", diff.sites, rows);
  if (diff.phases.size() > 1) text += table_of("phase", diff.phases, rows);
  return text;
}

std::string diff_json(const std::vector<TraceDiff>& diffs) {
  auto all = nlohmann::ordered_json::array();
  for (const TraceDiff& diff : diffs)
    all.push_back({{"before", diff.before},
                   {"after", diff.after},
                   {"before_peak_bytes", diff.before_peak_bytes},
                   {"after_peak_bytes", diff.after_peak_bytes},
                   {"before_allocated_bytes", diff.before_allocated},
                   {"after_allocated_bytes", diff.after_allocated},
                   {"categories", rows_of(diff.categories)},
                   {"call_sites", rows_of(diff.sites)},
                   {"phases", rows_of(diff.phases)}});
  return all.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tenon
