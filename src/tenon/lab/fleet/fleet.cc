#include "tenon/lab/fleet/fleet.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "tenon/lab/odd_values.h"

namespace tenon {
namespace {

// Sums by name.
class CauseTable {
 public:
  void add(const std::string& name, std::uint64_t bytes) {
    FleetCause& cause = causes_[name];
    ++cause.files;
    cause.bytes += bytes;
  }
  void add(const std::map<std::string, std::uint64_t>& all) {
    for (const auto& [name, bytes] : all) add(name, bytes);
  }
  // Most bytes first.
  std::vector<FleetCause> by_bytes() const {
    return sorted([](const FleetCause& cause) { return cause.bytes; });
  }
  std::vector<FleetCause> by_files() const {
    return sorted([](const FleetCause& cause) { return cause.files; });
  }

 private:
  template <typename Figure>
  std::vector<FleetCause> sorted(const Figure& figure) const {
    std::vector<FleetCause> list;
    for (const auto& [name, cause] : causes_) list.push_back({name, cause.files, cause.bytes});
    std::stable_sort(list.begin(), list.end(), [&](const FleetCause& a, const FleetCause& b) {
      return figure(a) > figure(b);
    });
    return list;
  }

  std::map<std::string, FleetCause> causes_;
};

std::size_t keys_of(const std::string& conf) {
  return conf.empty() ? 0 : 1 + static_cast<std::size_t>(std::count(conf.begin(), conf.end(), ','));
}

class FleetComparer {
 public:
  FleetComparer(const std::vector<FleetFile>& files, const std::vector<std::string>& settings)
      : files_(files), settings_(settings) {
    for (std::size_t i = 0; i < files.size(); ++i) {
      const FileAnswer& answer = files[i].answer;
      (answer.error.empty() ? out_.read : out_.unread).push_back(i);
      if (answer.error.empty())
        (answer.has_history() ? out_.judged : out_.no_history).push_back(i);
      if (is_replayed(answer)) out_.replayed.push_back(i);
    }
  }

  FleetComparison compare() {
    find_causes();
    find_outliers();
    if (!out_.replayed.empty()) compare_settings();
    return std::move(out_);
  }

 private:
  // An answer of another question has other settings.
  bool is_replayed(const FileAnswer& answer) const {
    return answer.error.empty() && answer.replayed &&
           answer.reserved_bytes.size() == settings_.size();
  }

  void find_causes() {
    CauseTable states, causes, categories, sites, losses, changes;
    for (const std::size_t i : out_.read)
      states.add(files_[i].answer.state, files_[i].answer.live_peak_bytes);
    for (const std::size_t i : out_.judged) {
      const FileAnswer& answer = files_[i].answer;
      if (!answer.cause.empty()) causes.add(answer.cause, answer.cause_bytes);
      categories.add(answer.categories);
      sites.add(answer.sites);
      losses.add(answer.losses);
      if (!answer.change.empty()) changes.add(answer.change, answer.change_saves_bytes);
    }
    out_.states = states.by_files();
    out_.causes = causes.by_files();
    out_.categories = categories.by_bytes();
    out_.sites = sites.by_bytes();
    out_.losses = losses.by_bytes();
    out_.changes = changes.by_bytes();
  }

  void find_outliers() {
    find_outliers("live peak in bytes", [](const FileAnswer& answer) -> std::optional<double> {
      return static_cast<double>(answer.live_peak_bytes);
    });
    find_outliers("reserved peak as recorded / live peak",
                  [](const FileAnswer& answer) -> std::optional<double> {
                    if (!answer.reserved_peak_bytes || answer.live_peak_bytes == 0)
                      return std::nullopt;
                    return static_cast<double>(*answer.reserved_peak_bytes) /
                           static_cast<double>(answer.live_peak_bytes);
                  });
    find_outliers("reserved peak by replay / with the best settings",
                  [this](const FileAnswer& answer) -> std::optional<double> {
                    if (!is_replayed(answer) || answer.best_reserved_bytes == 0)
                      return std::nullopt;
                    return static_cast<double>(answer.recorded_reserved_bytes) /
                           static_cast<double>(answer.best_reserved_bytes);
                  });
    const auto distance = [](const FleetOutlier& outlier) {
      return std::abs(std::log(std::max(outlier.value, 1e-9) / std::max(outlier.median, 1e-9)));
    };
    std::stable_sort(out_.outliers.begin(), out_.outliers.end(),
                     [&](const FleetOutlier& a, const FleetOutlier& b) {
                       return distance(a) > distance(b);
                     });
  }

