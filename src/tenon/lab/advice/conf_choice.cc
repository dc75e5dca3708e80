#include "tenon/lab/advice/conf_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

namespace tenon {
namespace {

// The steps of each setting. Segments of expandable ranges must be whole pages of 2 MiB.
constexpr std::array<std::uint32_t, 22> kLargeSegments = {
    0, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024, 1536,
    2048};
constexpr std::array<std::uint32_t, 7> kDivisions = {0, 64, 32, 16, 8, 4, 2};
constexpr std::array<std::uint32_t, 8> kRoundupFrom = {0, 2, 4, 8, 16, 64, 256, 1024};
constexpr std::array<std::uint32_t, 9> kMaxSplits = {0, 21, 32, 64, 128, 256, 512, 1024, 2048};

// What stands before and after `value` in its list.
std::vector<std::uint32_t> steps_from(std::span<const std::uint32_t> list, std::uint32_t value) {
  const auto at = std::find(list.begin(), list.end(), value);
  std::vector<std::uint32_t> steps;
  if (at == list.end()) return steps;
  if (at != list.begin()) steps.push_back(*(at - 1));
  if (at + 1 != list.end()) steps.push_back(*(at + 1));
  return steps;
}

// Settings without effect are left out, so that one behaviour has one name.
ConfChoice tidied(ConfChoice choice) {
  if (choice.expandable_segments) choice.max_split_mb = 0;
  if (choice.max_split_mb != 0)
    choice.max_split_mb = std::max(choice.max_split_mb, choice.large_segment_mb);
  if (choice.roundup_divisions == 0) choice.roundup_from_mb = 0;
  return choice;
}

std::vector<ConfChoice> accepted(std::vector<ConfChoice> choices, TorchVersion version) {
  std::erase_if(choices,
                [&](const ConfChoice& choice) { return !accepts(version, choice.text()); });
  return choices;
}

}  // namespace

std::string ConfChoice::text() const {
  std::string out;
  const auto add = [&](const std::string& setting) { out += (out.empty() ? "" : ",") + setting; };
  if (expandable_segments) add("expandable_segments:True");
  if (max_split_mb != 0) add(fmt::format("max_split_size_mb:{}", max_split_mb));
  if (large_segment_mb != 0) add(fmt::format("large_segment_size_mb:{}", large_segment_mb));
  if (roundup_divisions != 0 && roundup_from_mb == 0)
    add(fmt::format("roundup_power2_divisions:{}", roundup_divisions));
  if (roundup_divisions != 0 && roundup_from_mb != 0)
    add(fmt::format("roundup_power2_divisions:[{}:1,{}:{},>:{}]", roundup_from_mb / 2,
                    roundup_from_mb, roundup_divisions, roundup_divisions));
  return out;
}

std::size_t ConfChoice::keys() const {
  return static_cast<std::size_t>(expandable_segments) + (large_segment_mb != 0 ? 1 : 0) +
         (roundup_divisions != 0 ? 1 : 0) + (max_split_mb != 0 ? 1 : 0);
}

std::vector<ConfChoice> coarse_choices(TorchVersion version) {
  std::vector<ConfChoice> choices = {{}, {.expandable_segments = true}};
  const auto add = [&](ConfChoice choice) {
    choice = tidied(choice);
    if (std::find(choices.begin(), choices.end(), choice) == choices.end())
      choices.push_back(choice);
  };
  for (const std::uint32_t divisions : kDivisions)
    add({.expandable_segments = true, .roundup_divisions = divisions});
  for (const std::uint32_t segment : kLargeSegments) add({.large_segment_mb = segment});
  for (const std::uint32_t segment : kLargeSegments)
    add({.expandable_segments = true, .large_segment_mb = segment});
  for (const std::uint32_t divisions : {64u, 32u, 16u, 8u})
    for (const std::uint32_t from : {2u, 16u, 64u, 256u})
      add({.expandable_segments = true, .roundup_divisions = divisions, .roundup_from_mb = from});
  for (const std::uint32_t split : kMaxSplits) add({.max_split_mb = split});
  for (const std::uint32_t divisions : {64u, 32u, 16u, 8u}) {
    add({.roundup_divisions = divisions});
    for (const std::uint32_t segment : {24u, 32u, 64u, 128u, 256u, 640u})
      add({.expandable_segments = true, .large_segment_mb = segment,
           .roundup_divisions = divisions});
  }
  for (const std::uint32_t segment : {64u, 256u, 512u, 1024u})
    for (const std::uint32_t divisions : {64u, 16u, 4u})
      add({.large_segment_mb = segment, .roundup_divisions = divisions});
  for (const std::uint32_t split : {21u, 64u, 256u, 1024u})
    for (const std::uint32_t segment : {0u, 64u, 256u})
      for (const std::uint32_t divisions : {0u, 64u, 16u})
        add({.large_segment_mb = segment, .roundup_divisions = divisions, .max_split_mb = split});
  return accepted(std::move(choices), version);
}

std::vector<ConfChoice> neighbours_of(const ConfChoice& choice, TorchVersion version) {
  std::vector<ConfChoice> found;
  const auto add = [&](ConfChoice changed) {
    changed = tidied(changed);
    if (changed != choice && std::find(found.begin(), found.end(), changed) == found.end())
      found.push_back(changed);
  };
  const auto vary = [&](std::uint32_t ConfChoice::* setting, std::span<const std::uint32_t> list) {
    for (const std::uint32_t value : steps_from(list, choice.*setting)) {
      ConfChoice changed = choice;
      changed.*setting = value;
      add(changed);
    }
  };
  vary(&ConfChoice::large_segment_mb, kLargeSegments);
  vary(&ConfChoice::roundup_divisions, kDivisions);
  vary(&ConfChoice::roundup_from_mb, kRoundupFrom);
  vary(&ConfChoice::max_split_mb, kMaxSplits);
  ConfChoice other = choice;
  other.expandable_segments = !choice.expandable_segments;
  add(other);
  return accepted(std::move(found), version);
}

}  // namespace tenon
