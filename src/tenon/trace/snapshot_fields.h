// Typed access to a snapshot's dicts, with errors that name the place; and its call stacks.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/trace/pickle.h"
#include "tenon/trace/site_table.h"

namespace tenon {

// Reads fields of one document. Lists and dicts that a damaged file names again and again are
// visited no more often than the file has bytes: each item and each key that is looked at counts,
// whatever it holds. Texts are cut at kMaxText. Not thread-safe.
class SnapshotFields {
 public:
  SnapshotFields(const std::string& path, std::size_t file_bytes)
      : path_(path), budget_(2 * file_bytes) {}

  // Values given from now on are of this document.
  void use(const PickleDocument& document) { document_ = &document; }

  // Throws ParseError with `reason`.
  [[noreturn]] void fail(const std::string& reason) const;
  std::span<const PickleValue> sequence(const PickleValue& value, std::string_view what);
  // Throws ParseError where the value is no dict, or a giant one.
  std::span<const PickleDocument::Pair> fields(const PickleValue& entry,
                                               std::string_view what);
  std::uint64_t number(const PickleValue& value, std::string_view key, std::string_view what) const;
  // The same, and `otherwise` for None.
  std::uint64_t number_or(std::uint64_t otherwise, const PickleValue& value, std::string_view key,
                          std::string_view what) const;
  std::string_view text(const PickleValue& value, std::string_view key,
                        std::string_view what) const;
  // Notes a key that this reader does not know.
  void note_unknown(const PickleValue& key, std::string_view what);

  // The stack of a "frames" list; 0 for anything else. Frames that are no dicts are left out.
  std::uint32_t stack(const PickleValue& frames);
  SiteTable& sites() { return sites_; }
  SiteTable take_sites() { return std::move(sites_); }
  // "a trace entry: colour", ...
  const std::set<std::string>& unknown() const { return unknown_; }

  // Values as text, for settings: '8', 'True', '{1: 0, 2: 0}'. Short; depth is limited.
  std::string shown(const PickleValue& value, int depth = 0);

  // Names of functions and files, labels, metadata: what comes after so many bytes is left out.
  static constexpr std::size_t kMaxText = 4096;

 private:
  // Counts what is visited.
  void visit(std::size_t items, std::string_view what);
  std::uint32_t read_frame(const PickleValue& value);
  std::uint32_t read_stack(const PickleValue& frames);

  const PickleDocument* document_ = nullptr;
  const std::string& path_;
  std::size_t budget_;  // items and keys that may still be visited
  SiteTable sites_;
  std::set<std::string> unknown_;
  std::vector<std::uint32_t> frame_numbers_;  // scratch
  // By container, of those that stay: frame or stack, plus 1; 0: not read yet.
  std::vector<std::uint32_t> frames_;
  std::vector<std::uint32_t> stacks_;
};

}  // namespace tenon
