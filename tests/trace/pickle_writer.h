// Writes the pickles that tests need: plain data, protocol 2.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::testing::pickled {

inline std::string text(std::string_view value) {
  return std::string("\x8c") + static_cast<char>(value.size()) + std::string(value);
}
inline std::string number(std::uint64_t value) {
  std::string out = {'\x8a', '\x09'};
  for (int i = 0; i < 8; ++i) out += static_cast<char>(value >> (8 * i));
  return out + '\0';
}
inline std::string list(const std::vector<std::string>& items) {
  std::string out = "](";
  for (const std::string& item : items) out += item;
  return out + "e";
}
inline std::string dict(const std::vector<std::pair<std::string_view, std::string>>& pairs) {
  std::string out = "}(";
  for (const auto& [key, value] : pairs) out += text(key) + value;
  return out + "u";
}
inline std::string file(const std::string& value) { return "\x80\x04" + value + "."; }

// A snapshot's parts.
inline std::string entry(std::string_view action, std::uint64_t address, std::uint64_t size,
                         std::uint64_t time_us = 0, std::uint64_t stream = 0) {
  return dict({{"action", text(action)},
               {"addr", number(address)},
               {"size", number(size)},
               {"stream", number(stream)},
               {"time_us", number(time_us)}});
}
inline std::string frame(std::string_view function, std::string_view file_name,
                         std::uint64_t line) {
  return dict({{"name", text(function)}, {"filename", text(file_name)}, {"line", number(line)}});
}
// With further fields, like {"frames", list({frame(...)})}.
inline std::string entry_with(
    std::string_view action, std::uint64_t address, std::uint64_t size, std::uint64_t time_us,
    const std::vector<std::pair<std::string_view, std::string>>& more) {
  std::vector<std::pair<std::string_view, std::string>> fields = {{"action", text(action)},
                                                                  {"addr", number(address)},
                                                                  {"size", number(size)},
                                                                  {"stream", number(0)},
                                                                  {"time_us", number(time_us)}};
  fields.insert(fields.end(), more.begin(), more.end());
  return dict(fields);
}
inline std::string block(std::uint64_t address, std::uint64_t size, std::string_view state) {
  return dict({{"address", number(address)},
               {"size", number(size)},
               {"requested_size", number(size)},
               {"state", text(state)}});
}
inline std::string segment(std::uint64_t device, std::uint64_t address, std::uint64_t size,
                           const std::vector<std::string>& blocks) {
  return dict({{"device", number(device)},
               {"address", number(address)},
               {"total_size", number(size)},
               {"allocated_size", number(0)},
               {"stream", number(0)},
               {"blocks", list(blocks)}});
}
inline std::string snapshot(const std::vector<std::string>& segments,
                            const std::vector<std::vector<std::string>>& devices) {
  std::vector<std::string> traces;
  for (const auto& entries : devices) traces.push_back(list(entries));
  return file(dict({{"segments", list(segments)}, {"device_traces", list(traces)}}));
}

}  // namespace tenon::testing::pickled
