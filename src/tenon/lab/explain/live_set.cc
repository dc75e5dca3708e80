#include "tenon/lab/explain/live_set.h"

#include <algorithm>
#include <array>
#include <map>

#include "tenon/base/byte_size.h"

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

}  // namespace

TraceFacts::TraceFacts(const Trace& of)
    : trace(of),
      lives(lifetimes(of)),
      times_us(steady_times(of)),
      phases(phases_by_event(of)),
      sites(*of.sites) {}

LiveSet live_set(const TraceFacts& facts, std::size_t events) {
  LiveSet set;
  std::vector<LiveGroup> sites(facts.sites.size());
  for (std::uint32_t group = 0; group < sites.size(); ++group)
    sites[group].name = facts.sites.name(group);
  std::map<std::uint32_t, std::size_t> phase_places;  // by text
  std::vector<LiveGroup> phases;
  std::vector<LiveGroup> sizes(kSizes.size());
  for (std::size_t i = 0; i < kSizes.size(); ++i) sizes[i].name = kSizes[i].name;
  std::vector<LiveGroup> ages(kAges.size() + 1);
  for (std::size_t i = 0; i < kAges.size(); ++i) ages[i].name = kAges[i].name;
  ages.back().name = kEarly;

  const std::int64_t now_us = events == 0 ? 0 : facts.times_us[events - 1];
  for (std::uint32_t block = 0; block < facts.trace.blocks; ++block) {
    const Lifetime& life = facts.lives[block];
    if (!life.live_after(events)) continue;
    set.bytes += life.size_bytes;
    ++set.blocks;
    count(sites[facts.sites.group(life.site)], life.size_bytes);
    count(sizes[class_of(kSizes, life.size_bytes)], life.size_bytes);
    const bool early = block < facts.trace.early_blocks;
    const auto age_us = static_cast<std::uint64_t>(now_us - facts.times_us[life.alloc]);
    count(early ? ages.back() : ages[class_of(kAges, age_us)], life.size_bytes);
    const std::uint32_t text = early ? 0 : facts.phases[life.alloc];
    const auto [place, fresh] = phase_places.try_emplace(text, phases.size());
    if (fresh)
      phases.push_back({text == 0 ? "outside any phase"
                                  : std::string(facts.trace.sites->text(text)),
                        0, 0, 0});
    count(phases[place->second], life.size_bytes);
  }
  set.by_site = most_first(std::move(sites));
  set.by_phase = most_first(std::move(phases));
  set.by_size = without_empty(std::move(sizes));
  set.by_age = without_empty(std::move(ages));
  return set;
}

}  // namespace tenon
