#include "tenon/base/error.h"
#include "tenon/lab/advice/advice_report.h"
#include "tenon/lab/advice/recorded_programs.h"
#include "tenon/lab/ranks/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "tenon/base/byte_size.h"
#include "tenon/lab/ranks/html.h"
#include "tenon/lab/ranks/report_style.h"
#include "tenon/lab/text_table.h"

namespace tenon {
namespace {

constexpr std::size_t kShownRows = 10;
constexpr std::size_t kMostRows = 200;

std::string paragraph(std::string_view text, const char* style = "") {
  return fmt::format("<p class=\"{}\">{}</p>\n", style, html_text(text));
}

struct TableColumn {
  const char* title;
  std::function<std::string(std::size_t row)> cell;  // of markup
  bool text = false;
};

// Rows beyond the first ones are folded in a second table with the same columns.
std::string table(const std::string& caption, const std::vector<TableColumn>& columns,
                  std::size_t rows) {
  const auto part = [&](const std::string& title, std::size_t from, std::size_t to) {
    std::string out = fmt::format(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{}\"><table><caption>{}"
        "</caption><thead><tr>",
        html_text(title), html_text(title));
    for (const TableColumn& column : columns)
      out += fmt::format("<th scope=\"col\"{}>{}</th>", column.text ? " class=\"text\"" : "",
                         column.title);
    out += "</tr></thead><tbody>\n";
    for (std::size_t row = from; row < to; ++row) {
      out += "<tr>";
      for (std::size_t i = 0; i < columns.size(); ++i)
        out += fmt::format("<{0}{1}>{2}</{3}>", i == 0 ? "th scope=\"row\"" : "td",
                           columns[i].text ? " class=\"text\"" : "", columns[i].cell(row),
                           i == 0 ? "th" : "td");
      out += "</tr>\n";
    }
    return out + "</tbody></table></div>\n";
  };
  if (rows == 0) return "";
  std::string out = part(caption, 0, std::min(rows, kShownRows));
  if (rows <= kShownRows) return out;
  const std::size_t last = std::min(rows, kMostRows);
  const std::string more =
      fmt::format("{} more rows{}", last - kShownRows,
                  last < rows ? fmt::format(" (of {})", rows - kShownRows) : "");
  return out + fmt::format("<details><summary>{}</summary>\n{}</details>\n", more,
                           part(fmt::format("{}, {}", caption, more), kShownRows, last));
}

std::string category_table(const LiveSet& live, const std::string& caption) {
  const auto& rows = live.by_category;
  return table(
      caption,
      {{"Category",
        [&](std::size_t i) {
          return fmt::format("<span class=\"swatch c{}\"></span>{}",
                             static_cast<int>(rows[i].category), html_text(rows[i].name));
        }},
       {"Bytes", [&](std::size_t i) { return format_byte_size(rows[i].bytes); }},
       {"Share", [&](std::size_t i) { return format_share(rows[i].bytes, live.bytes); }},
       {"Allocations", [&](std::size_t i) { return grouped(rows[i].blocks); }},
       {"Certain",
        [&](std::size_t i) { return format_share(rows[i].confidence_bytes[0], rows[i].bytes); }},
       {"Likely",
        [&](std::size_t i) { return format_share(rows[i].confidence_bytes[1], rows[i].bytes); }},
       {"Guess",
        [&](std::size_t i) { return format_share(rows[i].confidence_bytes[2], rows[i].bytes); }}},
      rows.size());
}

std::string site_table(const LiveSet& live, const std::string& caption) {
  const auto& rows = live.by_site;
  return table(caption,
               {{"Call site", [&](std::size_t i) { return html_text(rows[i].name); }},
                {"Bytes", [&](std::size_t i) { return format_byte_size(rows[i].bytes); }},
                {"Share", [&](std::size_t i) { return format_share(rows[i].bytes, live.bytes); }},
                {"Allocations", [&](std::size_t i) { return grouped(rows[i].blocks); }}},
               rows.size());
}

std::string legend(const MemoryPicture& picture) {
  std::string items;
  for (std::size_t category = 0; category < kCategories; ++category) {
    const bool shown =
        std::any_of(picture.columns.begin(), picture.columns.end(),
                    [&](const auto& column) { return column.by_category[category] > 0; });
    if (shown)
      items += fmt::format("<li><span class=\"swatch c{}\"></span>{}</li>", category,
                           kCategoryNames[category]);
  }
  return fmt::format("<ul class=\"legend\">{}</ul>\n", items);
}

std::string verdict_html(const Rank& rank) {
  const Verdict& verdict = rank.device.verdict;
  std::string out;
  for (std::size_t i = 0; i < verdict.sentences.size(); ++i)
    out += paragraph(verdict.sentences[i], i == 0 ? "lead" : "");
  if (!verdict.changes.empty()) {
    out += "<details><summary>How to change it, and how the savings are measured</summary>\n<ol>\n";
    for (const Change& change : verdict.changes)
      out += fmt::format("<li>{}: {}. Measured by {}.</li>\n", html_text(change.what),
                         html_text(change.how), html_text(change.measured));
    out += "</ol></details>\n";
  }
  for (const std::string& open : verdict.cannot_tell) out += paragraph(open, "soft");
  return out;
}

std::string failure_html(const OutOfMemoryReport& failure, std::size_t number, const Rank& rank) {
  std::string out = fmt::format(
      "<h3>Failure {}{}: {} requested, {} live</h3>\n", number,
      rank.picture.timed
          ? fmt::format(
                ", {} after the recording began",
                format_duration_ns(static_cast<double>(failure.time_us - rank.start_us) * 1e3))
          : fmt::format(", after event {}", grouped(failure.events)),
      format_byte_size(failure.request_bytes), format_byte_size(failure.live_bytes));
  for (const std::string& why : failure.why) out += paragraph(why);
  if (!failure.stack.empty()) {
    out += "<p>The request came from:</p>\n<ol class=\"stack\">\n";
    for (const std::string& frame : failure.stack)
      out += fmt::format("<li>{}</li>\n", html_text(frame));
    out += "</ol>\n";
  }
  if (!failure.remedies.empty()) {
    const auto& rows = failure.remedies;
    out +=
        table("What would have let it pass",
              {{"Change", [&](std::size_t i) { return html_text(rows[i].name); }},
               {"Helps", [&](std::size_t i) { return std::string(rows[i].helps ? "yes" : "no"); }},
               {"Figures", [&](std::size_t i) { return html_text(rows[i].detail); }, true}},
              rows.size());
  }
  out += category_table(failure.live, "Live at the failure, by category");
  return out + site_table(failure.live, "Live at the failure, by call site");
}

// The whole answer of one rank.
std::string rank_body(const Rank& rank, std::uint64_t capacity_bytes) {
  const DeviceExplanation& device = rank.device;
  std::string out = verdict_html(rank);
  out += "<h3>Live memory over the recording</h3>\n" + legend(rank.picture) +
         picture_svg(rank.picture, capacity_bytes);
  out += category_table(device.at_peak, fmt::format("Live at the peak, {}, by category",
                                                    format_byte_size(device.at_peak.bytes)));
  out += site_table(device.at_peak, "Live at the peak, by call site");
  for (std::size_t i = 0; i < device.failures.size(); ++i)
    out += failure_html(device.failures[i], i + 1, rank);
  if (device.failure_count > device.failures.size())
    out += paragraph(fmt::format("{} later failures are left out.",
                                 device.failure_count - device.failures.size()),
                     "soft");
  if (!device.growth.suspects.empty()) {
    const auto& rows = device.growth.suspects;
    out += table("Growing from iteration to iteration",
                 {{"Call site", [&](std::size_t i) { return html_text(rows[i].name); }},
                  {"From", [&](std::size_t i) { return format_byte_size(rows[i].first_bytes); }},
                  {"To", [&](std::size_t i) { return format_byte_size(rows[i].last_bytes); }}},
                 rows.size());
  }
  for (const std::string& warning : device.warnings) out += paragraph(warning, "soft");
  return out;
}

std::string state_of(const Rank& rank) {
  const std::uint64_t failures = rank.device.failure_count;
  if (failures > 0) return fmt::format("failed {} time{}", failures, failures == 1 ? "" : "s");
  return rank.device.has_history ? "passed" : "no history: not known";
}

std::string peak_text(const Rank& rank) {
  return format_byte_size(rank.needed_bytes) +
         (rank.failed() ? " with the request that failed" : "");
}

std::string ranks_table(const Report& report) {
  const std::vector<Rank>& ranks = report.ranks;
  std::uint64_t top = 0;
  for (const Rank& rank : ranks) top = std::max(top, rank.picture.peak_bytes);
  const auto largest = [&](std::size_t i) {
    const auto& groups = ranks[i].device.at_peak.by_category;
    return groups.empty() ? std::string("none")
                          : fmt::format("{}, {}", html_text(groups[0].name),
                                        format_byte_size(groups[0].bytes));
  };
  return table("Each rank",
               {{"Rank", [&](std::size_t i) { return html_text(ranks[i].name); }},
                {"Live peak", [&](std::size_t i) { return peak_text(ranks[i]); }},
                {"Reserved",
                 [&](std::size_t i) {
                   return ranks[i].device.reserved_known
                              ? format_byte_size(ranks[i].device.reserved_peak_bytes)
                              : std::string("not recorded");
                 }},
                {"Over the recording",
                 [&](std::size_t i) { return small_picture_svg(ranks[i].picture, top); }, true},
                {"Most at the peak", largest, true},
                {"Outcome", [&](std::size_t i) { return state_of(ranks[i]); }, true}},
               ranks.size());
}

std::string causes_table(const std::vector<CommonCause>& causes, const char* first,
                         const std::string& caption, std::size_t ranks) {
  return table(
      caption,
      {{first, [&](std::size_t i) { return html_text(causes[i].name); }},
       {"Ranks", [&](std::size_t i) { return fmt::format("{} of {}", causes[i].ranks, ranks); }},
       {"Least", [&](std::size_t i) { return format_byte_size(causes[i].least_bytes); }},
       {"Median", [&](std::size_t i) { return format_byte_size(causes[i].median_bytes); }},
       {"Most", [&](std::size_t i) { return format_byte_size(causes[i].most_bytes); }}},
      causes.size());
}

std::string comparison_html(const Report& report) {
  const RankComparison& comparison = report.comparison;
  std::string out = "<h2 id=\"ranks\">Ranks</h2>\n";
  for (const std::string& sentence : comparison.apart) out += paragraph(sentence, "alarm");
  if (comparison.compared.size() > 1)
    for (std::size_t i = 0; i < comparison.sentences.size(); ++i)
      out += paragraph(comparison.sentences[i], i == 0 ? "lead" : "");
  out += ranks_table(report);
  if (comparison.compared.size() < 2) return out;
  const std::size_t n = comparison.compared.size();
  out += causes_table(comparison.categories, "Category", "Common causes, by category", n);
  return out + causes_table(comparison.sites, "Call site", "Common causes, by call site", n);
}

// The ranks that get a part of their own, those that failed first: further ranks differ by what the
// comparison says.
std::vector<std::size_t> shown_in_full(const Report& report) {
  constexpr std::size_t kMost = 8;
  std::vector<std::size_t> order = {report.comparison.first};
  const auto add = [&](std::size_t rank) {
    if (std::find(order.begin(), order.end(), rank) == order.end()) order.push_back(rank);
  };
  for (const std::size_t rank : report.comparison.failed) add(rank);
  add(report.comparison.highest);
  for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const auto& compared = report.comparison.compared;
    if (std::find(compared.begin(), compared.end(), rank) == compared.end()) add(rank);
  }
  for (const OddRank& odd : report.comparison.odd) add(odd.rank);
  add(report.comparison.lowest);
  for (std::size_t rank = 0; rank < report.ranks.size() && report.ranks.size() <= kMost; ++rank)
    add(rank);
  if (order.size() > kMost) order.resize(kMost);
  return order;
}

std::string head(const Report& report) {
  const bool several = report.ranks.size() > 1;
  const std::string title = several ? fmt::format("Memory of {} ranks", report.ranks.size())
                                    : "Memory of " + report.ranks[0].name;
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"tenon-page\" content=\"report\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n<title>{0}</title>\n<style>{1}"
      "</style>\n</head>\n<body>\n<header><h1>{0}</h1>\n",
      html_text(title), kReportStyle);
  const Rank& main = report.ranks[report.comparison.first];
  const std::size_t failed = report.comparison.failed.size();
  if (several && failed > 0) out += paragraph(report.comparison.sentences[0], "alarm");
  out += paragraph(several ? fmt::format("The answer is that of {}, which {}.", main.name,
                                         failed == 0   ? "needs most"
                                         : failed == 1 ? "failed"
                                                       : "needs most of those that failed")
                           : fmt::format("{}, {} events", main.path, grouped(main.device.events)),
                   "soft");
  out += several
             ? "<nav aria-label=\"Parts\"><a href=\"#verdict\">Verdict</a><a href=\"#ranks\">Ranks"
               "</a><a href=\"#others\">Single ranks</a></nav>\n"
             : "";
  return out + "</header>\n<main>\n";
}

}  // namespace

