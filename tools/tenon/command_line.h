// The options of the command and its subcommands. CLI11 reads them; its headers cost each source
// file that sees them several seconds of compiling, so only one does.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tenon::command {

// An option or argument; each function returns this one, to go on with.
class Option {
 public:
  Option(CLI::Option* option, bool is_integer) : option_(option), is_integer_(is_integer) {}
  Option& required();
  Option& show_default();                           // in the help: the value it has now
  Option& set_default(const std::string& text);
  Option& take_one();                               // of a list: what follows is something else
  // Refuses other numbers. `of`: what they count, for the refusal, like " of seconds".
  Option& between(double low, double high, const char* of = "");
  Option& not_negative();
  Option& may_be_empty();                           // text that is no name of a file
  Option& one_of(const std::vector<std::string>& words);

 private:
  CLI::Option* option_;
  bool is_integer_;
};

// A command with its options and subcommands. Values are written to the variables given, which must
// outlive it, when parse() is called on the outermost.
class CommandLine {
 public:
  // What ends the process without anything being run.
  struct Parsed {
    bool runs = true;
    int exit_status = 0;
  };

  CommandLine(const std::string& about, const std::string& version);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // The subcommand lives as long as this one.
  CommandLine& add_subcommand(const std::string& name, const std::string& about);
  void require_subcommand();
  void footer(const std::string& text);

  // For std::string, lists of them, double, and integers of 16 bits and more. `names`:
  // "-o,--output", or "FILE" for an argument by its place. Text must not be empty, nor "-", which
  // stands for no file.
  template <typename T>
  Option add_option(const std::string& names, T& value, const std::string& help);
  void add_flag(const std::string& names, bool& value, const std::string& help);

  const std::string& name() const;

  // Prints help or the complaint where there is one.
  Parsed parse(int argc, char** argv);
  bool was_named() const;                          // after parse(): whether this subcommand was
  bool was_given(const std::string& option) const; // after parse()

 private:
  explicit CommandLine(CLI::App* app);

  std::unique_ptr<CLI::App> owned_;  // of the outermost
  CLI::App* app_;
  std::string name_;
  std::vector<std::unique_ptr<CommandLine>> subcommands_;
};

}  // namespace tenon::command
