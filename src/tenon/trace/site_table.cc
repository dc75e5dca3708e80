#include "tenon/trace/site_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tenon/base/hash.h"

namespace tenon {
namespace {

std::uint64_t hash_of(std::span<const std::uint32_t> numbers) {
  RunningHash hash;
  for (const std::uint32_t number : numbers) hash.add(number);
  return hash.value();
}

// The number of the equal thing under `hash`, or a new one from `make`.
template <typename Numbers, typename Equal, typename Make>
std::uint32_t find_or_make(Numbers& numbers, std::uint64_t hash, Equal&& equal, Make&& make) {
  const auto [begin, end] = numbers.equal_range(hash);
  for (auto at = begin; at != end; ++at)
    if (equal(at->second)) return at->second;
  const std::uint32_t fresh = make();
  numbers.emplace(hash, fresh);
  return fresh;
}

}  // namespace

SiteTable::SiteTable() {
  add_text("");
  add_frame("", "", 0);
  add_stack({});
  add_site({});
}

std::uint32_t SiteTable::add_text(std::string_view text) {
  const auto found = text_numbers_.find(text);
  if (found != text_numbers_.end()) return found->second;
  const auto fresh = static_cast<std::uint32_t>(texts_.size());
  text_numbers_.emplace(texts_.emplace_back(text), fresh);
  return fresh;
}

std::uint32_t SiteTable::add_frame(std::string_view function, std::string_view file,
                                   std::uint32_t line) {
  const Frame frame = {add_text(function), add_text(file), line};
  return find_or_make(
      frame_numbers_, hash_of(std::array{frame.function, frame.file, line}),
      [&](std::uint32_t other) { return frames_[other] == frame; },
      [&] {
        frames_.push_back(frame);
        return static_cast<std::uint32_t>(frames_.size() - 1);
      });
}

std::uint32_t SiteTable::add_stack(std::span<const std::uint32_t> frames) {
  return find_or_make(
      stack_numbers_, hash_of(frames),
      [&](std::uint32_t other) {
        const std::span<const std::uint32_t> known = stack(other);
        return std::equal(known.begin(), known.end(), frames.begin(), frames.end());
      },
      [&] {
        stack_frames_.insert(stack_frames_.end(), frames.begin(), frames.end());
        stack_ends_.push_back(stack_frames_.size());
        return static_cast<std::uint32_t>(stack_ends_.size() - 1);
      });
}

std::uint32_t SiteTable::add_site(const Site& site) {
  return find_or_make(
      site_numbers_, hash_of(std::array{site.stack, site.tag, site.thread}),
      [&](std::uint32_t other) { return sites_[other] == site; },
      [&] {
        sites_.push_back(site);
        return static_cast<std::uint32_t>(sites_.size() - 1);
      });
}

std::span<const std::uint32_t> SiteTable::stack(std::uint32_t number) const {
  const std::size_t end = stack_ends_.at(number);
  const std::size_t begin = number == 0 ? 0 : stack_ends_[number - 1];
  return std::span(stack_frames_).subspan(begin, end - begin);
}

std::string SiteTable::frame_label(std::uint32_t frame) const {
  if (frame == 0) return "";
  const Frame& place = frames_.at(frame);
  return fmt::format("{} {}:{}", text(place.function), text(place.file), place.line);
}

std::uint32_t SiteTable::innermost(std::uint32_t site) const {
  const auto frames = stack(sites_.at(site).stack);
  return frames.empty() ? 0 : frames.front();
}

std::string SiteTable::label(std::uint32_t site) const {
  const std::uint32_t frame = innermost(site);
  return frame != 0 ? frame_label(frame) : std::string(text(sites_.at(site).tag));
}

}  // namespace tenon
