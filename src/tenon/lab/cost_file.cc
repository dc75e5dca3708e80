#include "tenon/lab/cost_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tenon/base/error.h"

namespace tenon {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw ParseError(path, 0, 0, reason);
}

double read_number(const std::string& path, const std::string& key, const json& value) {
  constexpr double kMost = 3600e6;
  if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= kMost))
    refuse(path, fmt::format("\"{}\" must be microseconds, from 0 to an hour, not {}", key,
                             value.dump()));
  return value.get<double>();
}

CostCurve read_curve(const std::string& path, const std::string& key, const json& root) {
  const auto it = root.find(key);
  if (it == root.end()) refuse(path, fmt::format("\"{}\" is missing", key));
  if (!it->is_array() || it->empty())
    refuse(path, fmt::format("\"{}\" must be a list of [bytes, microseconds]", key));
  CostCurve curve;
  for (const json& point : *it) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number_unsigned())
      refuse(path, fmt::format("\"{}\" holds {}, which is no [bytes, microseconds]", key,
                               point.dump()));
    const auto size_bytes = point[0].get<std::uint64_t>();
    if (!curve.empty() && size_bytes <= curve.back().first)
      refuse(path, fmt::format("\"{}\" must rise in bytes, but {} follows {}", key, size_bytes,
                               curve.back().first));
    curve.emplace_back(size_bytes, read_number(path, key, point[1]));
  }
  return curve;
}

double read_cost(const std::string& path, const std::string& key, const json& root) {
  const auto it = root.find(key);
  if (it == root.end()) refuse(path, fmt::format("\"{}\" is missing", key));
  return read_number(path, key, *it);
}

json parse(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(path, "the file cannot be opened");
  std::ostringstream content;
  content << file.rdbuf();
  const std::string text = content.str();
  try {
    return json::parse(text);
  } catch (const json::out_of_range&) {
    refuse(path, "it holds a number that is too large");
  } catch (const json::parse_error& error) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(
                                        std::min<std::size_t>(error.byte, text.size()));
    const auto line = 1 + std::count(text.begin(), end, '\n');
    throw ParseError(path, static_cast<std::uint64_t>(line), 0, "this is not JSON");
  }
}

}  // namespace

CostModel read_cost_model(const std::string& path) {
  const json root = parse(path);
  if (!root.is_object()) refuse(path, "a cost model is a JSON object");
  CostModel model;
  if (root.contains("source") && root["source"].is_string()) model.source = root["source"];
  model.allocate = read_curve(path, "alloc", root);
  model.free = read_curve(path, "free", root);
  model.create = read_curve(path, "create", root);
  model.map = read_curve(path, "map", root);
  model.set_access_per_handle = read_curve(path, "set_access_per_handle", root);
  model.unmap_per_handle = read_curve(path, "unmap_per_handle", root);
  model.release = read_curve(path, "release", root);
  if (root.contains("reserve_address"))
    model.reserve_address_us = read_cost(path, "reserve_address", root);
  model.event_record_us = read_cost(path, "event_record", root);
  model.event_query_us = read_cost(path, "event_query", root);
  model.stream_wait_event_us = read_cost(path, "stream_wait_event", root);
  return model;
}

}  // namespace tenon
