#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/byte_size.h"
#include "tenon/base/printable.h"
#include "tenon/lab/fleet/fleet.h"
#include "tenon/lab/odd_values.h"
#include "tenon/lab/text_table.h"
#include "tenon/lab/verdict/verdict.h"

namespace tenon {
namespace {

constexpr std::size_t kShownCauses = 15;
constexpr std::size_t kShownOutliers = 50;
constexpr std::size_t kShownSettings = 8;
constexpr std::size_t kShownWithoutHistory = 50;

// Text from files in a cell or a line of Markdown: no markup, no end of the cell.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : one_line(text)) {
    if (std::string_view("\\`*[]<>|#").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string conf_text(const std::string& conf) {
  return conf.empty() ? "PyTorch's defaults" : "`" + conf + "`";
}

std::string files_text(std::size_t count) {
  return fmt::format("{} file{}", grouped(count), count == 1 ? "" : "s");
}

// The state without its underline: "too large".
std::string state_text(std::string state) {
  std::replace(state.begin(), state.end(), '_', ' ');
  return state;
}

class FleetWriter {
 public:
  explicit FleetWriter(const FleetReport& report)
      : report_(report), found_(report.comparison) {}

  std::string write() {
    write_head();
    write_setting();
    write_outliers();
    write_causes();
    write_files();
    write_no_history();
    write_unread();
    return std::move(out_);
  }

 private:
  template <typename... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    out_ += fmt::format(format, std::forward<Arguments>(arguments)...);
    out_ += '\n';
  }
  void row(const std::vector<std::string>& cells) {
    out_ += '|';
    for (const std::string& cell : cells) out_ += ' ' + cell + " |";
    out_ += '\n';
  }
  // The first column is text, the others numbers unless they are said to be text.
  void head(const std::vector<std::string>& titles, std::size_t texts = 1) {
    row(titles);
    out_ += '|';
    for (std::size_t i = 0; i < titles.size(); ++i) out_ += i < texts ? "---|" : "---:|";
    out_ += '\n';
  }

  const FleetFile& file(std::size_t i) const { return report_.files[i]; }
  std::string name(std::size_t i) const { return plain(file(i).path); }

  void write_head() {
    std::uint64_t bytes = 0;
    for (const FleetFile& each : report_.files) bytes += each.bytes;
    line("# Fleet of {}", files_text(report_.files.size()));
    line("\n{}: {} explained, {} by replay too, {} without history, {} could not be read.",
         format_byte_size(bytes), grouped(found_.judged.size()), grouped(found_.replayed.size()),
         grouped(found_.no_history.size()),
         grouped(found_.unread.size() + report_.left_out.size()));
    const char* no_history = verdict_state_name(Verdict::State::kNoHistory);
    for (const FleetCause& state : found_.states)
      line("- {}: {}, {} {} in all", state_text(state.name), files_text(state.files),
           state.name == no_history ? "live when they were taken:" : "live peaks of",
           format_byte_size(state.bytes));
  }

  void write_setting() {
    line("\n## One setting for all");
    if (found_.settings.empty()) {
      line("\nNo setting: no file has a history that replays.");
      return;
    }
    const FleetSetting& chosen = found_.settings[found_.for_all];
    const TorchVersion torch = report_.question.torch.value_or(kAssumedTorch);
    if (chosen.conf.empty())
      line("\n**PyTorch's defaults: leave {} unset.**", conf_variable(torch));
    else
      line("\n    {}={}\n", conf_variable(torch), chosen.conf);
    line("Each of {} settings of PyTorch {} was replayed over the {}. Chosen: the least sum of "
         "reserved peaks; of settings within {:.1f} % of it, the one with fewest keys.\n",
         report_.question.settings().size(), torch.text(), files_text(found_.replayed.size()),
         100 * kEqualTotals);
    head({"setting", "reserved in all", "most in a file", "files that it makes worse",
          "worst of them"});
    add_setting("as they ran", found_.recorded);
    add_setting("each file with what is least for it", found_.least_each);
    add_setting("**chosen**: " + conf_text(chosen.conf), chosen);
    for (std::size_t i = 0; i < std::min(kShownSettings, found_.settings.size()); ++i)
      if (i != found_.for_all)
        add_setting(conf_text(found_.settings[i].conf), found_.settings[i]);
  }

  void add_setting(const std::string& title, const FleetSetting& setting) {
    row({title, format_byte_size(setting.total_bytes),
         fmt::format("{} ({})", format_byte_size(setting.most_bytes), name(setting.most_file)),
         grouped(setting.worse_files),
         setting.worse_files == 0
             ? "-"
             : fmt::format("{} more ({})", format_byte_size(setting.most_worse_bytes),
                           name(setting.most_worse_file))});
  }

  void write_outliers() {
    line("\n## Outliers");
    line("\nA file is an outlier in a figure that differs from the median of all files. The "
         "difference is more than {:.0f} % and {:.0f} times the median absolute deviation.",
         100 * OddRule::kShare, OddRule::kDeviations);
    if (found_.outliers.empty()) {
      line("\nThere are none.");
      return;
    }
    line("");
    head({"file", "figure", "value", "median"}, 2);
    const std::size_t shown = std::min(kShownOutliers, found_.outliers.size());
    for (std::size_t i = 0; i < shown; ++i) {
      const FleetOutlier& outlier = found_.outliers[i];
      const bool bytes = outlier.figure.ends_with("in bytes");
      const auto number = [&](double value) {
        return bytes ? format_byte_size(static_cast<std::uint64_t>(value))
                     : fmt::format("{:.3f}", value);
      };
      row({name(outlier.file), outlier.figure, number(outlier.value), number(outlier.median)});
    }
    if (shown < found_.outliers.size())
      line("\n... and {} more, in the JSON.", grouped(found_.outliers.size() - shown));
  }

  void write_causes() {
    line("\n## Common causes");
    causes("What filled or ended most of a file's memory", found_.causes);
    causes("What was live at the peaks", found_.categories);
    causes("Call sites at the peaks (the largest of each file)", found_.sites);
    causes("Reserved and not requested, by cause, as recorded", found_.losses);
    causes("Changes that would save most in a file, and what they save", found_.changes);
  }

  void causes(const char* title, const std::vector<FleetCause>& list) {
    if (list.empty()) return;
    line("\n{}:\n", title);
    head({"cause", "files", "bytes"});
    const std::size_t shown = std::min(kShownCauses, list.size());
    for (std::size_t i = 0; i < shown; ++i)
      row({plain(list[i].name), grouped(list[i].files), format_byte_size(list[i].bytes)});
    if (shown < list.size()) line("\n... and {} more, in the JSON.", grouped(list.size() - shown));
  }

  void write_files() {
    if (found_.judged.empty()) return;
    line("\n## Files\n");
    line("Live peak, cause and reserved as recorded are of the device with most; figures of "
         "replays (~, and the last column) are of all devices. The best setting is what `tenon "
         "advise --effort {}` finds, never worse than the file's own in its smallest device "
         "either, except for files that ran out of memory.\n",
         report_.question.effort);
    head({"file", "verdict", "cause", "live peak", "reserved", "best setting", "reserved then"},
         3);
    for (const std::size_t i : found_.judged) {
      const FileAnswer& answer = file(i).answer;
      row({name(i), verdict_of(answer), cause_of(answer), format_byte_size(answer.live_peak_bytes),
           reserved_of(answer),
           !answer.replayed       ? "-"
           : answer.best_differs ? conf_text(answer.best_conf)
           : answer.state == verdict_state_name(Verdict::State::kLimited)
               ? "as it ran, with a higher limit"
               : "as it ran",
           !answer.replayed ? "-"
                            : format_byte_size(answer.best_reserved_bytes) +
                                  (has_failed(answer) ? ", failed request served" : "")});
    }
  }

  static bool has_failed(const FileAnswer& answer) {
    return answer.state != verdict_state_name(Verdict::State::kPassed);
  }
  static std::string verdict_of(const FileAnswer& answer) {
    return state_text(answer.state) +
           (answer.contradiction.empty() ? "" : "; the file contradicts itself (tenon explain)");
  }
  static std::string cause_of(const FileAnswer& answer) {
    if (answer.cause.empty()) return "-";
    if (answer.cause_bytes == 0) return plain(answer.cause);
    return fmt::format("{}, {}", plain(answer.cause), format_byte_size(answer.cause_bytes));
  }
  static std::string reserved_of(const FileAnswer& answer) {
    if (answer.reserved_peak_bytes) return format_byte_size(*answer.reserved_peak_bytes);
    return answer.replayed ? "~ " + format_byte_size(answer.recorded_reserved_bytes) : "-";
  }

  void write_no_history() {
    if (found_.no_history.empty()) return;
    line("\n## Files without history\n");
    line("They hold what was live when they were taken, and no events before that. They do not say "
         "whether an allocation failed, and have no peak, cause or setting. The other parts of "
         "this report leave them out.");
    line("To record a history, call `torch.cuda.memory._record_memory_history()` before the model "
         "is built. Dump the snapshot after the part that matters, or where it fails. Programs of "
         "Tenon record with `TENON_RECORD=FILE`.\n");
    const std::size_t shown = std::min(kShownWithoutHistory, found_.no_history.size());
    for (std::size_t at = 0; at < shown; ++at) {
      const FileAnswer& answer = file(found_.no_history[at]).answer;
      line("- {}: {} live{}", name(found_.no_history[at]), format_byte_size(answer.live_peak_bytes),
           answer.reserved_peak_bytes
               ? fmt::format(", {} reserved", format_byte_size(*answer.reserved_peak_bytes))
               : "");
    }
    if (shown < found_.no_history.size())
      line("\n... and {} more, in the JSON.", grouped(found_.no_history.size() - shown));
  }

  void write_unread() {
    if (found_.unread.empty() && report_.left_out.empty()) return;
    line("\n## Files that could not be read\n");
    for (const std::size_t i : found_.unread) {
      const std::string& error = file(i).answer.error;
      const bool named = error.starts_with(one_line(file(i).path));
      line("- {}", named ? plain(error) : name(i) + ": " + plain(error));
    }
    for (const LeftOutFile& each : report_.left_out)
      line("- {}: {}", plain(each.path), plain(each.reason));
  }

  const FleetReport& report_;
  const FleetComparison& found_;
  std::string out_;
};

}  // namespace

std::string fleet_text(const FleetReport& report) { return FleetWriter(report).write(); }

}  // namespace tenon
