#include "saved_run.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "tenon/base/error.h"
#include "tenon/base/random.h"

namespace tenon::command {
namespace {

std::string from_hex(const std::string& text, const std::string& path) {
  const auto digit = [&](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    throw ParseError(path, 0, 0, "its vocabulary is damaged");
  };
  if (text.size() % 2 != 0) throw ParseError(path, 0, 0, "its vocabulary is damaged");
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1])));
  return bytes;
}

nn::Vocabulary saved_vocabulary(const nn::Metadata& metadata, const std::string& path) {
  try {
    return nn::Vocabulary(from_hex(metadata_text(metadata, "vocabulary", path), path));
  } catch (const InvalidArgument& error) {
    throw ParseError(path, 0, 0, fmt::format("its vocabulary is damaged: {}", error.what()));
  }
}

}  // namespace

const std::string& metadata_text(const nn::Metadata& metadata, const std::string& key,
                                 const std::string& path) {
  const auto found = metadata.find(key);
  if (found == metadata.end())
    throw ParseError(
        path, 0, 0,
        fmt::format("its metadata have no \"{}\": it was not saved by tenon train", key));
  return found->second;
}

std::uint64_t metadata_number(const nn::Metadata& metadata, const std::string& key,
                              const std::string& path) {
  const std::string& text = metadata_text(metadata, key, path);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw ParseError(path, 0, 0, fmt::format("its \"{}\" is \"{}\", no number", key, text));
  return number;
}

double metadata_real(const nn::Metadata& metadata, const std::string& key,
                     const std::string& path) {
  const std::string& text = metadata_text(metadata, key, path);
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || end != text.c_str() + text.size() || !std::isfinite(number))
    throw ParseError(path, 0, 0, fmt::format("its \"{}\" is \"{}\", no number", key, text));
  return number;
}

std::string vocabulary_text(const nn::Vocabulary& vocabulary) {
  std::string text;
  for (const char c : vocabulary.characters())
    text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

nn::GptOptions saved_gpt_options(const nn::Metadata& metadata, const std::string& path,
                                 std::uint64_t saved_parameters) {
  const auto number = [&](const char* key) {
    constexpr std::uint64_t kMost = 1 << 20;
    const std::uint64_t value = metadata_number(metadata, key, path);
    if (value < 1 || value > kMost)
      throw ParseError(path, 0, 0,
                       fmt::format("its \"{}\" is {}; it may be 1 to {}", key, value, kMost));
    return static_cast<std::int64_t>(value);
  };
  nn::GptOptions gpt;
  gpt.length = number("length");
  gpt.layers = number("layers");
  gpt.width = number("width");
  gpt.heads = number("heads");
  if (gpt.width % gpt.heads != 0)
    throw ParseError(path, 0, 0, fmt::format("its {} heads do not divide its width of {}",
                                             gpt.heads, gpt.width));
  // Each block has matrices of 3, 1, 4 and 4 times the width's square; before anything is built.
  const auto width = static_cast<double>(gpt.width);
  const double needed = width * (12 * static_cast<double>(gpt.layers) * width +
                                 static_cast<double>(gpt.length));
  const auto held = static_cast<double>(saved_parameters);
  if (needed > held)
    throw ParseError(path, 0, 0,
                     fmt::format("its tensors hold {:.0f} numbers; a model of {} layers of width "
                                 "{} and length {} has at least {:.0f}",
                                 held, gpt.layers, gpt.width, gpt.length, needed));
  return gpt;
}

TextModel load_text_model(const std::string& path) {
  const nn::Metadata metadata = nn::load_metadata(path);
  return load_text_model(path, metadata, nn::count_saved_parameters(path),
                         [&](nn::Module& model) { nn::load_state(path, model); });
}

TextModel load_text_model(const std::string& path, const nn::Metadata& metadata,
                          std::uint64_t saved_parameters,
                          const std::function<void(nn::Module&)>& load) {
  if (metadata_text(metadata, "task", path) != "text")
    throw ParseError(path, 0, 0, "it holds no model of a text: train one with tenon train text");
  nn::Vocabulary vocabulary = saved_vocabulary(metadata, path);
  nn::GptOptions gpt = saved_gpt_options(metadata, path, saved_parameters);
  gpt.vocabulary = vocabulary.size();
  Generator generator;
  auto model = std::make_shared<nn::CharGpt>(gpt, generator);
  load(*model);
  model->eval();
  return {std::move(model), std::move(vocabulary)};
}

}  // namespace tenon::command
