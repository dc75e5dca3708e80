#include "tenon/lab/survey.h"

#include <algorithm>
#include <exception>
#include <mutex>

#include "tenon/heap/plan.h"
#include "tenon/lab/capacity.h"
#include "tenon/lab/jobs.h"
#include "tenon/memory/gpu/pytorch_rules.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

class Survey {
 public:
  Survey(const std::vector<Workload>& workloads, const SurveyOptions& options,
         const SurveyProgress& progress)
      : workloads_(workloads),
        options_(options),
        progress_(progress),
        columns_(options.rows.empty() ? options.policies.size() : options.rows.size()),
        results_(workloads.size() * columns_) {}

  std::vector<SurveyResult> run() {
    run_untimed();
    if (options_.passes > 0) run_timed();
    return std::move(results_);
  }

 private:
  const Workload& workload(std::size_t job) const {
    return workloads_[job / columns_];
  }
  const SurveyRow* row(std::size_t job) const {
    return options_.rows.empty() ? nullptr : &options_.rows[job % columns_];
  }
  const std::string& policy(std::size_t job) const {
    return row(job) == nullptr ? options_.policies[job % columns_] : row(job)->policy;
  }
  const std::string& conf(std::size_t job) const {
    return row(job) == nullptr ? options_.conf : row(job)->confs.at(job / columns_);
  }
  ReplaySetup setup(std::size_t job) const {
    ReplaySetup made;
    made.policy = policy(job);
    made.options.conf = conf(job);
    made.options.page_bytes = options_.page_bytes;
    made.options.plan = options_.plan;
    made.lag_ns = options_.lag_ns;
    return made;
  }

  void run_untimed() {
    run_jobs(results_.size(), options_.threads,
             [&](std::size_t job) { guarded(job, "replaying", [&] { analyse(job); }); });
  }

  void run_timed() {
    std::optional<double> floor_ns;
    for (std::size_t job = 0; job < results_.size(); ++job) {
      guarded(job, "timing", [&] {
        if (job % columns_ == 0) {
          ReplaySetup floor;
          floor.policy = "null";
          floor_ns = measure_ns_per_event(workload(job), floor, options_.passes);
        }
        results_[job].ns_per_event =
            measure_ns_per_event(workload(job), setup(job), options_.passes);
      });
      results_[job].floor_ns = floor_ns;
    }
  }

  template <typename Work>
  void guarded(std::size_t job, std::string_view step, Work&& work) {
    SurveyResult& result = results_[job];
    if (!result.error.empty()) return;
    if (progress_) {
      const std::lock_guard lock(progress_mutex_);
      const std::size_t all = results_.size() * (options_.passes > 0 ? 2 : 1);
      progress_(started_++, all, workload(job).name(), policy(job), step);
    }
    try {
      work();
    } catch (const OutOfMemory& error) {
      result.error = error.what();
    } catch (const std::bad_alloc&) {
      result.error = "not enough memory on this machine";
    } catch (const std::exception& error) {
      result.error = error.what();
    }
  }

  void analyse(std::size_t job) {
    const Workload& load = workload(job);
    SurveyResult& result = results_[job];
    result.trace = load.name();
    result.policy = policy(job);
    if (row(job) != nullptr) {
      result.name = row(job)->name;
      result.conf = conf(job);
    }
    result.events = load.ops().size();
    result.live_peak_bytes = load.live_peak_bytes();
    result.trace_duration_us = load.duration_us();
    result.capacity_bytes = options_.capacity_bytes;

    ReplaySetup unlimited = setup(job);
    ReplayFigures figures = replay(load, unlimited);
    result.reserved_peak_bytes = figures.reserved_peak_bytes;
    result.fragmentation = figures.fragmentation();
    if (options_.find_capacity && !figures.out_of_memory)
      result.min_capacity_bytes = find_min_capacity(load, unlimited, figures.reserved_peak_bytes);
    if (options_.capacity_bytes != 0) {
      unlimited.capacity_bytes = options_.capacity_bytes;
      figures = replay(load, unlimited);
      result.reserved_in_capacity_bytes = figures.reserved_peak_bytes;
    }
    result.driver_calls = figures.ledger.memory_calls();
    result.driver_stall_ns = figures.ledger.stall_ns;
    result.moving_stall_ns = figures.ledger.moving_stall_ns;
    result.layout_hash = figures.layout_hash;
    result.out_of_memory = figures.out_of_memory;
  }

  const std::vector<Workload>& workloads_;
  const SurveyOptions& options_;
  const SurveyProgress& progress_;
  const std::size_t columns_;  // policies, or rows
  std::vector<SurveyResult> results_;
  std::mutex progress_mutex_;
  std::size_t started_ = 0;
};

}  // namespace

std::vector<SurveyResult> survey(const std::vector<Workload>& workloads,
                                 const SurveyOptions& options, const SurveyProgress& progress) {
  const auto check = [&, no_plan = Plan()](const std::string& name, const std::string& conf) {
    SimBackend device;
    parse_caching_settings(conf);  // also where no policy uses it
    make_policy(name, device,
                options_for(find_policy(name), {conf, 0, &no_plan, options.page_bytes}));
  };
  for (const std::string& policy : options.policies) check(policy, options.conf);
  for (const SurveyRow& row : options.rows)
    for (const std::string& conf : row.confs) check(row.policy, conf);
  return Survey(workloads, options, progress).run();
}

}  // namespace tenon
