// What `tenon train --save` wrote, read again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tenon/nn/data/text.h"
#include "tenon/nn/models.h"
#include "tenon/nn/state.h"

namespace tenon::command {

// A number of a file's metadata. Throws ParseError, naming the file and the key, where it is
// missing or no number.
std::uint64_t metadata_number(const nn::Metadata& metadata, const std::string& key,
                              const std::string& path);
// The same for a finite number, as C writes doubles.
double metadata_real(const nn::Metadata& metadata, const std::string& key, const std::string& path);
const std::string& metadata_text(const nn::Metadata& metadata, const std::string& key,
                                 const std::string& path);

// A vocabulary as metadata have it: two hexadecimal digits for each character.
std::string vocabulary_text(const nn::Vocabulary& vocabulary);

// A model of a saved text run, with its vocabulary.
struct TextModel {
  std::shared_ptr<nn::CharGpt> model;
  nn::Vocabulary vocabulary;
};
// Of the file of a run in one process. Throws ParseError for another file.
TextModel load_text_model(const std::string& path);
// Of a run with these metadata and number of elements; `load` fills the model from `path`.
TextModel load_text_model(const std::string& path, const nn::Metadata& metadata,
                          std::uint64_t saved_parameters,
                          const std::function<void(nn::Module&)>& load);

// The sizes that a saved text run says it has, except its vocabulary. Throws ParseError, naming
// the file, where they are no model's, or one that the numbers in the file's tensors cannot fill.
nn::GptOptions saved_gpt_options(const nn::Metadata& metadata, const std::string& path,
                                 std::uint64_t saved_parameters);

}  // namespace tenon::command
