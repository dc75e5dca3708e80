#include "tenon/lab/ranks/memory_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tenon/base/byte_size.h"
#include "tenon/lab/text_table.h"

namespace tenon {
namespace {

// The drawing's own units; it is scaled to the page's width.
constexpr double kWidth = 900;
constexpr double kHeight = 320;
constexpr double kLeft = 74;
constexpr double kRight = 12;
constexpr double kTop = 16;
constexpr double kBottom = 30;

// Where the events of a trace lie, from 0 to 1.
class Position {
 public:
  explicit Position(const TraceFacts& facts) : facts_(facts), events_(facts.times_us.size()) {
    if (events_ == 0) return;
    first_us_ = facts.times_us.front();
    span_us_ = facts.times_us.back() - first_us_;
  }
  double operator()(std::size_t event) const {
    if (events_ == 0) return 0;
    event = std::min(event, events_ - 1);
    if (span_us_ > 0 && facts_.has_times)
      return static_cast<double>(facts_.times_us[event] - first_us_) /
             static_cast<double>(span_us_);
    return static_cast<double>(event) / static_cast<double>(events_);
  }
  std::int64_t span_us() const { return span_us_; }

 private:
  const TraceFacts& facts_;
  std::size_t events_ = 0;
  std::int64_t first_us_ = 0;
  std::int64_t span_us_ = 0;
};

// Steps of 1, 2 or 5 times a power of ten, or a power of two of a binary unit.
double nice_step(double range, int steps, bool binary) {
  const double raw = std::max(range / steps, 1e-9);
  if (binary) return std::exp2(std::ceil(std::log2(std::max(raw, 1.0))));
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

std::string moment_label(const MemoryPicture& picture, double share) {
  if (!picture.timed)
    return grouped(static_cast<std::uint64_t>(share * static_cast<double>(picture.events)));
  return format_duration_ns(share * static_cast<double>(picture.duration_us) * 1e3);
}

double x_of(double share) { return kLeft + share * (kWidth - kLeft - kRight); }

std::string axes(const MemoryPicture& picture, double top) {
  std::string out;
  const auto y_of = [&](double bytes) {
    return kHeight - kBottom - bytes / top * (kHeight - kTop - kBottom);
  };
  const double y_step = nice_step(top, 5, true);
  for (double bytes = 0; bytes <= top; bytes += y_step)
    out += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, kWidth - kRight, y_of(bytes), y_of(bytes), kLeft - 8, y_of(bytes) + 4,
        format_byte_size(static_cast<std::uint64_t>(bytes)));
  const double whole = picture.timed ? static_cast<double>(picture.duration_us)
                                     : static_cast<double>(picture.events);
  const double x_step = nice_step(std::max(whole, 1.0), 6, false);
  for (double x = 0; x <= whole && whole > 0; x += x_step) {
    const double at = x_of(x / whole);
    const char* anchor = x == 0 ? "start" : at > kWidth - 50 ? "end" : "middle";
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", at,
                       kHeight - 10, anchor, moment_label(picture, x / whole));
  }
  return out;
}

// The area between two stacked sums, one step for each column.
std::string area(const std::vector<double>& low, const std::vector<double>& high,
                 std::size_t category, double top) {
  std::string points;
  const auto y_of = [&](double bytes) {
    return kHeight - kBottom - bytes / top * (kHeight - kTop - kBottom);
  };
  const std::size_t n = low.size();
  const auto x = [&](std::size_t i) {
    return x_of(static_cast<double>(i) / static_cast<double>(n));
  };
  for (std::size_t i = 0; i < n; ++i)
    points +=
        fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x(i), y_of(high[i]), x(i + 1), y_of(high[i]));
  for (std::size_t i = n; i-- > 0;)
    points +=
        fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x(i + 1), y_of(low[i]), x(i), y_of(low[i]));
  return fmt::format("<polygon class=\"c{}\" points=\"{}\"/>\n", category, points);
}

}  // namespace

