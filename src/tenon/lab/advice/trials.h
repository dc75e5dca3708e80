// Settings tried by replay, each at most once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tenon/lab/advice/advice.h"
#include "tenon/lab/replayer.h"

namespace tenon {

// What is known of settings by replays, and the replays that find more, several at a time. Not
// thread-safe; its replays run on threads of their own.
class Trials {
 public:
  Trials(const std::vector<AdvisedProgram>& programs, const AdviceOptions& options);

  // Reserved peaks of what has not been tried. A replay ends once it passes the program's limit.
  void find_reserved(const std::vector<std::string>& confs,
                     const std::vector<std::uint64_t>& limits);
  // Smallest devices, of those whose reserved peaks are known for all programs.
  void find_devices(const std::vector<std::string>& confs);
  // Whether they fit into the capacity, where one was given.
  void find_fits(const std::vector<std::string>& confs);
  void find_stalls(const std::vector<std::string>& confs);
  // The recording's own settings: a conf for each program.
  SettingsFigures measure_recorded();

  // Requires: tried.
  const SettingsFigures& figures(const std::string& conf) const { return tried_.at(conf).figures; }
  bool has_reserved(const std::string& conf) const;
  bool has_devices(const std::string& conf) const;
  std::size_t tried() const { return tried_.size(); }
  // Events replayed so far, as if every replay had run to its end.
  double events_replayed() const { return events_replayed_; }

 private:
  struct Trial {
    SettingsFigures figures;
    bool devices = false;
    bool fits = false;
  };
  struct Job {
    std::size_t program;
    AdviceFigures* out;
    std::string conf;
  };

  ReplaySetup setup(const std::string& conf) const;
  Trial& trial(const std::string& conf);
  std::vector<Job> jobs_of(const std::vector<std::string>& confs);
  void run(const std::vector<Job>& jobs, double replays_each,
           const std::function<void(const Job&)>& work);

  const std::vector<AdvisedProgram>& programs_;
  const AdviceOptions& options_;
  std::map<std::string, Trial> tried_;
  double events_replayed_ = 0;
};

}  // namespace tenon
