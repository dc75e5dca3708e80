#include "tenon/device/sim/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
    refuse(path, fmt::format("\"{}\" must be microseconds, 0 or more, not {}", key, value.dump()));
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
  } catch (const json::parse_error& error) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(
                                        std::min<std::size_t>(error.byte, text.size()));
    const auto line = 1 + std::count(text.begin(), end, '\n');
    throw ParseError(path, static_cast<std::uint64_t>(line), 0, "this is not JSON");
  }
}

}  // namespace

std::uint64_t CostModel::cost_ns(const CostCurve& curve, std::uint64_t size_bytes) {
  if (curve.empty()) return 0;
  double us = curve.front().second;
  if (size_bytes > curve.front().first && curve.size() > 1) {
    std::size_t right = 1;
    while (right + 1 < curve.size() && curve[right].first < size_bytes) ++right;
    const auto& [x0, y0] = curve[right - 1];
    const auto& [x1, y1] = curve[right];
    us = y0 + (y1 - y0) * (static_cast<double>(size_bytes) - static_cast<double>(x0)) /
                  static_cast<double>(x1 - x0);
  }
  return static_cast<std::uint64_t>(std::llround(std::max(0.0, us) * 1e3));
}

const CostModel& h200_costs() {
  static const CostModel model = {
      .source = "one NVIDIA H200, driver 580, CUDA 13.0; medians; microseconds; linear "
                "interpolation in bytes between points, last slope beyond",
      .allocate = {{2097152, 45}, {67108864, 60}, {1073741824, 75}},
      .free = {{2097152, 34}, {67108864, 76}, {1073741824, 634}},
      .create = {{2097152, 10.9}, {67108864, 10.6}, {268435456, 14.1}, {1073741824, 24.7}},
      .map = {{2097152, 0.85}, {1073741824, 0.9}},
      .set_access_per_handle = {{2097152, 24.4}, {16777216, 25.2}, {67108864, 39.6},
                                {268435456, 43.4}, {1073741824, 68.8}},
      .unmap_per_handle = {{2097152, 16.1}, {16777216, 16.7}, {67108864, 23.3},
                           {268435456, 24.3}, {1073741824, 31.3}},
      .release = {{2097152, 14.1}, {16777216, 21.8}, {67108864, 44.5}, {268435456, 154.7},
                  {1073741824, 594.0}},
      .reserve_address_us = 15,
      .event_record_us = 0.26,
      .event_query_us = 0.25,
      .stream_wait_event_us = 0.3,
  };
  return model;
}

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
