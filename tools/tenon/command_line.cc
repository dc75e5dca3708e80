#include "command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <sstream>
#include <system_error>
#include <type_traits>

#include "commands.h"
#include "tenon/base/error.h"
#include "tenon/base/parse_real.h"

namespace tenon::command {
namespace {

// Names of checks that a later call may turn off.
constexpr const char* kIsInteger = "is an integer";
constexpr const char* kIsGiven = "is given";

}  // namespace

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::set_default(const std::string& text) {
  option_->default_val(text);
  return *this;
}

Option& Option::take_one() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::between(double low, double high, const char* of) {
  const bool whole = low == std::floor(low) && high == std::floor(high);
  const std::string from = whole ? fmt::format("{:.0f}", low) : fmt::format("{}", low);
  const std::string to = whole ? fmt::format("{:.0f}", high) : fmt::format("{}", high);
  const std::string kind = fmt::format("{}number{}", is_integer_ ? "whole " : "", of);
  if (is_integer_) option_->get_validator(kIsInteger)->active(false);  // these limits say more
  option_->check(CLI::Validator(
      [=, digits = is_integer_](const std::string& text) {
        char* end = nullptr;
        const double number = std::strtod(text.c_str(), &end);
        const bool inside = !text.empty() && *end == '\0' && number >= low && number <= high &&
                            !(digits && number != std::floor(number));
        if (inside) return std::string();
        return fmt::format("{} is no {} from {} to {}", text, kind, from, to);
      },
      fmt::format("{} in [{} - {}]", is_integer_ ? "INT" : "FLOAT", from, to)));
  return *this;
}

Option& Option::not_negative() {
  option_->check(CLI::Validator(
      [](const std::string& text) {
        const std::optional<double> number = parse_real(text);
        return number && *number >= 0 ? std::string()
                                      : fmt::format("{} is no number from 0 on", text);
      },
      "NONNEGATIVE"));
  return *this;
}

Option& Option::may_be_empty() {
  option_->get_validator(kIsGiven)->active(false);
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::Validator(
      [=](const std::string& text) {
        if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
        return fmt::format("{} is none of {}", text, fmt::join(words, ", "));
      },
      fmt::format("{{{}}}", fmt::join(words, ","))));
  return *this;
}

CommandLine::CommandLine(const std::string& about, const std::string& version)
    : owned_(std::make_unique<CLI::App>(about)), app_(owned_.get()) {
  app_->set_version_flag("--version", version);
}

CommandLine::CommandLine(CLI::App* app) : app_(app), name_(app->get_name()) {}
CommandLine::~CommandLine() = default;

CommandLine& CommandLine::add_subcommand(const std::string& name, const std::string& about) {
  CLI::App* app = app_->add_subcommand(name, about);
  app->footer("");  // else the examples of the outer command
  subcommands_.push_back(std::unique_ptr<CommandLine>(new CommandLine(app)));
  return *subcommands_.back();
}

void CommandLine::require_subcommand() { app_->require_subcommand(1); }
void CommandLine::footer(const std::string& text) { app_->footer(text); }
const std::string& CommandLine::name() const { return name_; }
bool CommandLine::was_named() const { return app_->parsed(); }
bool CommandLine::was_given(const std::string& option) const { return app_->count(option) > 0; }

namespace {

// CLI11 takes the nearest number for one that is too large, and 2^64 - 1 for -1.
template <typename T>
std::string complaint_of_integer(const std::string& text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end) return {};
  return fmt::format("{} is no whole number from {} to {}", text, std::numeric_limits<T>::min(),
                     std::numeric_limits<T>::max());
}

std::string complaint_of_text(const std::string& text) {
  if (text.empty()) return "the value is empty";
  if (text != "-") return {};
  return "- stands for no file: standard input is /dev/stdin, standard output /dev/stdout, a file "
         "of that name ./-";
}

}  // namespace

template <typename T>
Option CommandLine::add_option(const std::string& names, T& value, const std::string& help) {
  CLI::Option* const option = app_->add_option(names, value, help);
  if constexpr (std::is_integral_v<T>)
    option->check(CLI::Validator(complaint_of_integer<T>, "", kIsInteger));
  else if constexpr (!std::is_floating_point_v<T>)
    option->check(CLI::Validator(complaint_of_text, "", kIsGiven));
  return Option(option, std::is_integral_v<T>);
}

template Option CommandLine::add_option(const std::string&, std::string&, const std::string&);
template Option CommandLine::add_option(const std::string&, std::vector<std::string>&,
                                        const std::string&);
template Option CommandLine::add_option(const std::string&, double&, const std::string&);
template Option CommandLine::add_option(const std::string&, int&, const std::string&);
template Option CommandLine::add_option(const std::string&, unsigned&, const std::string&);
template Option CommandLine::add_option(const std::string&, std::uint16_t&, const std::string&);
template Option CommandLine::add_option(const std::string&, std::int64_t&, const std::string&);
template Option CommandLine::add_option(const std::string&, std::uint64_t&, const std::string&);

void CommandLine::add_flag(const std::string& names, bool& value, const std::string& help) {
  app_->add_flag(names, value, help);
}

namespace {

// What CLI11 would take another way: it gives an option that ends in "=" the next argument, such as
// an input file, and "-o=page" the value "=page". Empty: there is nothing to complain of.
std::string misread_argument(int argc, char** argv) {
  for (int i = 1; i < argc && argv[i] != std::string_view("--"); ++i) {
    const std::string_view given = argv[i];
    if (given.starts_with("--") && given.size() > 3 && given.ends_with('='))
      return fmt::format("{} has no value: give one, or leave the option out",
                         given.substr(0, given.size() - 1));
    if (given.size() > 2 && given[0] == '-' && given[1] != '-' && given[2] == '=')
      return fmt::format("{}: write {} {}", given, given.substr(0, 2),
                         given.size() == 3 ? "and a value" : given.substr(3));
  }
  return {};
}

}  // namespace

CommandLine::Parsed CommandLine::parse(int argc, char** argv) {
  const auto is_named = [&](const auto& subcommand) { return subcommand->name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' &&
      std::none_of(subcommands_.begin(), subcommands_.end(), is_named)) {
    std::string names;
    for (const auto& subcommand : subcommands_)
      names += (names.empty() ? "" : ", ") + subcommand->name();
    throw InvalidArgument(fmt::format("\"{}\" is no subcommand: there are {}", argv[1], names));
  }
  if (const std::string complaint = misread_argument(argc, argv); !complaint.empty())
    throw InvalidArgument(complaint);
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    std::ostringstream text;
    const int status = app_->exit(success, text, text);
    fmt::print("{}", text.str());
    return {false, status};
  } catch (const CLI::ParseError& error) {
    std::string command = "tenon";
    for (const CLI::App* at = app_; !at->get_subcommands().empty();) {
      at = at->get_subcommands().front();  // of those that were given
      command += " " + at->get_name();
    }
    throw InvalidArgument(fmt::format("{}; see {} --help", error.what(), command));
  }
  return {};
}

}  // namespace tenon::command
