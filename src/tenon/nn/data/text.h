// Text, by characters. Thread-safe while no thread writes the tensors. O(characters). Making memory
// for a batch throws OutOfMemory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::nn {

// The bytes that a text has, numbered in order.
class Vocabulary {
 public:
  // Throws InvalidArgument for an empty text.
  static Vocabulary of(std::string_view text);
  // From its characters in order, as a file keeps them. Throws InvalidArgument unless they rise.
  explicit Vocabulary(std::string characters);

  // How many there are, and which, in order.
  std::int64_t size() const { return static_cast<std::int64_t>(characters_.size()); }
  const std::string& characters() const { return characters_; }
  // Throw InvalidArgument for a byte that the text did not have, std::out_of_range for another id.
  std::vector<std::uint8_t> encode(std::string_view text) const;
  std::string decode(const std::vector<std::uint8_t>& ids) const;
  char character(std::int64_t id) const { return characters_.at(static_cast<std::size_t>(id)); }

 private:
  std::string characters_;
  std::array<std::int16_t, 256> id_of_;  // -1: not there
};

// Pieces of a text and, for each place, what comes next.
struct TextBatch {
  Tensor input;   // i64 [n, length]
  Tensor target;  // i64 [n, length]
};
// Room for `size` pieces of `length` characters.
TextBatch make_text_batch(std::int64_t size, std::int64_t length);
// Pieces that begin at places drawn from the seed and the batch's number. `pieces`: which of the
// batch's, at most as many as there is room for; null: from the first, as many as there is room
// for. Throws InvalidArgument where the text is shorter than a piece and the character after it.
void fill_text_batch(const std::vector<std::uint8_t>& text, std::uint64_t seed,
                     std::uint64_t number, const TextBatch& room,
                     const std::vector<std::int64_t>* pieces = nullptr);

// A file's bytes. Throws ParseError, with the path, for one that is missing, unreadable or empty.
std::string read_text(const std::string& path);

}  // namespace tenon::nn
