#include "tenon/lab/view/policy_columns.h"

#include <fmt/format.h>

#include <bit>
#include <string>
#include <utility>

namespace tenon {

PackedPolicy pack_policy(PolicyView view, std::size_t index) {
  PackedPolicy packed;
  packed.unit_bytes = add_policy_columns(view, index, packed.columns);
  view.held = {};
  view.places = {};
  view.spans = {};
  packed.view = std::move(view);
  return packed;
}

std::uint64_t add_policy_columns(const PolicyView& view, std::size_t index,
                                 std::vector<Column>& columns) {
  constexpr std::uint64_t kLargestUnit = std::uint64_t{1} << 21;
  std::uint64_t bits = kLargestUnit;
  for (const std::uint64_t place : view.places)
    if (place != PolicyView::kNowhere) bits |= place;
  for (const BackedSpan& span : view.spans) bits |= span.offset | span.size_bytes;
  const std::uint64_t unit = std::uint64_t{1} << std::countr_zero(bits);

  const std::string prefix = fmt::format("p{}.", index);
  const auto add = [&](const char* name, std::uint64_t count, bool delta,
                       const std::function<std::uint64_t(std::uint64_t)>& number) {
    columns.push_back(pack_numbers(prefix + name, count, delta, number));
  };
  const auto& held = view.held;
  add("held_op", held.size(), true, [&](auto i) { return std::uint64_t{held[i].op}; });
  add("held_bytes", held.size(), false, [&](auto i) { return held[i].bytes; });
  const auto& places = view.places;
  add("place", places.size(), false, [&](auto i) {
    return places[i] == PolicyView::kNowhere ? 0 : places[i] / unit + 1;
  });
  const auto& spans = view.spans;
  add("span_from", spans.size(), true, [&](auto i) { return std::uint64_t{spans[i].from_op}; });
  add("span_to", spans.size(), false, [&](auto i) { return std::uint64_t{spans[i].to_op}; });
  add("span_start", spans.size(), false, [&](auto i) { return spans[i].offset / unit; });
  add("span_size", spans.size(), false, [&](auto i) { return spans[i].size_bytes / unit; });
  return unit;
}

}  // namespace tenon
