// Where in a program things happened: call stacks, tags and threads, each kept once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tenon {

// A place in the program's text. The strings are numbers of texts in their table.
struct Frame {
  std::uint32_t function = 0;
  std::uint32_t file = 0;
  std::uint32_t line = 0;  // 0: not known

  friend bool operator==(const Frame&, const Frame&) = default;
};

// Who asked for something. All fields are numbers in the table that holds the site; 0: not known.
struct Site {
  std::uint32_t stack = 0;
  std::uint32_t tag = 0;     // a text: what the program called this part of itself
  std::uint32_t thread = 0;  // a small number for each thread of the recording, from 1

  friend bool operator==(const Site&, const Site&) = default;
};

// Interns texts, frames, stacks (frames, innermost first) and sites. Number 0 of each is the empty
// one. A million events with a few hundred places to come from cost four bytes each and the table
// a few kilobytes. Adding is O(length), reading O(1). Not thread-safe while texts are added.
// Numbers stay what they are for as long as the table lives.
class SiteTable {
 public:
  SiteTable();
  SiteTable(SiteTable&&) = default;
  SiteTable& operator=(SiteTable&&) = default;

  // Each returns the number, the same for the same thing. Frames of a stack come innermost first.
  std::uint32_t add_text(std::string_view text);
  std::uint32_t add_frame(std::string_view function, std::string_view file, std::uint32_t line);
  std::uint32_t add_stack(std::span<const std::uint32_t> frames);
  std::uint32_t add_site(const Site& site);

  // What a number stands for. Throws std::out_of_range for one that was never given.
  std::string_view text(std::uint32_t number) const { return texts_.at(number); }
  const Frame& frame(std::uint32_t number) const { return frames_.at(number); }
  // Frames, innermost first.
  std::span<const std::uint32_t> stack(std::uint32_t number) const;
  const Site& site(std::uint32_t number) const { return sites_.at(number); }

  // How many there are, the empty one included.
  std::size_t frames() const { return frames_.size(); }
  std::size_t stacks() const { return stack_ends_.size(); }
  std::size_t sites() const { return sites_.size(); }

  // "function file:line"; empty for frame 0.
  std::string frame_label(std::uint32_t frame) const;
  // The number of the innermost frame of a site; 0 where it has none.
  std::uint32_t innermost(std::uint32_t site) const;
  // What to call a site in a list: its innermost frame, else its tag, else nothing.
  std::string label(std::uint32_t site) const;

 private:
  std::deque<std::string> texts_;  // stable addresses: the map's keys lie in it
  std::vector<Frame> frames_;
  std::vector<std::uint32_t> stack_frames_;  // all stacks, one behind the other
  std::vector<std::size_t> stack_ends_;
  std::vector<Site> sites_;
  std::unordered_map<std::string_view, std::uint32_t> text_numbers_;
  // By hash; what is equal is found by comparing.
  std::unordered_multimap<std::uint64_t, std::uint32_t> frame_numbers_;
  std::unordered_multimap<std::uint64_t, std::uint32_t> stack_numbers_;
  std::unordered_multimap<std::uint64_t, std::uint32_t> site_numbers_;
};

}  // namespace tenon
