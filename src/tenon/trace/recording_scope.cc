#include "tenon/trace/recording_scope.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tenon/base/environment.h"
#include "tenon/base/file_writer.h"
#include "tenon/base/printable.h"
#include "tenon/memory/host/host_thread.h"
#include "tenon/trace/recording_place.h"
#include "tenon/trace/write.h"

namespace tenon {
namespace {

// What goes wrong, on standard error if that is open: some programs close it before they end, and
// fmt::print throws then.
void complain(const std::string& line) {
  std::fputs(("tenon: " + one_line(line) + "\n").c_str(), stderr);
}

// The recording that TENON_RECORD asks for. Not destroyed but finished: static allocators may still
// be watched by it.
struct OfEnvironment {
  const std::string asked{environment_value("TENON_RECORD")};
  const RecordingPlace place{asked};
  RecordingScope scope{place.path(), recording_options(asked)};
};
OfEnvironment* of_environment = nullptr;
bool of_environment_is_lost = false;

void lose_recording(const std::exception& error) {
  complain(fmt::format("TENON_RECORD: {}", error.what()));
  of_environment_is_lost = true;
}

void finish_recording_of_environment() {
  if (of_environment == nullptr) return;
  RecordingScope& scope = of_environment->scope;
  const RecordingPlace& place = of_environment->place;
  try {
    const RecordingPlace::Turn turn(place);
    const bool anothers = place.is_anothers();
    const std::string own = anothers ? place.own_path() : place.path();
    if (scope.finish_unless_empty(own) && anothers)
      complain(fmt::format("TENON_RECORD: {} is by another process: this one's recording is {}",
                           place.path(), own));
  } catch (const std::exception& error) {
    lose_recording(error);
  }
}

}  // namespace

RecorderOptions recording_options(const std::string& path) {
  RecorderOptions options;
  if (traces_format(path) == TraceFormat::kSnapshot) options.stack_depth = 24;
  options.out_of_memory_path = with_inner_ending(path, "oom");
  return options;
}

RecordingScope::RecordingScope(std::string path)
    : RecordingScope(path, recording_options(path)) {}

RecordingScope::RecordingScope(std::string path, RecorderOptions options)
    : path_(std::move(path)), recorder_(trace_name(path_), std::move(options)) {
  traces_format(path_);  // throws
  FileWriter::check(path_);
  HostThread::watch_forks();
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

bool RecordingScope::finish_unless_empty(const std::string& path) {
  if (!watching_) return false;
  stop_watching();
  std::error_code missing;
  if (recorder_.is_empty() && (recorder_.is_child() || std::filesystem::exists(path_, missing)))
    return false;
  write_traces(recorder_.take_all(), path);
  return true;
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

void keep_no_failure_of_environment() {
  if (of_environment != nullptr) of_environment->scope.keep_no_failure();
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
    if (tenon::environment_value("TENON_RECORD").empty()) return false;
    tenon::of_environment = new tenon::OfEnvironment;
    return std::atexit(tenon::finish_recording_of_environment) == 0;
  } catch (const std::exception& error) {
    tenon::lose_recording(error);
    return false;
  }
}();
}
