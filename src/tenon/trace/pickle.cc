#include "tenon/trace/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/read_limit.h"
#include "tenon/trace/pickle_opcodes.h"
#include "tenon/trace/pickle_uses.h"

namespace tenon {

namespace {
// Deeper than any snapshot by far; Python's own pickler gives up at about 1000 levels.
constexpr std::size_t kMaxDepth = 10'000;
constexpr int kNewestProtocol = 5;
}  // namespace

std::string_view pickle_kind_name(PickleValue::Kind kind) {
  static constexpr std::array<std::string_view, 11> kNames = {
      "None",  "a bool",  "an int", "an int",  "a float", "a str",
      "bytes", "a list", "a tuple", "a set", "a dict"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<std::int64_t> PickleValue::as_int64() const {
  if (kind_ != Kind::kInteger && kind_ != Kind::kBool) return std::nullopt;
  const auto value = static_cast<std::int64_t>(bits_);
  if (!negative_ && value < 0) return std::nullopt;
  return value;
}

std::optional<double> PickleValue::as_double() const {
  if (kind_ == Kind::kFloat) return real_;
  if (kind_ != Kind::kInteger && kind_ != Kind::kBool) return std::nullopt;
  return negative_ ? static_cast<double>(static_cast<std::int64_t>(bits_))
                   : static_cast<double>(bits_);
}

// The pickle machine: a stack of values, a stack of marks, a memo.
class PickleReader {
 public:
  using Kind = PickleValue::Kind;

  PickleReader(std::string_view bytes, std::string name, PickleDocument& document,
               PickleSink* sink)
      : bytes_(checked(bytes, name)),
        name_(std::move(name)),
        document_(document),
        sink_(sink),
        uses_(bytes, [sink](std::size_t offset) {
          if (sink != nullptr) sink->passed(offset, /*first_time=*/true);
        }),
        limit_bytes_(read_limit_bytes(bytes.size())) {
    charge(uses_.count() * sizeof memo_[0]);
    memo_.resize(uses_.count());
  }

  PickleValue read() {
    for (;;) {
      start_ = at_;
      if (sink_ != nullptr && at_ >= next_report_) {
        sink_->passed(at_, /*first_time=*/false);
        next_report_ = at_ + kPickleReportBytes;
      }
      if (at_ == bytes_.size()) fail("the file ends before the pickle does: it is truncated");
      const auto opcode = static_cast<std::uint8_t>(bytes_[at_++]);
      if (opcode == pickle::kStop) break;
      if (step_often(opcode)) continue;
      if (!step_scalar(opcode) && !step_text(opcode) && !step_container(opcode) &&
          !step_machine(opcode)) {
        const pickle::Refusal refused = pickle::refusal(opcode);
        fail(fmt::format("{} {}: this reader takes plain data only",
                         refused.name.empty() ? "it" : refused.name, refused.reason));
      }
    }
    if (!marks_.empty() || stack_.size() != 1)
      fail(fmt::format("STOP with {} values and {} open marks", stack_.size(), marks_.size()));
    return stack_.back();
  }

 private:
  // Before the first pass, which takes time in proportion to the file.
  static std::string_view checked(std::string_view bytes, const std::string& name) {
    constexpr std::string_view kRemedy = "write it with torch.cuda.memory._dump_snapshot";
    if (bytes.starts_with("PK\x03\x04"))
      throw ParseError(name, 0, 0,
                       fmt::format("is a zip archive, as torch.save writes: {}", kRemedy));
    if (!looks_like_pickle(bytes))
      throw ParseError(name, 0, 0,
                       fmt::format("is no pickle of protocol 2 or later: {}", kRemedy));
    return bytes;
  }
  [[noreturn]] void fail(const std::string& reason) const {
    const std::string opcode =
        start_ < bytes_.size()
            ? fmt::format("opcode 0x{:02x} ", static_cast<std::uint8_t>(bytes_[start_]))
            : std::string();
    throw ParseError(name_, 0, 0, fmt::format("{}at byte offset {}: {}", opcode, start_, reason));
  }

  // --- Memory, of which a file may take so much and no more.
  void charge(std::uint64_t bytes) {
    held_bytes_ += bytes;
    if (held_bytes_ <= limit_bytes_) return;
    fail(fmt::format("its {} take more than {} of memory: {}", format_byte_size(bytes_.size()),
                     format_byte_size(limit_bytes_), how_to_raise(limit_bytes_)));
  }
  // Room for `more` items, exactly so many in a list that is filled at once.
  template <typename Items>
  void make_room(Items& items, std::size_t more) {
    const std::size_t wanted = items.size() + more;
    if (wanted <= items.capacity()) return;
    const std::size_t room = std::max(wanted, 2 * items.capacity());
    const std::uint64_t old_bytes = items.capacity() * sizeof items[0];
    charge(room * sizeof items[0]);  // both are there while one is copied to the other
    items.reserve(room);
    held_bytes_ -= old_bytes;
  }

  // --- Bytes of the file.
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_)
      fail(fmt::format("{} bytes are claimed and {} are left: the file is truncated or damaged",
                       count, bytes_.size() - at_));
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  std::uint64_t take_number(int width) {
    const std::string_view taken = take(static_cast<std::uint64_t>(width));
    std::uint64_t value = 0;  // little-endian
    for (std::size_t i = taken.size(); i-- > 0;)
      value = value << 8 | static_cast<std::uint8_t>(taken[i]);
    return value;
  }
  // Little-endian; bytes behind the end count as 0.
  std::uint64_t number_at(std::size_t offset, int width) const {
    std::uint64_t value = 0;
    for (std::size_t i = static_cast<std::size_t>(width); i-- > 0;)
      value = value << 8 |
              (offset + i < bytes_.size() ? static_cast<std::uint8_t>(bytes_[offset + i]) : 0);
    return value;
  }

  // --- The stack, of which only what lies above the last mark can be reached.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void push(const PickleValue& value) {
    if (stack_.size() == stack_.capacity()) [[unlikely]] make_room(stack_, 1);
    stack_.push_back(value);
  }
  PickleValue pop() {
    if (stack_.size() <= floor()) fail("the stack is empty");
    const PickleValue value = stack_.back();
    drop(1);
    return value;
  }
  PickleValue& top() {
    if (stack_.size() <= floor()) fail("the stack is empty");
    return stack_.back();
  }
  // The values above the last mark; the mark goes.
  std::span<const PickleValue> above_mark() {
    if (marks_.empty()) fail("there is no mark");
    const std::size_t from = marks_.back();
    marks_.pop_back();
    return std::span(stack_).subspan(from);
  }
  void drop(std::size_t count) {
    end_stream(stack_.size() - count);
    stack_.resize(stack_.size() - count);
  }

  // --- Making values.
  void push_integer(std::uint64_t bits, bool negative) {
    PickleValue value;
    value.kind_ = Kind::kInteger;
    value.bits_ = bits;
    value.negative_ = negative;
    push(value);
  }
  void push_bool(bool truth) {
    PickleValue value;
    value.kind_ = Kind::kBool;
    value.bits_ = truth ? 1 : 0;
    push(value);
  }
  void push_text(Kind kind, std::uint64_t length) {
    const std::string_view text = take(length);
    PickleValue value;
    value.kind_ = kind;
    value.bits_ = length;
    value.text_ = text.data();
    push(value);
  }
  // Little-endian two's complement of any length.
  void push_long(std::uint64_t length) {
    const std::string_view digits = take(length);
    const bool negative = length > 0 && (digits.back() & 0x80) != 0;
    std::uint64_t bits = negative ? ~std::uint64_t{0} : 0;
    bool fits = true;
    for (std::size_t i = digits.size(); i-- > 0;) {
      const auto digit = static_cast<std::uint8_t>(digits[i]);
      if (i >= 8) {
        fits = fits && digit == (negative ? 0xff : 0);
      } else {
        bits = bits << 8 | digit;
      }
    }
    if (negative && length > 8) fits = fits && static_cast<std::int64_t>(bits) < 0;
    push_integer(bits, negative);
    if (!fits) stack_.back().kind_ = Kind::kBigInteger;
  }
  // Whether the file refers to the value made now again: then a memo opcode follows.
  bool is_used_again() const {
    if (at_ == bytes_.size()) return false;
    switch (static_cast<std::uint8_t>(bytes_[at_])) {
      case pickle::kMemoize: return uses_.contains(memo_size_);
      case pickle::kBinPut: return uses_.contains(number_at(at_ + 1, 1));
      case pickle::kLongBinPut: return uses_.contains(number_at(at_ + 1, 4));
      default: return false;
    }
  }
  bool is_passing() const { return streaming() && !is_used_again(); }

  std::vector<PickleValue>& items_of(const PickleValue& value) {
    return value.is_passing()
               ? document_.passing_sequences_.all[value.bits_ & ~PickleValue::kPassing]
               : document_.sequences_[value.bits_];
  }
  std::vector<PickleDocument::Pair>& pairs_of(const PickleValue& value) {
    return value.is_passing() ? document_.passing_dicts_.all[value.bits_ & ~PickleValue::kPassing]
                              : document_.dicts_[value.bits_];
  }

  // The number of a new, empty container.
  template <typename Items>
  std::uint64_t make(std::deque<Items>& staying, PickleDocument::Pool<Items>& passing,
                     bool is_passing) {
    if (!is_passing) {
      charge(sizeof(Items));
      staying.emplace_back();
      return staying.size() - 1;
    }
    if (passing.used == passing.all.size()) {
      charge(sizeof(Items));
      passing.all.emplace_back();
    }
    passing.all[passing.used].clear();
    return passing.used++ | PickleValue::kPassing;
  }

  void push_sequence(Kind kind, std::span<const PickleValue> items) {
    PickleValue value;
    value.kind_ = kind;
    value.bits_ = make(document_.sequences_, document_.passing_sequences_, is_passing());
    std::vector<PickleValue>& own = items_of(value);
    make_room(own, items.size());
    own.assign(items.begin(), items.end());
    if (!value.is_passing())
      for (PickleValue& item : own) item = staying(item);
    push(value);
  }
  void push_dict() {
    PickleValue value;
    value.kind_ = Kind::kDict;
    value.bits_ = make(document_.dicts_, document_.passing_dicts_, is_passing());
    push(value);
  }

  // The value, moved to the containers that stay with all that it holds: something that stays is
  // about to hold it.
  PickleValue staying(const PickleValue& value) {
    if (!is_passing_container(value)) return value;
    std::vector<PickleValue> todo;
    const PickleValue moved = moved_over(value, todo);
    while (!todo.empty()) {
      const PickleValue next = todo.back();
      todo.pop_back();
      if (next.is_dict()) {
        for (auto& [key, field] : document_.dicts_[next.bits_]) {
          key = moved_over(key, todo);
          field = moved_over(field, todo);
        }
      } else {
        for (PickleValue& item : document_.sequences_[next.bits_]) item = moved_over(item, todo);
      }
    }
    return moved;
  }
  static bool is_passing_container(const PickleValue& value) {
    return (value.is_dict() || value.is_sequence()) && value.is_passing();
  }
  PickleValue moved_over(const PickleValue& value, std::vector<PickleValue>& todo) {
    if (!is_passing_container(value)) return value;
    const auto key = std::pair(value.is_dict(), value.bits_);
    PickleValue moved = value;
    if (const auto known = moved_.find(key); known != moved_.end()) {
      moved.bits_ = known->second;
      return moved;
    }
    if (value.is_dict()) {
      document_.dicts_.push_back(std::move(pairs_of(value)));
      moved.bits_ = document_.dicts_.size() - 1;
    } else {
      document_.sequences_.push_back(std::move(items_of(value)));
      moved.bits_ = document_.sequences_.size() - 1;
    }
    moved_.emplace(key, moved.bits_);
    todo.push_back(moved);
    return moved;
  }

  // --- Lists that are handed over item by item.
  bool streaming() const { return stream_at_ != kNowhere; }

  // A list was pushed. Where is it? Picklers fill a container of one item without a mark, and
  // larger ones above a mark: [root] (mark) key value ... key [outer] (mark) inner ... [list].
  void ask_sink() {
    const std::size_t place = stack_.size() - 1;
    if (streaming()) {
      if (!marks_.empty() && marks_.back() > stream_at_) return;  // inside an item
      // Beside the list handed over: an item of its own, unless its siblings stand above a mark.
      if (place == stream_at_ + 1 && !stream_has_siblings_) return;
      // Fields that came after that list are of the document.
      for (std::size_t i = stream_at_ + 1; i < stack_.size(); ++i) stack_[i] = staying(stack_[i]);
      end_stream(stream_at_);
    }
    if (place < 2 || stack_[0].kind_ != Kind::kDict) return;
    const bool marked_root = !marks_.empty() && marks_[0] == 1;
    const std::size_t more = marks_.size() - (marked_root ? 1 : 0);
    if (more > 1) return;
    std::size_t outer = place;
    if (more == 1) {
      outer = marks_.back() - 1;
    } else if (stack_[place - 1].kind_ == Kind::kList) {
      outer = place - 1;
    }
    if (outer < 2 || outer % 2 != 0 || (!marked_root && outer != 2)) return;
    const auto key = stack_[outer - 1].as_string();
    if (!key || stack_[outer].kind_ != Kind::kList) return;
    std::optional<std::size_t> index;
    if (outer != place)
      index = items_of(stack_[outer]).size() + (more == 1 ? place - marks_.back() : 0);
    if (!sink_->wants(*key, index)) return;
    stream_at_ = place;
    stream_has_siblings_ = more == 1;
  }
  void hand_over(std::span<const PickleValue> items) {
    for (const PickleValue& item : items) sink_->item(document_, item);
    stack_.resize(stream_at_ + 1);
    forget_passing();
  }
  void forget_passing() {
    document_.passing_sequences_.used = 0;
    document_.passing_dicts_.used = 0;
    moved_.clear();
  }
  // Values are about to leave the stack, down to this size.
  void end_stream(std::size_t size) {
    if (!streaming() || size > stream_at_) return;
    stream_at_ = kNowhere;
    forget_passing();
  }

  void extend(Kind kind, std::span<const PickleValue> items) {
    // `items` lie on the stack; the container is the value below them.
    if (stack_.size() < floor() + items.size() + 1) fail("the stack is empty");
    const std::size_t place = stack_.size() - items.size() - 1;
    const PickleValue& target = stack_[place];
    if (target.kind_ != kind)
      fail(fmt::format("{} is needed and {} is there", pickle_kind_name(kind),
                       pickle_kind_name(target.kind_)));
    if (place == stream_at_) return hand_over(items);
    const bool stays = streaming() && !target.is_passing();
    if (kind == Kind::kDict) {
      if (items.size() % 2 != 0) fail("a key without a value");
      auto& pairs = pairs_of(target);
      make_room(pairs, items.size() / 2);
      for (std::size_t i = 0; i < items.size(); i += 2)
        pairs.emplace_back(stays ? staying(items[i]) : items[i],
                           stays ? staying(items[i + 1]) : items[i + 1]);
    } else {
      auto& sequence = items_of(target);
      make_room(sequence, items.size());
      for (const PickleValue& item : items) sequence.push_back(stays ? staying(item) : item);
    }
    drop(items.size());
  }
  std::span<const PickleValue> top_items(std::size_t count) {
    if (stack_.size() < floor() + count) fail("the stack is empty");
    return std::span(stack_).last(count);
  }

  // Most of a snapshot: references to keys and frames, small numbers. Checked like all others.
  bool step_often(std::uint8_t opcode) {
    switch (opcode) {
      case pickle::kBinGet: get(take_number(1)); return true;
      case pickle::kLongBinGet: get(take_number(4)); return true;
      case pickle::kMemoize: put(memo_size_); return true;
      case pickle::kBinInt1: push_integer(take_number(1), false); return true;
      default: return false;
    }
  }

  // --- The opcodes, by family; each step says whether the opcode was one of its own.
  bool step_scalar(std::uint8_t opcode) {
    switch (opcode) {
      case pickle::kNone: push({}); return true;
      case pickle::kNewTrue: push_bool(true); return true;
      case pickle::kNewFalse: push_bool(false); return true;
      case pickle::kBinInt: {
        const auto value = static_cast<std::int32_t>(take_number(4));
        push_integer(static_cast<std::uint64_t>(static_cast<std::int64_t>(value)), value < 0);
        return true;
      }
      case pickle::kBinInt2: push_integer(take_number(2), false); return true;
      case pickle::kLong1: push_long(take_number(1)); return true;
      case pickle::kLong4: push_long(take_number(4)); return true;
      case pickle::kBinFloat: {
        std::uint64_t bits = 0;
        for (const char c : take(8)) bits = bits << 8 | static_cast<std::uint8_t>(c);
        PickleValue value;
        value.kind_ = Kind::kFloat;
        value.real_ = std::bit_cast<double>(bits);
        push(value);
        return true;
      }
      default: return false;
    }
  }

  bool step_text(std::uint8_t opcode) {
    switch (opcode) {
      case pickle::kShortBinString:
      case pickle::kShortBinUnicode: push_text(Kind::kString, take_number(1)); return true;
      case pickle::kBinString:
      case pickle::kBinUnicode: push_text(Kind::kString, take_number(4)); return true;
      case pickle::kBinUnicode8: push_text(Kind::kString, take_number(8)); return true;
      case pickle::kShortBinBytes: push_text(Kind::kBytes, take_number(1)); return true;
      case pickle::kBinBytes: push_text(Kind::kBytes, take_number(4)); return true;
      case pickle::kBinBytes8:
      case pickle::kByteArray8: push_text(Kind::kBytes, take_number(8)); return true;
      default: return false;
    }
  }

  bool step_container(std::uint8_t opcode) {
    switch (opcode) {
      case pickle::kEmptyList:
        push_sequence(Kind::kList, {});
        if (sink_ != nullptr) ask_sink();
        return true;
      case pickle::kEmptyTuple: push_sequence(Kind::kTuple, {}); return true;
      case pickle::kEmptySet: push_sequence(Kind::kSet, {}); return true;
      case pickle::kEmptyDict: push_dict(); return true;
      case pickle::kAppend: extend(Kind::kList, top_items(1)); return true;
      case pickle::kAppends: extend(Kind::kList, above_mark()); return true;
      case pickle::kAddItems: extend(Kind::kSet, above_mark()); return true;
      case pickle::kSetItem: extend(Kind::kDict, top_items(2)); return true;
      case pickle::kSetItems: extend(Kind::kDict, above_mark()); return true;
      case pickle::kList: collect(Kind::kList, above_mark()); return true;
      case pickle::kTuple: collect(Kind::kTuple, above_mark()); return true;
      case pickle::kFrozenSet: collect(Kind::kSet, above_mark()); return true;
      case pickle::kTuple1: collect(Kind::kTuple, top_items(1)); return true;
      case pickle::kTuple2: collect(Kind::kTuple, top_items(2)); return true;
      case pickle::kTuple3: collect(Kind::kTuple, top_items(3)); return true;
      case pickle::kDict: {
        const std::vector<PickleValue> items = copy_and_drop(above_mark());
        push_dict();
        make_room(stack_, items.size());
        stack_.insert(stack_.end(), items.begin(), items.end());
        extend(Kind::kDict, top_items(items.size()));
        return true;
      }
      default: return false;
    }
  }

  std::vector<PickleValue> copy_and_drop(std::span<const PickleValue> items) {
    charge(2 * items.size_bytes());  // with the container that is made of the copy
    held_bytes_ -= 2 * items.size_bytes();
    std::vector<PickleValue> copy(items.begin(), items.end());
    // Where the list that is handed over goes as well, what lies above it must not.
    if (streaming() && stack_.size() - copy.size() <= stream_at_)
      for (PickleValue& value : copy) value = staying(value);
    drop(copy.size());
    return copy;
  }
  // Replaces the values by one sequence of them.
  void collect(Kind kind, std::span<const PickleValue> items) {
    const std::vector<PickleValue> copy = copy_and_drop(items);
    push_sequence(kind, copy);
  }

  bool step_machine(std::uint8_t opcode) {
    switch (opcode) {
      case pickle::kMark:
        if (marks_.size() == kMaxDepth) fail(fmt::format("more than {} levels deep", kMaxDepth));
        marks_.push_back(stack_.size());
        return true;
      case pickle::kPop:
        if (!marks_.empty() && stack_.size() == marks_.back()) {
          marks_.pop_back();
        } else {
          pop();
        }
        return true;
      case pickle::kPopMark: drop(above_mark().size()); return true;
      case pickle::kDup: push(PickleValue(top())); return true;
      case pickle::kBinPut: put(take_number(1)); return true;
      case pickle::kLongBinPut: put(take_number(4)); return true;
      case pickle::kProto: {
        const std::uint64_t protocol = take_number(1);
        if (protocol > kNewestProtocol)
          fail(fmt::format("protocol {} is newer than {}, the newest that is read", protocol,
                           kNewestProtocol));
        return true;
      }
      // A frame is a hint for readers of streams: its bytes follow as they are.
      case pickle::kFrame: {
        const std::uint64_t length = take_number(8);
        if (length > bytes_.size() - at_)
          fail(fmt::format("a frame of {} bytes, with {} left: the file is truncated", length,
                           bytes_.size() - at_));
        return true;
      }
      default: return false;
    }
  }

  void get(std::uint64_t number) {
    if (uses_.contains(number)) [[likely]] {
      const std::optional<PickleValue>& known = memo_[uses_.place(number)];
      if (known) [[likely]] return push(*known);
    }
    fail(fmt::format("memo entry {} was never set", number));
  }
  void put(std::uint64_t number) {
    // Picklers number from 0 and need a byte or more for each entry.
    if (number > at_) fail(fmt::format("memo entry {} of a file that has no so many", number));
    memo_size_ = std::max<std::uint64_t>(memo_size_, number + 1);
    // What was made before it was known to be used again (a value on which something was done
    // first) stays from now on.
    if (uses_.contains(number)) memo_[uses_.place(number)] = top() = staying(top());
  }

  const std::string_view bytes_;
  const std::string name_;
  PickleDocument& document_;
  std::uint64_t held_bytes_ = 0;  // by the stack, the memo and all containers
  std::size_t at_ = 0;     // next byte
  std::size_t start_ = 0;  // of the current opcode
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  PickleSink* const sink_;
  const PickleUses uses_;
  const std::uint64_t limit_bytes_;
  std::vector<std::optional<PickleValue>> memo_;  // of the numbers that are used, by their place
  std::uint64_t memo_size_ = 0;                   // the number that MEMOIZE gives next
  std::size_t stream_at_ = kNowhere;              // place of the list that is handed over
  bool stream_has_siblings_ = false;
  std::size_t next_report_ = 0;
  std::map<std::pair<bool, std::uint64_t>, std::uint64_t> moved_;  // passing to staying containers
};

PickleDocument::PickleDocument(std::string_view bytes, std::string name, PickleSink* sink) {
  root_ = PickleReader(bytes, std::move(name), *this, sink).read();
}

std::span<const PickleValue> PickleDocument::items(const PickleValue& sequence) const {
  if (sequence.is_passing())
    return passing_sequences_.all.at(sequence.bits_ & ~PickleValue::kPassing);
  return sequences_.at(sequence.bits_);
}

std::span<const PickleDocument::Pair> PickleDocument::pairs(const PickleValue& dict) const {
  if (dict.is_passing()) return passing_dicts_.all.at(dict.bits_ & ~PickleValue::kPassing);
  return dicts_.at(dict.bits_);
}

const PickleValue* PickleDocument::find(const PickleValue& dict, std::string_view key) const {
  const auto all = pairs(dict);
  for (auto pair = all.rbegin(); pair != all.rend(); ++pair)
    if (pair->first.as_string() == key) return &pair->second;
  return nullptr;
}

bool looks_like_pickle(std::string_view bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x80' && bytes[1] >= 2;
}

}  // namespace tenon
