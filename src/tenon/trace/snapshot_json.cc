#include "tenon/trace/snapshot_json.h"

#include <bit>
#include <cstdint>
#include <vector>

#include "tenon/trace/json_reader.h"
#include "tenon/trace/pickle_opcodes.h"

namespace tenon {
namespace {

// Lists get their items one by one, so that a PickleSink does; dicts are filled above a mark, which
// tells the reader that what stands there is inside an item.
class Pickler final : public JsonReader {
 public:
  explicit Pickler(const std::string& path) : JsonReader(path) { out_ = "\x80\x04"; }

  std::string take() {
    byte(pickle::kStop);
    return std::move(out_);
  }

  bool null() override {
    byte(pickle::kNone);
    return done();
  }
  bool boolean(bool value) override {
    byte(value ? pickle::kNewTrue : pickle::kNewFalse);
    return done();
  }
  bool number_integer(std::int64_t value) override {
    byte(pickle::kLong1);
    byte(8);
    bytes(static_cast<std::uint64_t>(value), 8);
    return done();
  }
  bool number_unsigned(std::uint64_t value) override {
    if (value < 256) {
      byte(pickle::kBinInt1);
      byte(static_cast<std::uint8_t>(value));
      return done();
    }
    byte(pickle::kLong1);
    byte(9);  // the last one of which says that it is not below 0
    bytes(value, 8);
    byte(0);
    return done();
  }
  bool number_float(double value, const std::string& /*digits*/) override {
    byte(pickle::kBinFloat);
    const auto bits = std::bit_cast<std::uint64_t>(value);
    for (int shift = 56; shift >= 0; shift -= 8) byte(static_cast<std::uint8_t>(bits >> shift));
    return done();
  }
  bool string(std::string& value) override {
    text(value);
    return done();
  }
  bool start_object(std::size_t /*size*/) override {
    byte(pickle::kEmptyDict);
    byte(pickle::kMark);
    in_list_.push_back(false);
    return true;
  }
  bool end_object() override {
    byte(pickle::kSetItems);
    in_list_.pop_back();
    return done();
  }
  bool start_array(std::size_t /*size*/) override {
    byte(pickle::kEmptyList);
    in_list_.push_back(true);
    return true;
  }
  bool end_array() override {
    in_list_.pop_back();
    return done();
  }
  bool key(std::string& name) override {
    text(name);
    return true;
  }

 private:
  void byte(std::uint8_t value) { out_ += static_cast<char>(value); }
  void bytes(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) byte(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  void text(std::string_view value) {
    byte(pickle::kBinUnicode8);
    bytes(value.size(), 8);
    out_ += value;
  }
  bool done() {
    if (!in_list_.empty() && in_list_.back()) byte(pickle::kAppend);
    return true;
  }

  std::string out_;
  std::vector<bool> in_list_;  // of the containers that are open: whether it is a list
};

}  // namespace

std::string pickle_of_json(std::string_view bytes, const std::string& path,
                           const ReadHooks& hooks) {
  Pickler pickler(path);
  read_json(bytes, pickler, hooks);
  return pickler.take();
}

}  // namespace tenon
