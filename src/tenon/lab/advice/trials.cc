#include "tenon/lab/advice/trials.h"

#include <algorithm>

#include "tenon/lab/capacity.h"
#include "tenon/lab/jobs.h"

namespace tenon {
namespace {

// Replays that a search for the smallest device takes, about; those that fail end early.
constexpr double kReplaysPerSearch = 6;

void find_device(const Workload& workload, const ReplaySetup& setup, AdviceFigures& figures) {
  if (figures.reserved_peak_bytes == AdviceFigures::kNever) return;
  figures.min_capacity_bytes = find_min_capacity(workload, setup, figures.reserved_peak_bytes);
}

bool fits_into(const Workload& workload, ReplaySetup setup, std::uint64_t capacity_bytes,
               const AdviceFigures& figures) {
  if (figures.reserved_peak_bytes <= capacity_bytes) return true;
  if (workload.live_peak_bytes() > capacity_bytes) return false;
  setup.capacity_bytes = capacity_bytes;
  return fits(workload, setup);
}

}  // namespace

Trials::Trials(const std::vector<AdvisedProgram>& programs, const AdviceOptions& options)
    : programs_(programs), options_(options) {}

ReplaySetup Trials::setup(const std::string& conf) const {
  ReplaySetup made;
  made.policy = "caching";
  made.options.conf = conf;
  made.lag_ns = options_.lag_ns;
  return made;
}

Trials::Trial& Trials::trial(const std::string& conf) {
  Trial& made = tried_[conf];
  if (made.figures.programs.empty()) {
    made.figures.conf = conf;
    made.figures.programs.resize(programs_.size());
  }
  return made;
}

bool Trials::has_reserved(const std::string& conf) const {
  const auto& programs = tried_.at(conf).figures.programs;
  return std::none_of(programs.begin(), programs.end(), [](const AdviceFigures& figures) {
    return figures.reserved_peak_bytes == AdviceFigures::kNever;
  });
}

bool Trials::has_devices(const std::string& conf) const { return tried_.at(conf).devices; }

std::vector<Trials::Job> Trials::jobs_of(const std::vector<std::string>& confs) {
  std::vector<Job> jobs;
  for (const std::string& conf : confs)
    for (std::size_t program = 0; program < programs_.size(); ++program)
      jobs.push_back({program, &trial(conf).figures.programs[program], conf});
  return jobs;
}

void Trials::run(const std::vector<Job>& jobs, double replays_each,
                 const std::function<void(const Job&)>& work) {
  for (const Job& job : jobs)
    events_replayed_ +=
        replays_each * static_cast<double>(programs_[job.program].workload->ops().size());
  run_jobs(jobs.size(), options_.threads, [&](std::size_t i) { work(jobs[i]); });
}

void Trials::find_reserved(const std::vector<std::string>& confs,
                           const std::vector<std::uint64_t>& limits) {
  std::vector<std::string> fresh;
  for (const std::string& conf : confs)
    if (!tried_.contains(conf) && std::find(fresh.begin(), fresh.end(), conf) == fresh.end())
      fresh.push_back(conf);
  run(jobs_of(fresh), 1, [&](const Job& job) {
    job.out->reserved_peak_bytes =
        reserved_peak(*programs_[job.program].workload, setup(job.conf), limits[job.program])
            .value_or(AdviceFigures::kNever);
  });
}

void Trials::find_devices(const std::vector<std::string>& confs) {
  std::vector<std::string> fresh = confs;
  std::erase_if(fresh, [&](const std::string& conf) { return trial(conf).devices; });
  run(jobs_of(fresh), kReplaysPerSearch, [&](const Job& job) {
    find_device(*programs_[job.program].workload, setup(job.conf), *job.out);
  });
  for (const std::string& conf : fresh) trial(conf).devices = true;
}

void Trials::find_fits(const std::vector<std::string>& confs) {
  if (options_.capacity_bytes == 0) return;
  std::vector<std::string> fresh = confs;
  std::erase_if(fresh, [&](const std::string& conf) { return trial(conf).fits; });
  run(jobs_of(fresh), 1, [&](const Job& job) {
    job.out->fits = fits_into(*programs_[job.program].workload, setup(job.conf),
                              options_.capacity_bytes, *job.out);
  });
  for (const std::string& conf : fresh) trial(conf).fits = true;
}

void Trials::find_stalls(const std::vector<std::string>& confs) {
  run(jobs_of(confs), 1, [&](const Job& job) {
    job.out->driver_stall_ns =
        replay(*programs_[job.program].workload, setup(job.conf)).ledger.stall_ns;
  });
}

SettingsFigures Trials::measure_recorded() {
  SettingsFigures found;
  found.conf = programs_.front().recorded_conf;
  found.programs.resize(programs_.size());
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < programs_.size(); ++i)
    jobs.push_back({i, &found.programs[i], programs_[i].recorded_conf});
  run(jobs, 1 + kReplaysPerSearch, [&](const Job& job) {
    const Workload& workload = *programs_[job.program].workload;
    AdviceFigures& out = *job.out;
    const ReplayFigures whole = replay(workload, setup(job.conf));
    out.driver_stall_ns = whole.ledger.stall_ns;
    if (!whole.out_of_memory) out.reserved_peak_bytes = whole.reserved_peak_bytes;
    find_device(workload, setup(job.conf), out);
    if (options_.capacity_bytes != 0)
      out.fits = fits_into(workload, setup(job.conf), options_.capacity_bytes, out);
  });
  return found;
}

}  // namespace tenon
