#include "tenon/nn/data/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tenon/base/error.h"
#include "tenon/base/hash.h"
#include "tenon/base/random.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/interop/mapped_file.h"

namespace tenon::nn {

Vocabulary::Vocabulary(std::string characters) : characters_(std::move(characters)) {
  const auto code = [](char c) { return static_cast<unsigned char>(c); };
  id_of_.fill(-1);
  for (std::size_t i = 0; i < characters_.size(); ++i) {
    if (i > 0 && code(characters_[i]) <= code(characters_[i - 1]))
      throw InvalidArgument("a vocabulary's characters must rise");
    id_of_[code(characters_[i])] = static_cast<std::int16_t>(i);
  }
  if (characters_.empty()) throw InvalidArgument("a vocabulary needs at least one character");
}

Vocabulary Vocabulary::of(std::string_view text) {
  std::array<bool, 256> seen{};
  for (const char c : text) seen[static_cast<unsigned char>(c)] = true;
  std::string characters;
  for (std::size_t i = 0; i < seen.size(); ++i)
    if (seen[i]) characters.push_back(static_cast<char>(i));
  return Vocabulary(std::move(characters));
}

std::vector<std::uint8_t> Vocabulary::encode(std::string_view text) const {
  std::vector<std::uint8_t> ids;
  ids.reserve(text.size());
  for (const char c : text) {
    const std::int16_t id = id_of_[static_cast<unsigned char>(c)];
    if (id < 0)
      throw InvalidArgument(
          fmt::format("character {:?} (byte {:#04x}) is not among the {} that "
                      "the model was trained with",
                      c, static_cast<unsigned char>(c), size()));
    ids.push_back(static_cast<std::uint8_t>(id));
  }
  return ids;
}

std::string Vocabulary::decode(const std::vector<std::uint8_t>& ids) const {
  std::string text;
  for (const std::uint8_t id : ids) text.push_back(character(id));
  return text;
}

TextBatch make_text_batch(std::int64_t size, std::int64_t length) {
  return {empty({size, length}, DType::kI64), empty({size, length}, DType::kI64)};
}

void fill_text_batch(const std::vector<std::uint8_t>& text, std::uint64_t seed,
                     std::uint64_t number, const TextBatch& room,
                     const std::vector<std::int64_t>* pieces) {
  const std::int64_t length = room.input.size(1);
  const auto places = static_cast<std::int64_t>(text.size()) - length;
  if (places < 1)
    throw InvalidArgument(fmt::format("a text of {} characters for pieces of {} and the next one",
                                      text.size(), length));
  std::vector<std::int64_t> all(static_cast<std::size_t>(room.input.size(0)));
  std::iota(all.begin(), all.end(), 0);
  if (pieces == nullptr) pieces = &all;
  Random random(mix64(seed) ^ mix64(number + 1));
  std::vector<std::uint64_t> starts;
  auto* input = room.input.data_ptr<std::int64_t>();
  auto* target = room.target.data_ptr<std::int64_t>();
  for (const std::int64_t piece : *pieces) {
    while (starts.size() <= static_cast<std::size_t>(piece))
      starts.push_back(random.below(static_cast<std::uint64_t>(places)));
    const std::uint8_t* from = text.data() + starts[static_cast<std::size_t>(piece)];
    for (std::int64_t i = 0; i < length; ++i) {
      *input++ = from[i];
      *target++ = from[i + 1];
    }
  }
}

std::string read_text(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (file->size() == 0) throw ParseError(path, 0, 0, "the file is empty");
  return std::string(file->view());
}

}  // namespace tenon::nn
