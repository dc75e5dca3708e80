#include "tenon/device/sim/cost_model.h"

#include <algorithm>
#include <cmath>

namespace tenon {
namespace {

constexpr double kLongestCallUs = 3600e6;

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
  return static_cast<std::uint64_t>(std::llround(std::clamp(us, 0.0, kLongestCallUs) * 1e3));
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

}  // namespace tenon
