#include "tenon/lab/view/answer.h"

#include <fmt/format.h>

#include <algorithm>

namespace tenon {
namespace {

// The confidence of most of a category's bytes.
std::string confidence_of(const CategoryGroup& group) {
  const auto most = std::max_element(group.confidence_bytes.begin(), group.confidence_bytes.end());
  return std::string(
      confidence_name(static_cast<Confidence>(most - group.confidence_bytes.begin())));
}

}  // namespace

ViewAnswer view_answer(const TraceFacts& facts, const DeviceExplanation& device) {
  ViewAnswer answer;
  answer.sentences = device.verdict.sentences;
  for (const std::string& open : device.verdict.cannot_tell) answer.sentences.push_back(open);
  for (const Change& change : device.verdict.changes)
    answer.changes.push_back(
        fmt::format("{}: {}. Measured by {}.", change.what, change.how, change.measured));
  for (const std::string_view name : kCategoryNames) answer.categories.emplace_back(name);
  for (const CategoryGroup& group : device.at_peak.by_category)
    answer.shares.push_back(
        {static_cast<std::uint8_t>(group.category), group.bytes, confidence_of(group)});
  answer.category.reserve(facts.categories.blocks.size());
  for (const BlockCategory& block : facts.categories.blocks)
    answer.category.push_back(static_cast<std::uint8_t>(block.category));
  return answer;
}

}  // namespace tenon
