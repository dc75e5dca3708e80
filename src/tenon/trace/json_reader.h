// JSON of any size, read from one end to the other without a tree of it. Not thread-safe.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tenon/trace/snapshot.h"

namespace tenon {

// Takes what stands in a JSON text, in order; each call says whether to go on. Numbers come as
// number_unsigned, number_integer (below 0) and number_float. Texts may be moved from.
class JsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonReader(const std::string& path) : path_(path) {}

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(std::int64_t /*value*/) override { return true; }
  bool number_unsigned(std::uint64_t /*value*/) override { return true; }
  bool number_float(double /*value*/, const std::string& /*digits*/) override { return true; }
  bool string(std::string& /*value*/) override { return true; }
  bool binary(nlohmann::json::binary_t& /*value*/) override { return true; }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::json::exception& error) final;

 protected:
  const std::string path_;

 private:
  friend void read_json(std::string_view, JsonReader&, const ReadHooks&);
  std::string_view bytes_;
};

// Whether the bytes begin like a list or an object of JSON.
bool looks_like_json(std::string_view bytes);

// Throws ParseError with line and column for what is no JSON. An exception of the reader ends the
// reading. O(bytes).
void read_json(std::string_view bytes, JsonReader& reader, const ReadHooks& hooks);

}  // namespace tenon
