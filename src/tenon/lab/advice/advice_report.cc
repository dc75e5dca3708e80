#include "tenon/lab/advice/advice_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tenon/base/byte_size.h"
#include "tenon/lab/text_table.h"

namespace tenon {
namespace {

using Json = nlohmann::ordered_json;

std::string bytes(std::uint64_t value) {
  return value == AdviceFigures::kNever ? "no memory is enough" : format_byte_size(value);
}

std::string named(const std::string& conf) { return conf.empty() ? "PyTorch's defaults" : conf; }

std::string line_to_paste(const Advice& advice) {
  const std::string variable(conf_variable(advice.torch));
  const std::string& conf = advice.best.conf;
  if (conf.empty()) return "unset " + variable;
  if (advice.on_windows) return fmt::format("set {}={}", variable, conf);
  const bool quoted = conf.find('[') != std::string::npos;
  return fmt::format("export {}={}", variable, quoted ? "'" + conf + "'" : conf);
}

std::string rank_name(const Advice& advice, std::size_t rank) {
  return advice.programs[rank].name;
}

// The settings that the programs ran with, and where that is known from.
std::string recorded_with(const Advice& advice) {
  std::string with = named(advice.recorded.conf);
  const auto same = [&](const ProgramFacts& program) {
    return program.recorded_conf == advice.programs.front().recorded_conf;
  };
  if (!std::all_of(advice.programs.begin(), advice.programs.end(), same))
    with = "settings of its own for each recording";
  const bool known = std::all_of(advice.programs.begin(), advice.programs.end(),
                                 [](const ProgramFacts& p) { return p.recorded_known; });
  constexpr std::string_view kAssumed =
      " (assumed: the recording does not say, or its settings cannot be replayed)";
  return known ? with : with.append(kAssumed);
}

// Where --torch names a version that does not start with what the programs ran with.
std::string refused_by_torch(const Advice& advice) {
  TorchVersion since = kFirstTorch;
  for (const ProgramFacts& program : advice.programs)
    since = std::max(since, accepted_since(program.recorded_conf));
  if (since <= advice.torch) return "";
  return fmt::format("PyTorch {} does not accept these settings; {} and newer do\n",
                     advice.torch.text(), since.text());
}

std::string saving(std::string_view what, std::uint64_t with, std::uint64_t without) {
  if (without == AdviceFigures::kNever)
    return fmt::format("{} {} (no memory is enough as recorded)", what, bytes(with));
  if (with == without) return fmt::format("{} {} as before", what, bytes(with));
  // Two figures that differ are not printed as the same.
  const bool exact = bytes(with) == bytes(without);
  const auto text = [&](std::uint64_t value) {
    return exact ? grouped(value) + " bytes" : bytes(value);
  };
  return fmt::format("{} {} instead of {} ({} {})", what, text(with), text(without),
                     bytes(with < without ? without - with : with - without),
                     with < without ? "less" : "more");
}

std::string savings(const Advice& advice) {
  const std::size_t worst = advice.best.worst();
  const AdviceFigures& now = advice.best.programs[worst];
  const AdviceFigures& before = advice.recorded.programs[worst];
  return saving("reserves", now.reserved_peak_bytes, before.reserved_peak_bytes) + "; " +
         saving("fits on a device with", now.min_capacity_bytes, before.min_capacity_bytes);
}

std::string of_card(const Advice& advice) {
  if (advice.card_bytes == 0)
    return fmt::format("{} (reserved and free bytes when the recording failed)",
                       bytes(advice.capacity_bytes));
  return fmt::format("{} (of the card's {}, {} are for memory outside of PyTorch's allocator)",
                     bytes(advice.capacity_bytes), bytes(advice.card_bytes),
                     bytes(advice.outside.total()));
}

std::string hopeless_verdict(const Advice& advice) {
  return fmt::format(
      "nothing helps: the program itself needs {} at once, {} more than {}. It must need less (a "
      "smaller batch, checkpointing, offloading), or the card be larger.",
      bytes(advice.live_peak_bytes), bytes(advice.live_peak_bytes - advice.capacity_bytes),
      of_card(advice));
}

// When settings are of use that save in one figure and cost in the other; empty for others.
std::string_view use_of_trade_off(const AdviceFigures& with, const AdviceFigures& without) {
  const bool holds_less = with.reserved_peak_bytes < without.reserved_peak_bytes;
  const bool fits_smaller = with.min_capacity_bytes < without.min_capacity_bytes;
  if (holds_less && with.min_capacity_bytes > without.min_capacity_bytes)
    return " Without it PyTorch returns its cache where the device is full. So set it to leave "
           "memory to other programs, not to fit on a smaller device.";
  if (fits_smaller && with.reserved_peak_bytes > without.reserved_peak_bytes)
    return " Set it to fit on a smaller device, not to leave memory to other programs.";
  return "";
}

// What expandable segments save in one figure at the cost of the other; empty where they do not.
std::string trade_off(const Advice& advice) {
  if (!advice.expandable) return "";
  const std::size_t worst = advice.recorded.worst();
  const AdviceFigures& with = advice.expandable->programs[worst];
  const AdviceFigures& without = advice.recorded.programs[worst];
  const auto better = [](std::uint64_t a, std::uint64_t b) { return a < b && (b - a) * 100 > b; };
  if (!better(with.min_capacity_bytes, without.min_capacity_bytes) &&
      !better(with.reserved_peak_bytes, without.reserved_peak_bytes))
    return "";
  const std::optional<std::uint64_t> held = advice.programs[worst].recorded_peak_bytes;
  return fmt::format(
      " With expandable_segments:True it {}; {}{}.{}",
      saving("reserves", with.reserved_peak_bytes, without.reserved_peak_bytes),
      saving("fits on a device with", with.min_capacity_bytes, without.min_capacity_bytes),
      held && with.reserved_peak_bytes > *held
          ? fmt::format("; PyTorch held no more than {} when it was recorded", bytes(*held))
          : "",
      use_of_trade_off(with, without));
}

// What nvidia-smi would show.
std::string shown_by_nvidia_smi(const Advice& advice) {
  const std::uint64_t reserved = advice.best.at_worst().reserved_peak_bytes;
  if (reserved == AdviceFigures::kNever) return "";
  const std::uint64_t all = reserved + advice.outside.total();
  if (advice.capacity_bytes != 0 && reserved > advice.capacity_bytes)
    return fmt::format(
        "\nnvidia-smi shows a full card: without a limit PyTorch would reserve {}, and gives "
        "cached memory back when there is no more.\n",
        bytes(reserved));
  return fmt::format(
      "\nnvidia-smi shows up to {}: reserved, and {} beside PyTorch's allocator ({}).\n",
      bytes(all), bytes(advice.outside.total()), advice.outside.source);
}

// Whether PyTorch held less than a replay of the recorded settings: what it held is the limit then.
bool held_less(const Advice& advice, std::size_t i) {
  const ProgramFacts& program = advice.programs[i];
  return !program.failed && program.times_full == 0 && program.recorded_peak_bytes &&
         *program.recorded_peak_bytes < advice.recorded.programs[i].reserved_peak_bytes;
}
bool any_held_less(const Advice& advice) {
  for (std::size_t i = 0; i < advice.programs.size(); ++i)
    if (held_less(advice, i)) return true;
  return false;
}

// Of the recording that needs most: a saving that is counted from more than PyTorch held.
std::string held_less_than_replayed(const Advice& advice) {
  const std::size_t worst = advice.recorded.worst();
  if (worst >= advice.programs.size() || !held_less(advice, worst)) return "";
  return fmt::format(
      " When it was recorded PyTorch held {}, less than the replay of the same settings: the "
      "saving may be smaller.",
      bytes(*advice.programs[worst].recorded_peak_bytes));
}

std::string no_settings_verdict(const Advice& advice) {
  const std::string_view answer = advice.outcome == AdviceOutcome::kRaiseLimit
                                      ? "a higher limit helps, and other settings are not needed"
                                      : "nothing is needed";
  if (advice.capacity_bytes != 0)
    return fmt::format("{}: with the recorded settings it fits into {}.", answer,
                       of_card(advice));
  return fmt::format(
             "{}: none of the {} settings tried saves more than 1 % of the reserved bytes, or of "
             "the smallest device, without a larger one of the two figures{}.",
             answer, advice.settings_tried,
             any_held_less(advice) ? ", or more reserved bytes than PyTorch held" : "") +
         trade_off(advice);
}

std::string about_the_limit(const Advice& advice) {
  const std::optional<RoomAtFailure> failure = advice.failure_of_limit();
  if (!failure) return "";
  return fmt::format(
      " A limit (per_process_memory_fraction), or another process, failed the request: the driver "
      "had {} left. The limit was at least {}, which PyTorch held then: raise it{}.",
      bytes(failure->free_bytes), bytes(failure->reserved_bytes),
      advice.card_bytes == 0 ? ", or give it with --capacity LIMIT --reserve-for-context 0" : "");
}

std::string verdict_on_settings(const Advice& advice) {
  switch (advice.outcome) {
    case AdviceOutcome::kHopeless: return hopeless_verdict(advice);
    case AdviceOutcome::kNothingNeeded:
    case AdviceOutcome::kRaiseLimit: return no_settings_verdict(advice);
    case AdviceOutcome::kNothingFits:
      return fmt::format(
          "no settings that were tried fit into {}: the best, {}, need {}. The live peak is {}, "
          "so the difference is lost to fragmentation: vary the sizes less, or make the batch "
          "smaller.",
          of_card(advice), named(advice.best.conf),
          bytes(advice.best.at_worst().min_capacity_bytes),
          bytes(advice.live_peak_bytes));
    case AdviceOutcome::kSet: break;
  }
  if (advice.capacity_bytes != 0)
    return fmt::format("with {} it fits into {}; with the recorded settings it does not. It {}.",
                       named(advice.best.conf), of_card(advice), savings(advice));
  return fmt::format("with {} it {}.{}", named(advice.best.conf), savings(advice),
                     held_less_than_replayed(advice));
}

void add_row(TextTable& table, const Advice& advice, const std::string& name,
             const SettingsFigures& figures) {
  const AdviceFigures& worst = figures.at_worst();
  const auto ratio = [&](std::uint64_t value) {
    if (value == AdviceFigures::kNever) return std::string("-");
    return fmt::format("{:.3f}", static_cast<double>(value) /
                                     static_cast<double>(std::max<std::uint64_t>(
                                         1, advice.programs[figures.worst()].live_peak_bytes)));
  };
  const auto exact = [](std::uint64_t value) {
    return value == AdviceFigures::kNever ? std::string("-") : grouped(value);
  };
  std::vector<std::string> row = {name,
                                  exact(worst.reserved_peak_bytes),
                                  ratio(worst.reserved_peak_bytes),
                                  exact(worst.min_capacity_bytes),
                                  ratio(worst.min_capacity_bytes),
                                  format_duration_ns(static_cast<double>(worst.driver_stall_ns))};
  if (advice.capacity_bytes != 0) row.push_back(figures.fits() ? "fits" : "does not fit");
  table.add(row);
}

std::string comparison(const Advice& advice) {
  std::vector<std::string> head = {"settings", "reserved, bytes", "/live",
                                   "smallest device, bytes", "/live", "driver stall"};
  if (advice.capacity_bytes != 0) head.push_back("in " + bytes(advice.capacity_bytes));
  TextTable table(head);
  const std::string recorded = advice.recorded.conf.empty() ? "as recorded (the defaults)"
                                                             : "as recorded";
  add_row(table, advice, recorded, advice.recorded);
  if (!advice.recorded.conf.empty()) add_row(table, advice, "PyTorch's defaults", advice.defaults);
  if (advice.expandable && advice.recorded.conf != advice.expandable->conf)
    add_row(table, advice, "expandable_segments:True", *advice.expandable);
  const bool new_settings = advice.outcome == AdviceOutcome::kSet ||
                            advice.outcome == AdviceOutcome::kNothingFits;
  if (new_settings && advice.best.conf != "expandable_segments:True" && !advice.best.conf.empty())
    add_row(table, advice, "recommended", advice.best);
  return table.format();
}

std::string rank_table(const Advice& advice) {
  TextTable table({"recording", "live peak", "as recorded", "recommended", "smallest device"});
  for (std::size_t i = 0; i < advice.programs.size(); ++i)
    table.add({advice.programs[i].name, bytes(advice.programs[i].live_peak_bytes),
               bytes(advice.recorded.programs[i].reserved_peak_bytes),
               bytes(advice.best.programs[i].reserved_peak_bytes),
               bytes(advice.best.programs[i].min_capacity_bytes)});
  return fmt::format("{}the recording that needs most: {}\n", table.format(),
                     rank_name(advice, advice.best.worst()));
}

std::string title(const Advice& advice) {
  std::string text;
  for (const ProgramFacts& program : advice.programs) {
    text += fmt::format("{}: {} events, live peak {} ({} bytes{})", program.name,
                        grouped(program.events), bytes(program.live_peak_bytes),
                        grouped(program.live_peak_bytes),
                        program.failed ? ", with the failed request" : "");
    if (program.recorded_peak_bytes)
      text += fmt::format("; PyTorch held {} ({} bytes) when it was recorded",
                          bytes(*program.recorded_peak_bytes),
                          grouped(*program.recorded_peak_bytes));
    if (program.times_full > 0)
      text += fmt::format("; {} time{} the device was full, and PyTorch gave cached memory back",
                          grouped(program.times_full), program.times_full == 1 ? "" : "s");
    if (program.times_given_back > 0)
      text += fmt::format("; {} time{} the program gave idle memory back (empty_cache, sleep), and "
                          "so do replays",
                          grouped(program.times_given_back),
                          program.times_given_back == 1 ? "" : "s");
    if (program.failed) text += "; it ran out of memory, and replays serve the failed request";
    text += '\n';
  }
  return text + "recorded with: " + recorded_with(advice) + "\n" + refused_by_torch(advice);
}

std::string files(const Advice& advice) {
  std::string names;
  for (const ProgramFacts& program : advice.programs)
    if (names.find(program.file) == std::string::npos)
      names += (names.empty() ? "" : " ") + program.file;
  return names;
}

Json json_of(const SettingsFigures& figures) {
  const AdviceFigures& worst = figures.at_worst();
  const auto known = [](std::uint64_t value) {
    return value == AdviceFigures::kNever ? Json(nullptr) : Json(value);
  };
  Json out = {{"policy", "caching"},
              {"conf", figures.conf},
              {"reserved_peak_bytes", known(worst.reserved_peak_bytes)},
              {"min_capacity_bytes", known(worst.min_capacity_bytes)},
              {"driver_stall_us", static_cast<double>(worst.driver_stall_ns) / 1000}};
  if (worst.fits) out["fits"] = figures.fits();
  if (figures.programs.size() > 1) {
    out["programs"] = Json::array();
    for (const AdviceFigures& one : figures.programs)
      out["programs"].push_back({{"reserved_peak_bytes", known(one.reserved_peak_bytes)},
                                 {"min_capacity_bytes", known(one.min_capacity_bytes)}});
  }
  return out;
}

Json json_of(const ProgramFacts& program) {
  Json out = {{"trace", program.name},
              {"events", program.events},
              {"live_peak_bytes", program.live_peak_bytes},
              {"recorded_conf", program.recorded_conf},
              {"recorded_conf_known", program.recorded_known}};
  if (program.failed) out["failed"] = true;
  if (program.times_full > 0) out["times_full"] = program.times_full;
  if (program.times_given_back > 0) out["times_given_back"] = program.times_given_back;
  if (program.recorded_peak_bytes) out["recorded_reserved_bytes"] = *program.recorded_peak_bytes;
  return out;
}

bool any_failed(const Advice& advice) {
  return std::any_of(advice.programs.begin(), advice.programs.end(),
                     [](const ProgramFacts& program) { return program.failed; });
}

std::string_view outcome_name(AdviceOutcome outcome) {
  switch (outcome) {
    case AdviceOutcome::kNothingNeeded: return "nothing needed";
    case AdviceOutcome::kRaiseLimit: return "raise the limit";
    case AdviceOutcome::kSet: return "set";
    case AdviceOutcome::kNothingFits: return "nothing fits";
    case AdviceOutcome::kHopeless: return "hopeless";
  }
  return "";
}

}  // namespace

std::string advice_verdict(const Advice& advice) {
  std::string verdict = verdict_on_settings(advice) + about_the_limit(advice);
  for (const ProgramFacts& program : advice.programs)
    if (!program.contradiction.empty())
      verdict += fmt::format(" {}: {}", program.name, program.contradiction);
  return verdict;
}

std::string advice_text(const Advice& advice, std::optional<double> seconds) {
  std::string out = title(advice) + "\n" + advice_verdict(advice) + "\n";
  const bool settings = advice.outcome == AdviceOutcome::kSet;
  if (settings) {
    out += fmt::format("\n  {}\n\n", line_to_paste(advice));
    const TorchVersion since = std::max(accepted_since(advice.best.conf),
                                        variable_since(conf_variable(advice.torch)));
    out += fmt::format("PyTorch {} and newer accept it. The same figures from replays: tenon "
                       "replay {} --conf '{}' --find-capacity{}\n",
                       since.text(), files(advice), advice.best.conf,
                       any_failed(advice) ? " --serve-failed" : "");
  }
  if (settings && any_failed(advice) && advice.capacity_bytes != 0)
    out += fmt::format("With it, {} are left for what the program asks for after the recording.\n",
                       bytes(advice.capacity_bytes - advice.best.at_worst().min_capacity_bytes));
  if (advice.failure_not_replayed)
    out += "The recording failed, and its replay with the same settings does not: blocks from "
           "before the recording may have other addresses. Leave a margin.\n";
  out += "\n" + comparison(advice);
  if (advice.programs.size() > 1) out += "\n" + rank_table(advice);
  out += shown_by_nvidia_smi(advice);
  const std::string note = fidelity_note(advice.recorded.conf);
  if (!note.empty()) out += "the recorded settings are not replayed exactly: " + note;
  return out + fmt::format("{} settings tried{}.\n", grouped(advice.settings_tried),
                           seconds ? fmt::format(" in {:.1f} s", *seconds) : "");
}

std::string advice_json(const Advice& advice, double seconds) {
  const AdviceFigures& best = advice.best.at_worst();
  const bool hopeless = advice.outcome == AdviceOutcome::kHopeless;
  Json out = json_of(advice.programs[advice.best.worst()]);
  out["live_peak_bytes"] = advice.live_peak_bytes;
  out["torch"] = advice.torch.text();
  if (advice.card_bytes != 0) out["card_bytes"] = advice.card_bytes;
  if (advice.capacity_bytes != 0) out["capacity_bytes"] = advice.capacity_bytes;
  out["outside_bytes"] = advice.outside.total();
  out["outcome"] = outcome_name(advice.outcome);
  out["conf"] = advice.best.conf;
  out["line"] = line_to_paste(advice);
  out["reserved_peak_bytes"] = best.reserved_peak_bytes;
  out["min_capacity_bytes"] = best.min_capacity_bytes;
  out["helps"] = !hopeless && advice.outcome != AdviceOutcome::kNothingFits;
  out["missing_bytes"] = hopeless ? advice.live_peak_bytes - advice.capacity_bytes : 0;
  out["verdict"] = advice_verdict(advice);
  out["recorded"] = json_of(advice.recorded);
  out["best"] = json_of(advice.best);
  out["default"] = json_of(advice.defaults);
  if (advice.expandable) out["expandable"] = json_of(*advice.expandable);
  if (advice.programs.size() > 1) {
    out["worst"] = rank_name(advice, advice.best.worst());
    for (const ProgramFacts& program : advice.programs) out["programs"].push_back(json_of(program));
  }
  if (const auto failure = advice.failure_of_limit())
    out["limit_at_least_bytes"] = failure->reserved_bytes;
  if (any_failed(advice))  // without a capacity no replay can fail
    out["failure_replayed"] =
        advice.capacity_bytes == 0 ? Json(nullptr) : Json(!advice.failure_not_replayed);
  out["settings_tried"] = advice.settings_tried;
  out["seconds"] = seconds;
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tenon