  template <typename Figure>
  void find_outliers(const char* name, const Figure& figure) {
    std::vector<double> values;
    std::vector<std::size_t> having;
    for (const std::size_t i : out_.judged)
      if (const std::optional<double> value = figure(files_[i].answer)) {
        values.push_back(*value);
        having.push_back(i);
      }
    if (values.size() < 3) return;
    const OddRule rule(values);
    for (std::size_t at = 0; at < values.size(); ++at)
      if (rule.is_odd(values[at]))
        out_.outliers.push_back({having[at], name, values[at], rule.median});
  }

  static std::uint64_t least_of(const FileAnswer& answer) {
    std::uint64_t least = std::min(answer.recorded_reserved_bytes, answer.best_reserved_bytes);
    for (const auto& bytes : answer.reserved_bytes) least = std::min(least, bytes.value_or(least));
    return least;
  }

  // Nothing where a file has no figure.
  template <typename Reserved>
  std::optional<FleetSetting> sum(const std::string& conf, const Reserved& reserved) const {
    FleetSetting setting{.conf = conf};
    for (const std::size_t i : out_.replayed) {
      const FileAnswer& answer = files_[i].answer;
      const std::optional<std::uint64_t> bytes = reserved(answer);
      if (!bytes) return std::nullopt;
      setting.total_bytes += *bytes;
      if (*bytes > setting.most_bytes) {
        setting.most_bytes = *bytes;
        setting.most_file = i;
      }
      if (*bytes <= answer.recorded_reserved_bytes) continue;
      ++setting.worse_files;
      const std::uint64_t worse = *bytes - answer.recorded_reserved_bytes;
      if (worse > setting.most_worse_bytes) {
        setting.most_worse_bytes = worse;
        setting.most_worse_file = i;
      }
    }
    return setting;
  }

  void compare_settings() {
    using Bytes = std::optional<std::uint64_t>;
    out_.recorded =
        *sum("", [](const FileAnswer& answer) { return Bytes(answer.recorded_reserved_bytes); });
    out_.least_each = *sum("", [](const FileAnswer& answer) { return Bytes(least_of(answer)); });
    for (std::size_t at = 0; at < settings_.size(); ++at)
      if (auto setting = sum(settings_[at], [&](const FileAnswer& answer) {
            return answer.reserved_bytes[at];
          }))
        out_.settings.push_back(std::move(*setting));
    const auto less = [](const FleetSetting& a, const FleetSetting& b) {
      return std::tie(a.total_bytes, a.conf) < std::tie(b.total_bytes, b.conf);
    };
    std::sort(out_.settings.begin(), out_.settings.end(), less);
    choose();
  }

  void choose() {
    const auto& all = out_.settings;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double most = (1 + kEqualTotals) * static_cast<double>(all[0].total_bytes);
      if (static_cast<double>(all[i].total_bytes) <= most &&
          keys_of(all[i].conf) < keys_of(all[out_.for_all].conf))
        out_.for_all = i;
    }
  }

  const std::vector<FleetFile>& files_;
  const std::vector<std::string>& settings_;
  FleetComparison out_;
};

}  // namespace

FleetComparison compare_fleet(const std::vector<FleetFile>& files,
                              const std::vector<std::string>& settings) {
  return FleetComparer(files, settings).compare();
}

}  // namespace tenon
