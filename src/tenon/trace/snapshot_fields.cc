#include "tenon/trace/snapshot_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/error.h"

namespace tenon {
namespace {

// PyTorch's entries have about a dozen keys. The bound keeps a look-up short in a file that makes
// a million references to one giant dict.
constexpr std::size_t kMaxKeys = 64;
constexpr std::size_t kMaxUnknown = 64;
constexpr std::size_t kMaxShown = 400;

// Text of a file on one line of a message: printable, short.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > 60 ? "..." : "");
}

// What `read` gives for a container, kept where the file may name it again.
template <typename Read>
std::uint32_t once(std::vector<std::uint32_t>& known, const PickleValue& value, Read&& read) {
  if (value.is_passing()) return read();
  const std::uint64_t number = value.container();
  if (number >= known.size()) known.resize(std::max<std::size_t>(number + 1, 2 * known.size()));
  if (known[number] == 0) {
    const std::uint32_t fresh = read();
    known[number] = fresh + 1;
  }
  return known[number] - 1;
}

}  // namespace

void SnapshotFields::fail(const std::string& reason) const {
  throw ParseError(path_, 0, 0, reason);
}

std::span<const PickleValue> SnapshotFields::sequence(const PickleValue& value,
                                                      std::string_view what) {
  if (!value.is_sequence())
    fail(fmt::format("{} holds {} where a list belongs", what, pickle_kind_name(value.kind())));
  const auto items = document_->items(value);
  visit(items.size(), what);
  return items;
}

// A container may be named many times by a few bytes each. In files that programs write, an item or
// a key takes a byte or more and is visited once.
void SnapshotFields::visit(std::size_t items, std::string_view what) {
  if (items > budget_) fail(fmt::format("{} repeats itself beyond the file's size", what));
  budget_ -= items;
}

std::span<const PickleDocument::Pair> SnapshotFields::fields(const PickleValue& entry,
                                                             std::string_view what) {
  if (!entry.is_dict())
    fail(fmt::format("{} holds {} where a dict belongs", what, pickle_kind_name(entry.kind())));
  const auto pairs = document_->pairs(entry);
  if (pairs.size() > kMaxKeys)
    fail(fmt::format("{} holds a dict of more than {} keys", what, kMaxKeys));
  visit(pairs.size(), what);
  return pairs;
}

std::uint64_t SnapshotFields::number(const PickleValue& value, std::string_view key,
                                     std::string_view what) const {
  const auto found = value.as_uint64();
  if (!found) fail(fmt::format("{}: \"{}\" is missing or no number from 0 to 2^64", what, key));
  return *found;
}

std::uint64_t SnapshotFields::number_or(std::uint64_t otherwise, const PickleValue& value,
                                        std::string_view key, std::string_view what) const {
  return value.kind() == PickleValue::Kind::kNone ? otherwise : number(value, key, what);
}

std::string_view SnapshotFields::text(const PickleValue& value, std::string_view key,
                                      std::string_view what) const {
  const auto found = value.as_string();
  if (!found || found->size() > 64)
    fail(fmt::format("{}: \"{}\" is missing or no short string", what, key));
  return *found;
}

void SnapshotFields::note_unknown(const PickleValue& key, std::string_view what) {
  if (unknown_.size() >= kMaxUnknown) return;
  const auto name = key.as_string();
  const std::string shown_name =
      name ? printable(*name) : fmt::format("a key that is {}", pickle_kind_name(key.kind()));
  unknown_.insert(fmt::format("{}: {}", what, shown_name));
}

std::uint32_t SnapshotFields::read_frame(const PickleValue& value) {
  std::string_view function;
  std::string_view file;
  std::uint64_t line = 0;
  for (const auto& [key, field] : fields(value, "a frame")) {
    const auto name = key.as_string();
    if (name == "name") {
      function = field.as_string().value_or("").substr(0, kMaxText);
    } else if (name == "filename") {
      file = field.as_string().value_or("").substr(0, kMaxText);
    } else if (name == "line") {
      line = field.as_uint64().value_or(0);
    } else {
      note_unknown(key, "a frame");
    }
  }
  return sites_.add_frame(function, file,
                          line <= UINT32_MAX ? static_cast<std::uint32_t>(line) : 0);
}

std::uint32_t SnapshotFields::read_stack(const PickleValue& frames) {
  frame_numbers_.clear();
  for (const PickleValue& value : sequence(frames, "frames")) {
    if (!value.is_dict()) continue;
    const std::uint32_t number =
        once(frames_, value, [&] { return read_frame(value); });
    if (number != 0) frame_numbers_.push_back(number);
  }
  return sites_.add_stack(frame_numbers_);
}

std::uint32_t SnapshotFields::stack(const PickleValue& frames) {
  if (!frames.is_sequence()) return 0;
  return once(stacks_, frames, [&] { return read_stack(frames); });
}

std::string SnapshotFields::shown(const PickleValue& value, int depth) {
  if (const auto text = value.as_string()) return printable(*text);
  if (value.kind() == PickleValue::Kind::kBool) return value.as_int64() == 1 ? "True" : "False";
  if (const auto number = value.as_int64()) return fmt::format("{}", *number);
  if (const auto number = value.as_uint64()) return fmt::format("{}", *number);
  if (const auto number = value.as_double()) return fmt::format("{}", *number);
  if (depth >= 3) return "...";
  std::string out;
  if (value.is_dict()) {
    for (const auto& [key, field] : document_->pairs(value)) {
      if (out.size() > kMaxShown) return "{" + out + ", ...}";
      visit(1, "a setting");
      out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", shown(key, depth + 1),
                         shown(field, depth + 1));
    }
    return "{" + out + "}";
  }
  if (value.is_sequence()) {
    for (const PickleValue& item : document_->items(value)) {
      if (out.size() > kMaxShown) return "(" + out + ", ...)";
      visit(1, "a setting");
      out += fmt::format("{}{}", out.empty() ? "" : ", ", shown(item, depth + 1));
    }
    return "(" + out + ")";
  }
  return std::string(pickle_kind_name(value.kind()));
}

}  // namespace tenon
