// Writes pickles of plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tenon {

// Protocol 4 without frames, in opcodes that PyTorch's viewer knows as well as Python. Containers
// are opened, filled and closed; lists hand over their items in batches, since some readers put a
// batch on their stack. Strings, and whatever remember() names, are written once and referred to.
class PickleWriter {
 public:
  PickleWriter();

  void number(std::uint64_t value);
  void boolean(bool value);
  void real(double value);
  void text(std::string_view value);  // at most 255 bytes are written
  void begin_dict();
  void end_dict();
  void begin_list();
  void end_list();
  // Requires: inside a dict; the value follows.
  void key(std::string_view name) { text(name); }
  void pair_of_numbers(std::uint64_t first, std::uint64_t second);  // a tuple
  // Call before each item of the list that is open.
  void next_item();

  // A value under a name of the caller's: true when it was written before and is referred to now,
  // else the caller writes it and then calls remember.
  bool refer(std::uint64_t name);
  void remember(std::uint64_t name);

  std::string finish();

 private:
  void byte(unsigned value) { out_ += static_cast<char>(value); }
  void bytes(std::uint64_t value, int width);
  void get(std::uint32_t memo);

  std::string out_;
  std::uint32_t memo_ = 0;
  std::unordered_map<std::string, std::uint32_t> texts_;
  std::unordered_map<std::uint64_t, std::uint32_t> names_;
  std::vector<std::size_t> items_;  // of the lists that are open, in the current batch
};

}  // namespace tenon
