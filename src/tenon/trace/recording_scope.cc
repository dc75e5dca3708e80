#include "tenon/trace/recording_scope.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tenon/base/environment.h"
#include "tenon/base/file_writer.h"
#include "tenon/base/printable.h"
#include "tenon/trace/write.h"

namespace tenon {
namespace {

// "run.csv.zst" -> "run.oom.csv.zst"
std::string failure_path(const std::string& path) {
  const std::size_t name = path.find_last_of('/') + 1;  // npos + 1 is 0
  const std::size_t dot = path.find('.', name == path.size() ? name : name + 1);
  const std::size_t at = dot == std::string::npos ? path.size() : dot;
  return path.substr(0, at) + ".oom" + path.substr(at);
}

// What goes wrong, on standard error if that is open: some programs close it before they end, and
// fmt::print throws then.
void complain(const std::string& line) {
  std::fputs(("tenon: " + one_line(line) + "\n").c_str(), stderr);
}

// The recording that TENON_RECORD asks for. Not destroyed but finished: static allocators may still
// be watched by it.
RecordingScope* of_environment = nullptr;
bool of_environment_is_lost = false;

void lose_recording(const std::exception& error) {
  complain(fmt::format("TENON_RECORD: {}", error.what()));
  of_environment_is_lost = true;
}

void finish_recording_of_environment() {
  if (of_environment == nullptr) return;
  try {
    of_environment->finish_unless_empty();
  } catch (const std::exception& error) {
    lose_recording(error);
  }
}

}  // namespace

RecorderOptions recording_options(const std::string& path) {
  RecorderOptions options;
  if (traces_format(path) == TraceFormat::kSnapshot) options.stack_depth = 24;
  options.out_of_memory_path = failure_path(path);
  return options;
}

RecordingScope::RecordingScope(std::string path)
    : RecordingScope(path, recording_options(path)) {}

RecordingScope::RecordingScope(std::string path, RecorderOptions options)
    : path_(std::move(path)), recorder_(trace_name(path_), std::move(options)) {
  traces_format(path_);  // throws
  FileWriter::check(path_);
  ObserverList::add_to_all(&recorder_);
  add_sleep_listener(&recorder_);
}

void RecordingScope::stop_watching() {
  watching_ = false;
  ObserverList::remove_from_all(&recorder_);
  remove_sleep_listener(&recorder_);
}

void RecordingScope::finish() {
  if (!watching_) return;
  stop_watching();
  write_traces(recorder_.take_all(), path_);
}

void RecordingScope::finish_unless_empty() {
  std::error_code missing;
  if (watching_ && recorder_.is_empty() && std::filesystem::exists(path_, missing)) {
    stop_watching();
    return;
  }
  finish();
}

RecordingScope::~RecordingScope() {
  try {
    finish();
  } catch (const std::exception& error) {
    complain(fmt::format("the recording is lost: {}", error.what()));
  }
}

bool keep_recording_of_environment() {
  finish_recording_of_environment();
  return !of_environment_is_lost;
}

bool recording_of_environment_is_lost() { return of_environment_is_lost; }

}  // namespace tenon

// Begins the recording that TENON_RECORD asks for. The name is one that the build tells every
// program's linker to look for (CMakeLists.txt), or programs that do not record by themselves would
// not have it.
extern "C" {
extern const bool tenon_recording_from_environment;
const bool tenon_recording_from_environment = [] {
  try {
    const std::string path(tenon::environment_value("TENON_RECORD"));
    if (path.empty()) return false;
    tenon::of_environment = new tenon::RecordingScope(path);
    return std::atexit(tenon::finish_recording_of_environment) == 0;
  } catch (const std::exception& error) {
    tenon::lose_recording(error);
    return false;
  }
}();
}