MemoryPicture memory_picture(const TraceFacts& facts) {
  MemoryPicture picture;
  const Trace& trace = facts.trace;
  const Position position(facts);
  picture.timed = facts.has_times && position.span_us() > 0;
  picture.duration_us = static_cast<std::uint64_t>(std::max<std::int64_t>(position.span_us(), 0));
  picture.events = trace.events.size();
  for (const TraceMark& mark : trace.marks)
    if (mark.kind == MarkKind::kOutOfMemory) picture.failures.push_back(position(mark.event));
  picture.columns.resize(std::min(MemoryPicture::kColumns, trace.events.size()));
  if (picture.columns.empty()) return picture;

  MemoryPicture::Column live;
  std::size_t column = 0;
  std::vector<bool> seen(picture.columns.size());
  const auto keep = [&](std::size_t at) {
    if (seen[at] && live.bytes <= picture.columns[at].bytes) return;
    picture.columns[at] = live;
    seen[at] = true;
  };
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const double share = position(i);
    const std::size_t here =
        std::min(picture.columns.size() - 1,
                 static_cast<std::size_t>(share * static_cast<double>(picture.columns.size())));
    for (; column < here; ++column) keep(column + 1);  // what is live lasts until it changes
    const TraceEvent& event = trace.events[i];
    if (event.op == TraceOp::kFreeRequested) continue;
    auto& of_category =
        live.by_category[static_cast<std::size_t>(facts.categories.blocks[event.block].category)];
    const std::uint64_t change =
        event.op == TraceOp::kAlloc ? event.size_bytes : std::uint64_t{0} - event.size_bytes;
    of_category += change;
    live.bytes += change;
    keep(here);
    if (live.bytes > picture.peak_bytes) {
      picture.peak_bytes = live.bytes;
      picture.peak_at = share;
    }
  }
  return picture;
}

std::string picture_svg(const MemoryPicture& picture, std::uint64_t capacity_bytes) {
  double top = static_cast<double>(std::max<std::uint64_t>(picture.peak_bytes, 1)) * 1.05;
  const auto capacity = static_cast<double>(capacity_bytes);
  const bool show_capacity = capacity_bytes != 0 && capacity < 2 * top;
  if (show_capacity) top = std::max(top, capacity * 1.05);
  std::string out = fmt::format(
      "<svg class=\"picture\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Live memory by "
      "category: it peaks at {}, {:.0f} % of the way through the recording\">\n",
      kWidth, kHeight, format_byte_size(picture.peak_bytes), 100 * picture.peak_at);
  std::vector<double> low(picture.columns.size());
  std::vector<double> high = low;
  for (std::size_t category = 0; category < kCategories; ++category) {
    bool any = false;
    for (std::size_t i = 0; i < high.size(); ++i) {
      any |= picture.columns[i].by_category[category] > 0;
      high[i] += static_cast<double>(picture.columns[i].by_category[category]);
    }
    if (any) out += area(low, high, category, top);
    low = high;
  }
  out += axes(picture, top);
  if (show_capacity) {
    const double y = kHeight - kBottom - capacity / top * (kHeight - kTop - kBottom);
    out += fmt::format(
        "<line class=\"limit\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"limit\" x=\"{}\" y=\"{:.1f}\">capacity {}</text>\n",
        kLeft, kWidth - kRight, y, y, kLeft + 6, y - 4, format_byte_size(capacity_bytes));
  }
  for (const double failure : picture.failures)
    out += fmt::format("<line class=\"failed\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>\n",
                       x_of(failure), x_of(failure), kTop, kHeight - kBottom);
  return out + "</svg>\n";
}

std::string small_picture_svg(const MemoryPicture& picture, std::uint64_t top_bytes) {
  constexpr double kSmallWidth = 160;
  constexpr double kSmallHeight = 36;
  constexpr std::size_t kSteps = 80;
  const double top = static_cast<double>(std::max<std::uint64_t>(top_bytes, 1));
  std::string points = fmt::format("0,{} ", kSmallHeight);
  const std::size_t n = picture.columns.size();
  for (std::size_t step = 0; step < kSteps && n > 0; ++step) {
    std::uint64_t most = 0;
    for (std::size_t i = step * n / kSteps;
         i < std::max((step + 1) * n / kSteps, step * n / kSteps + 1); ++i)
      most = std::max(most, picture.columns[i].bytes);
    const double x = static_cast<double>(step) * kSmallWidth / kSteps;
    const double y = kSmallHeight - static_cast<double>(most) / top * (kSmallHeight - 2);
    points += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x, y, x + kSmallWidth / kSteps, y);
  }
  points += fmt::format("{},{}", kSmallWidth, kSmallHeight);
  std::string out = fmt::format(
      "<svg class=\"small\" viewBox=\"0 0 {} {}\" aria-hidden=\"true\"><polygon class=\"outline\" "
      "points=\"{}\"/>",
      kSmallWidth, kSmallHeight, points);
  for (const double failure : picture.failures)
    out += fmt::format("<line class=\"failed\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"0\" y2=\"{}\"/>",
                       failure * kSmallWidth, failure * kSmallWidth, kSmallHeight);
  return out + "</svg>";
}

}  // namespace tenon
