// What the command's process owes the one that started it: sound descriptors, an exit status that
// tells whether the output arrived, one line on standard error.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tenon::command {

// Makes failures of the surroundings errors that are reported: a limit on file sizes, a file that
// is shortened while it is mapped, a standard descriptor that the caller closed, memory that runs
// out where a destructor needs some.
void prepare_process();

// Throws InvalidArgument where TENON_RECORD names a file that is among the arguments.
void require_recording_elsewhere(int argc, char** argv);

// "tenon: " and the message on standard error, a line for each of its lines. Names in it may hold
// what a terminal obeys: U+FFFD takes its place.
void tell(std::string_view message);

// Messages begin with `prefix` from now on, and `before` runs before a failure is reported.
void set_reporting(const std::string& prefix, std::function<void()> before);

// Runs the command; exceptions become a line on standard error and an exit status. At the end
// standard output is written out: where that fails, so does the command, with one line; where
// the reader of a pipe is gone, quietly, with the status that shells give for SIGPIPE. The
// loss of the recording that TENON_RECORD asks for is a failure too: at once, if it cannot begin.
int run_guarded(const std::function<int()>& run);

}  // namespace tenon::command