void add_advice(Report& report, const Snapshot& snapshot) {
  constexpr double kEffort = 0.3;  // of what advise tries by itself
  report.advised = report.comparison.first;
  const Rank& rank = report.ranks[report.advised];
  RecordedPrograms recorded;
  add_programs(snapshot, rank.path, rank.device.device, recorded);
  if (recorded.programs.empty()) return;
  AdviceOptions options;
  options.effort = kEffort;
  if (report.capacity_bytes > outside_memory(find_card(""), report.ranks.size()).total())
    options.capacity_bytes = report.capacity_bytes;
  complete_options(options, recorded, report.ranks.size());
  try {
    report.advice = advice_text(advise(recorded.programs, options));
  } catch (const InvalidArgument&) {
    // A recording that no policy can follow has no advice; the rest of the report stands.
  }
}

std::string report_html(const Report& report) {
  std::string out = head(report);
  const std::vector<std::size_t> order = shown_in_full(report);
  const bool several = report.ranks.size() > 1;
  for (const UnreadRank& unread : report.unread)
    out += paragraph(fmt::format("{} could not be read: {}", unread.path, unread.reason), "alarm");
  out += "<h2 id=\"verdict\">Verdict</h2>\n";
  out += rank_body(report.ranks[order[0]], report.capacity_bytes);
  if (!report.advice.empty())
    out += fmt::format("<h2 id=\"advice\">Settings{}</h2>\n<pre>{}</pre>\n",
                       several ? " for " + html_text(report.ranks[report.advised].name) : "", [&] {
                         // Lines stay lines: each is escaped by itself.
                         std::string lines;
                         std::string_view rest = report.advice;
                         while (!rest.empty()) {
                           const std::size_t end = std::min(rest.find('\n'), rest.size());
                           lines += html_text(rest.substr(0, end)) + "\n";
                           rest.remove_prefix(std::min(end + 1, rest.size()));
                         }
                         return lines;
                       }());
  if (several) {
    out += comparison_html(report);
    out += "<h2 id=\"others\">Single ranks</h2>\n";
    for (std::size_t i = 1; i < order.size(); ++i) {
      const Rank& rank = report.ranks[order[i]];
      out += fmt::format("<details><summary>{}: peak {}, {}</summary>\n{}</details>\n",
                         html_text(rank.name), peak_text(rank), state_of(rank),
                         rank_body(rank, report.capacity_bytes));
    }
    if (order.size() < report.ranks.size())
      out += paragraph(fmt::format("{} ranks like these are not shown one by one: a report of a "
                                   "single rank's snapshot has all of it.",
                                   report.ranks.size() - order.size()),
                       "soft");
  }
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace tenon
