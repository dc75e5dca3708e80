#include "tenon/lab/explain/live_set.h"

#include <algorithm>
#include <array>
#include <map>

#include "tenon/base/byte_size.h"
#include "tenon/base/printable.h"
#include "tenon/lab/explain/block_sites.h"
#include "tenon/lab/verdict/gradient_match.h"

namespace tenon {
namespace {

struct Class {
  std::uint64_t below;
  const char* name;
};

constexpr std::array<Class, 6> kSizes = {{{4 * kKiB, "below 4 KiB"},
                                          {kMiB + 1, "4 KiB to 1 MiB"},
                                          {10 * kMiB, "1 MiB to 10 MiB"},
                                          {100 * kMiB, "10 MiB to 100 MiB"},
                                          {kGiB, "100 MiB to 1 GiB"},
                                          {~std::uint64_t{0}, "1 GiB and more"}}};
constexpr std::array<Class, 6> kAges = {{{1'000, "below 1 ms"},
                                         {10'000, "1 to 10 ms"},
                                         {100'000, "10 to 100 ms"},
                                         {1'000'000, "0.1 to 1 s"},
                                         {10'000'000, "1 to 10 s"},
                                         {~std::uint64_t{0}, "10 s and more"}}};
constexpr std::array<Class, 5> kEventAges = {{{100, "below 100 events"},
                                              {1'000, "100 to 1,000 events"},
                                              {10'000, "1,000 to 10,000 events"},
                                              {100'000, "10,000 to 100,000 events"},
                                              {~std::uint64_t{0}, "100,000 events and more"}}};
constexpr const char* kEarly = "from before the recording";

template <std::size_t kCount>
std::size_t class_of(const std::array<Class, kCount>& classes, std::uint64_t value) {
  std::size_t number = 0;
  while (number + 1 < kCount && value >= classes[number].below) ++number;
  return number;
}

void count(LiveGroup& group, std::uint64_t size_bytes) {
  group.bytes += size_bytes;
  ++group.blocks;
  group.largest_bytes = std::max(group.largest_bytes, size_bytes);
}

std::vector<LiveGroup> without_empty(std::vector<LiveGroup> groups) {
  std::erase_if(groups, [](const LiveGroup& group) { return group.blocks == 0; });
  return groups;
}

std::vector<LiveGroup> most_first(std::vector<LiveGroup> groups) {
  groups = without_empty(std::move(groups));
  std::stable_sort(groups.begin(), groups.end(),
                   [](const LiveGroup& a, const LiveGroup& b) { return a.bytes > b.bytes; });
  return groups;
}

template <std::size_t kCount>
std::vector<LiveGroup> groups_of(const std::array<Class, kCount>& classes) {
  std::vector<LiveGroup> groups(classes.size());
  for (std::size_t i = 0; i < classes.size(); ++i) groups[i].name = classes[i].name;
  return groups;
}

// Groups by call site.
class SiteGroups {
 public:
  void add(std::uint32_t group, std::uint64_t size_bytes) {
    if (group >= groups_.size()) groups_.resize(group + 1);
    count(groups_[group], size_bytes);
  }
  std::vector<LiveGroup> named(const BlockSites& sites) && {
    for (std::uint32_t group = 0; group < groups_.size(); ++group)
      if (groups_[group].blocks > 0) groups_[group].name = sites.name(group);
    return most_first(std::move(groups_));
  }

 private:
  std::vector<LiveGroup> groups_;
};

bool any_time(const Trace& trace) {
  return std::any_of(trace.events.begin(), trace.events.end(), [&](const TraceEvent& event) {
    return event.time_us != trace.events.front().time_us;
  });
}

}  // namespace

TraceFacts::TraceFacts(const Trace& of)
    : trace(of),
      lives(lifetimes(of)),
      times_us(steady_times(of)),
      phases(phases_by_event(of)),
      sites(*of.sites),
      categories(categorize(of, lives, phases, sites)),
      has_times(any_time(of)) {
  match_gradients(of, lives, sites, categories);
}

namespace {

// The groups of one category, filled block by block.
struct CategoryTally {
  CategoryGroup group;
  SiteGroups sites;
};

std::vector<CategoryGroup> finish(std::vector<CategoryTally> tallies, const BlockSites& names) {
  std::vector<CategoryGroup> groups;
  for (CategoryTally& tally : tallies) {
    if (tally.group.blocks == 0) continue;
    tally.group.sites = std::move(tally.sites).named(names);
    groups.push_back(std::move(tally.group));
  }
  std::stable_sort(
      groups.begin(), groups.end(),
      [](const CategoryGroup& a, const CategoryGroup& b) { return a.bytes > b.bytes; });
  return groups;
}

}  // namespace

LiveSet live_set(const TraceFacts& facts, std::size_t events) {
  LiveSet set;
  BlockSites names(facts);
  SiteGroups sites;
  std::vector<CategoryTally> categories(kCategories);
  for (std::size_t i = 0; i < kCategories; ++i) {
    categories[i].group.category = static_cast<Category>(i);
    categories[i].group.name = std::string(kCategoryNames[i]);
  }
  std::map<std::uint32_t, std::size_t> phase_places;  // by text
  std::vector<LiveGroup> phases;
  std::vector<LiveGroup> sizes = groups_of(kSizes);
  std::vector<LiveGroup> ages = facts.has_times ? groups_of(kAges) : groups_of(kEventAges);
  ages.push_back({kEarly, 0, 0, 0});

  const std::int64_t now_us = events == 0 ? 0 : facts.times_us[events - 1];
  for (std::uint32_t block = 0; block < facts.trace.blocks; ++block) {
    const Lifetime& life = facts.lives[block];
    if (!life.live_after(events)) continue;
    set.bytes += life.size_bytes;
    ++set.blocks;
    const std::uint32_t site = names.group(block);
    sites.add(site, life.size_bytes);
    const BlockCategory& category = facts.categories.blocks[block];
    CategoryTally& tally = categories[static_cast<std::size_t>(category.category)];
    count(tally.group, life.size_bytes);
    tally.group.confidence_bytes[static_cast<std::size_t>(category.confidence)] += life.size_bytes;
    tally.sites.add(site, life.size_bytes);
    count(sizes[class_of(kSizes, life.size_bytes)], life.size_bytes);
    const bool early = block < facts.trace.early_blocks;
    const auto age_us = static_cast<std::uint64_t>(now_us - facts.times_us[life.alloc]);
    const std::size_t age =
        facts.has_times ? class_of(kAges, age_us) : class_of(kEventAges, events - life.alloc);
    count(early ? ages.back() : ages[age], life.size_bytes);
    const std::uint32_t text = early ? 0 : facts.phases[life.alloc];
    const auto [place, fresh] = phase_places.try_emplace(text, phases.size());
    if (fresh)
      phases.push_back(
          {text == 0 ? "outside any phase" : one_line(facts.trace.sites->text(text)), 0, 0, 0});
    count(phases[place->second], life.size_bytes);
  }
  set.by_category = finish(std::move(categories), names);
  set.by_site = std::move(sites).named(names);
  set.by_phase = most_first(std::move(phases));
  set.by_size = without_empty(std::move(sizes));
  set.by_age = without_empty(std::move(ages));
  return set;
}

}  // namespace tenon
