// What the lab says of a recording: the same functions that the command calls.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>
#include <utility>

#include "arguments.h"
#include "gil.h"
#include "recording.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/heap/plan.h"
#include "tenon/lab/advice/advice_report.h"
#include "tenon/lab/advice/recorded_programs.h"
#include "tenon/lab/advice/recorded_settings.h"
#include "tenon/lab/explain/diff.h"
#include "tenon/lab/explain/explain.h"
#include "tenon/lab/failed_requests.h"
#include "tenon/lab/planning/plan_file.h"
#include "tenon/lab/planning/plan_report.h"
#include "tenon/lab/ranks/report_page.h"
#include "tenon/lab/replay_answer.h"
#include "tenon/lab/report.h"
#include "tenon/lab/survey.h"
#include "tenon/lab/view/answer.h"
#include "tenon/lab/view/page.h"
#include "tenon/lab/view/view_data.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/file_bytes.h"
#include "viewer_page.h"
#include "work.h"

namespace tenon::python {
namespace {

// The page of a recording, and its figures.
struct Page {
  std::string html;
  std::string figures;
};

const Trace& trace_at(const SharedRecording& recording, std::size_t device) {
  const std::vector<Trace>& traces = recording->snapshot.traces;
  if (device >= traces.size())
    throw nb::index_error(("device " + std::to_string(device) + ": " + recording->path +
                           " has recordings of " + std::to_string(traces.size()) + " devices")
                              .c_str());
  return traces[device];
}

// Whether a device is meant: one of the recording's, or any.
bool is_meant(std::optional<std::size_t> device, std::size_t number) {
  return !device || *device == number;
}

// The recording's own snapshot, or a copy that replays follow another PyTorch's rules with.
std::shared_ptr<const Snapshot> followed(const SharedRecording& recording,
                                         std::optional<TorchVersion> torch) {
  if (!torch) return {recording, &recording->snapshot};
  auto copy = std::make_shared<Snapshot>(recording->snapshot);
  replay_as(*torch, *copy);
  return copy;
}

std::optional<TorchVersion> version_of(const std::string& torch) {
  return torch.empty() ? std::nullopt : std::optional(parse_torch_version(torch));
}

Answer explain_recording(const SharedRecording& recording, std::optional<std::size_t> device,
                         bool replay, nb::handle progress) {
  if (device) trace_at(recording, *device);
  return interruptible(progress, [&](const Report& report) {
    report(-1, "explaining " + recording->path);
    std::optional<Snapshot> of_one;
    if (device && recording->snapshot.traces.size() > 1) {
      of_one = recording->snapshot;
      of_one->traces = {recording->snapshot.traces[*device]};
    }
    auto explanation = std::make_shared<const Explanation>(
        explain(of_one ? *of_one : recording->snapshot, recording->path, {.replay = replay}));
    return Answer{explanation_json(*explanation),
                  [explanation](std::size_t rows) { return explanation_text(*explanation, rows); },
                  {}};
  });
}

// As `tenon advise` with the recordings' files: all devices, or the one given.
Answer advise_recordings(const std::vector<SharedRecording>& recordings,
                         std::optional<std::size_t> device, AdviceOptions options,
                         const std::string& card, std::optional<std::uint64_t> reserve_bytes,
                         const std::string& torch, nb::handle progress) {
  const std::optional<TorchVersion> version = version_of(torch);
  for (const SharedRecording& recording : recordings) {
    if (device) trace_at(recording, *device);
    if (recording->snapshot.traces.empty())
      throw InvalidArgument(recording->path + " holds no recorded events");
  }
  return interruptible(progress, [&](const Report& report) {
    RecordedPrograms recorded;
    for (const SharedRecording& recording : recordings) {
      const std::shared_ptr<const Snapshot> snapshot = followed(recording, version);
      std::optional<std::uint32_t> number;
      if (device) number = snapshot->traces[*device].device;
      add_programs(*snapshot, recording->path, number, recorded);
    }
    if (recorded.programs.empty() && !recorded.warnings.empty())
      throw InvalidArgument(recorded.warnings.front());
    complete_options(options, recorded, recorded.programs.size(), card);
    if (reserve_bytes) options.outside = {*reserve_bytes, 0, "as given"};
    if (version) options.torch = *version;
    const auto start = std::chrono::steady_clock::now();
    const Advice advice = advise(recorded.programs, options, [&](std::string_view step) {
      report(-1, "trying " + std::string(step));
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    const std::string text = advice_text(advice, elapsed.count());
    return Answer{advice_json(advice, elapsed.count()), [text](std::size_t) { return text; }, {}};
  });
}

Answer plan_recording(const SharedRecording& recording, std::size_t device,
                      std::uint64_t capacity_bytes, bool whole, bool own_memory,
                      nb::handle progress) {
  const Trace& trace = trace_at(recording, device);
  PlanOptions options;
  options.find_loops = !whole;
  options.share_streams = !own_memory;
  return interruptible(progress, [&](const Report& report) {
    report(-1, "planning " + trace.name);
    auto planned = std::make_shared<PlannedTrace>(plan_trace(trace, options));
    planned->report.capacity_bytes = capacity_bytes;
    return Answer{
        plan_json(planned->report), [planned](std::size_t) { return plan_text(planned->report); },
        [planned](const std::string& path) { write_file(path, format_plan(planned->plan)); }};
  });
}

// As `tenon replay` with the recordings' files: all devices, or the one given.
Answer replay_recordings(const std::vector<SharedRecording>& recordings,
                         const std::vector<std::string>& policies, SurveyOptions options,
                         const std::string& plan_file, std::optional<std::size_t> device,
                         bool serve_failed, const std::string& torch, nb::handle progress) {
  const std::optional<TorchVersion> version = version_of(torch);
  options.policies = command::parse_policies(policies);
  for (const SharedRecording& recording : recordings)
    if (device) trace_at(recording, *device);
  return interruptible(progress, [&](const Report& report) {
    Plan plan;
    if (!plan_file.empty()) {
      plan = parse_plan(FileBytes(plan_file).view(), plan_file);
      options.plan = &plan;
    }
    std::vector<Workload> workloads;
    std::vector<RecordedSettings> settings;
    for (const SharedRecording& recording : recordings) {
      const std::shared_ptr<const Snapshot> snapshot = followed(recording, version);
      for (std::size_t number = 0; number < snapshot->traces.size(); ++number) {
        if (!is_meant(device, number)) continue;
        const Trace& trace = snapshot->traces[number];
        if (serve_failed)
          workloads.emplace_back(with_failed_requests(trace));
        else
          workloads.emplace_back(trace);
        settings.push_back(recorded_settings(*snapshot));
      }
    }
    choose_rows(options, settings);
    const std::vector<SurveyResult> results = survey(
        workloads, options,
        [&](std::size_t done, std::size_t all, std::string_view trace, std::string_view policy,
            std::string_view step) {
          report(static_cast<double>(done) / static_cast<double>(all),
                 std::string(step) + " " + std::string(trace) + " over " + std::string(policy));
        });
    for (const SurveyResult& result : results)
      if (!result.error.empty())
        throw InternalError(result.trace + " over " + result.policy + ": " + result.error);
    const std::string text = replay_text(results, options, workloads, settings);
    return Answer{report_json(results), [text](std::size_t) { return text; }, {}};
  });
}

Page view_recording(const SharedRecording& recording, std::size_t device,
                    const std::vector<std::string>& policies, std::uint64_t capacity_bytes,
                    const std::string& conf, std::uint64_t lag_ns, nb::handle progress) {
  const Trace& trace = trace_at(recording, device);
  ViewOptions options;
  options.policies = command::parse_policies(policies);
  options.conf = conf;
  options.lag_ns = lag_ns;
  options.capacity_bytes = capacity_bytes;
  options.file = recording->path;
  return interruptible(progress, [&](const Report& report) {
    report(-1, "explaining " + trace.name);
    {
      const TraceFacts facts(trace);
      options.answer = view_answer(
          facts,
          explain_device(facts, recording->snapshot, {.replay = has_failed_requests(trace)}));
    }
    report(-1, "replaying " + trace.name);
    options.segments = recording->snapshot.segments;
    const ViewData data = make_view(trace, options, ColumnsAt::kPage);
    report(-1, "writing the page");
    return Page{make_page(command::viewer_page(), data), data.figures};
  });
}

// As `tenon report` with the recordings' files.
Page report_recordings(const std::vector<SharedRecording>& recordings, bool replay, bool advice,
                       std::uint64_t capacity_bytes, nb::handle progress) {
  return interruptible(progress, [&](const Report& report) {
    tenon::Report page;
    page.capacity_bytes = capacity_bytes;
    for (const SharedRecording& recording : recordings) {
      report(-1, "explaining " + recording->path);
      std::vector<Rank> ranks = ranks_of(recording->snapshot, recording->path, {.replay = replay});
      if (ranks.empty()) throw InvalidArgument(recording->path + " holds no recorded events");
      for (Rank& rank : ranks) page.ranks.push_back(std::move(rank));
    }
    name_ranks(page.ranks);
    page.comparison = compare_ranks(page.ranks);
    const std::string& advised = page.ranks[page.comparison.first].path;
    report(-1, "trying settings");
    for (const SharedRecording& recording : recordings)
      if (advice && recording->path == advised) {
        add_advice(page, recording->snapshot);
        break;
      }
    return Page{report_html(page), report_json(page)};
  });
}

// As `tenon diff` does with two files.
Answer diff_recordings(const SharedRecording& before, const SharedRecording& after,
                       bool ignore_lines, nb::handle progress) {
  return interruptible(progress, [&](const Report& report) {
    report(-1, "comparing");
    auto diffs = std::make_shared<const std::vector<TraceDiff>>(
        diff_all(before->snapshot.traces, after->snapshot.traces, ignore_lines));
    return Answer{diff_json(*diffs),
                  [diffs](std::size_t rows) {
                    std::string text;
                    for (const TraceDiff& one : *diffs) text += diff_text(one, rows);
                    return text;
                  },
                  {}};
  });
}

std::vector<std::pair<std::string, std::string>> policy_list() {
  std::vector<std::pair<std::string, std::string>> list;
  for (const Policy& policy : policies()) list.emplace_back(policy.name, policy.summary);
  return list;
}

}  // namespace

void bind_answers(nb::module_& module) {
  nb::class_<Answer>(module, "Answer")
      .def_prop_ro("json", [](const Answer& answer) { return nb::str(answer.json.c_str()); })
      .def("text", [](const Answer& answer, std::size_t rows) { return answer.text(rows); })
      .def("save", [](const Answer& answer, const std::string& path) {
        if (!answer.save) throw nb::type_error("only a plan is a file");
        const WithoutGil release;
        answer.save(path);
      });
  nb::class_<Page>(module, "Page")
      .def_prop_ro("html", [](const Page& page) { return page.html; })
      .def_prop_ro("figures", [](const Page& page) { return page.figures; });
  nb::class_<SurveyOptions>(module, "SurveyOptions")
      .def(nb::init<>())
      .def_rw("conf", &SurveyOptions::conf)
      .def_rw("page_bytes", &SurveyOptions::page_bytes)
      .def_rw("capacity_bytes", &SurveyOptions::capacity_bytes)
      .def_rw("find_capacity", &SurveyOptions::find_capacity)
      .def_rw("lag_ns", &SurveyOptions::lag_ns)
      .def_rw("passes", &SurveyOptions::passes)
      .def_rw("threads", &SurveyOptions::threads);
  nb::class_<AdviceOptions>(module, "AdviceOptions")
      .def(nb::init<>())
      .def_rw("capacity_bytes", &AdviceOptions::capacity_bytes)
      .def_rw("lag_ns", &AdviceOptions::lag_ns)
      .def_rw("threads", &AdviceOptions::threads)
      .def_rw("effort", &AdviceOptions::effort);
  const auto progress = nb::arg("progress").none();
  module.def("explain", &explain_recording, nb::arg("recording"), nb::arg("device").none(),
             nb::arg("replay"), progress);
  module.def("advise", &advise_recordings, nb::arg("recordings"), nb::arg("device").none(),
             nb::arg("options"), nb::arg("card"), nb::arg("reserve_bytes").none(), nb::arg("torch"),
             progress);
  module.def("plan", &plan_recording, nb::arg("recording"), nb::arg("device"),
             nb::arg("capacity_bytes"), nb::arg("whole"), nb::arg("own_memory"), progress);
  module.def("replay", &replay_recordings, nb::arg("recordings"), nb::arg("policies"),
             nb::arg("options"), nb::arg("plan_file"), nb::arg("device").none(),
             nb::arg("serve_failed"), nb::arg("torch"), progress);
  module.def("view", &view_recording, nb::arg("recording"), nb::arg("device"), nb::arg("policies"),
             nb::arg("capacity_bytes"), nb::arg("conf"), nb::arg("lag_ns"), progress);
  module.def("report", &report_recordings, nb::arg("recordings"), nb::arg("replay"),
             nb::arg("advice"), nb::arg("capacity_bytes"), progress);
  module.def("diff", &diff_recordings, nb::arg("before"), nb::arg("after"), nb::arg("ignore_lines"),
             progress);
  module.def("write_file", [](const std::string& path, const std::string& bytes) {
    const WithoutGil release;
    write_file(path, bytes);
  });
  module.def("policies", &policy_list);
  module.def("parse_bytes", [](const std::string& text) { return parse_byte_size(text); });
  module.def("format_bytes", &format_byte_size);
  module.def("parse_duration_ns",
             [](const std::string& text) { return command::parse_duration_ns("lag", text); });
}

}  // namespace tenon::python
