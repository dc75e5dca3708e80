#include "tenon/lab/view/view_data.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>

#include "tenon/base/printable.h"
#include "tenon/lab/jobs.h"
#include "tenon/lab/view/policy_columns.h"
#include "tenon/lab/view/policy_view.h"
#include "tenon/lab/view/recorded_view.h"
#include "tenon/lab/view/sites.h"

namespace tenon {
namespace {

using Json = nlohmann::ordered_json;

// ASCII alone, so that no file's names can be anything but text wherever the JSON is put.
std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

// Each policy is packed as soon as it is replayed, so that only one for each thread is in memory
// at full size. `first`: the number of the first.
std::vector<PackedPolicy> replay_all(const Workload& workload, const ViewOptions& options,
                                     std::size_t first) {
  std::vector<PackedPolicy> views(options.policies.size());
  run_jobs(views.size(), 0, [&](std::size_t i) {
    ReplaySetup setup;
    setup.policy = options.policies[i];
    setup.options.conf = options.conf;
    setup.capacity_bytes = options.capacity_bytes;
    setup.lag_ns = options.lag_ns;
    views[i] = pack_policy(view_policy(workload, setup), first + i);
  });
  return views;
}

// Makes one ViewData; the parts share what they look up in the trace.
class ViewMaker {
 public:
  ViewMaker(Trace trace, const ViewOptions& options)
      : trace_(std::move(trace)),
        options_(options),
        workload_(trace_),
        sites_(find_sites(trace_)) {
    number_ops();
    find_peak();
  }

  ViewData make(ColumnsAt columns_at) {
    ViewData data;
    data.columns_at = columns_at;
    data.name = trace_.name;
    std::vector<PackedPolicy> policies;
    if (auto recorded = recorded_view(trace_, options_.segments, op_of_event_))
      policies.push_back(pack_policy(std::move(*recorded), 0));
    add_program(data.columns);
    add_marks(data.columns);
    data.columns.push_back(pack_text("names", dump(names())));
    Json figures = program_figures();
    const Json outline = this->outline();
    forget_program();
    for (PackedPolicy& replayed : replay_all(workload_, options_, policies.size()))
      policies.push_back(std::move(replayed));
    Json packed = Json::array();
    for (PackedPolicy& policy : policies) {
      packed.push_back({{"unit_bytes", policy.unit_bytes},
                        {"display_bytes", policy.view.display_bytes},
                        {"ops_done", policy.view.ops_done}});
      std::move(policy.columns.begin(), policy.columns.end(), std::back_inserter(data.columns));
    }
    // What only maps need comes last: the page begins to unpack before it is read to its end.
    std::stable_partition(data.columns.begin(), data.columns.end(), [](const Column& column) {
      return column.name.find(".place") == column.name.npos &&
             column.name.find(".span_") == column.name.npos;
    });

    for (const PackedPolicy& policy : policies)
      figures["policies"].push_back(policy_figures(policy.view));
    data.figures = dump(figures, 1) + "\n";
    for (std::size_t i = 0; i < policies.size(); ++i) figures["policies"][i].update(packed[i]);
    figures["format"] = 1;
    figures["source"] = columns_at == ColumnsAt::kPage ? "page" : "server";
    figures["outline"] = outline;
    figures["warnings"] = trace_.warnings;
    figures["columns"] = Json::array();
    for (const Column& column : data.columns)
      figures["columns"].push_back({{"name", column.name},
                                    {"type", column.type},
                                    {"delta", column.delta},
                                    {"count", column.count},
                                    {"pieces", column.pieces.size()}});
    data.summary = dump(figures);
    return data;
  }

 private:
  std::size_t ops() const { return workload_.ops().size(); }
  std::uint64_t time_us(std::size_t op) const { return workload_.times_ns()[op] / 1000; }

  std::int64_t since_start_us(std::int64_t recorded_us) const {
    return ops() == 0 ? 0 : std::max<std::int64_t>(0, recorded_us - start_us_);
  }

  // All that replays need is in the workload, and they need the room.
  void forget_program() {
    trace_.events = {};
    trace_.addresses = {};
    block_of_op_ = {};
    op_of_event_ = {};
    sizes_ = {};
    streams_ = {};
    wait_us_ = {};
    live_ = {};
    sites_ = {};
  }

  // Which block each operation is about, and how long blocks waited between the program's letting
  // go and the allocator's taking back.
  void number_ops() {
    if (!trace_.events.empty()) start_us_ = trace_.events[0].time_us;
    duration_us_ = trace_.duration_us();
    block_of_op_.reserve(ops());
    wait_us_.resize(trace_.blocks);
    std::vector<std::int64_t> requested_us(trace_.blocks, -1);
    sizes_.reserve(trace_.blocks);
    streams_.reserve(trace_.blocks);
    op_of_event_.reserve(trace_.events.size() + 1);
    for (const TraceEvent& event : trace_.events) {
      op_of_event_.push_back(static_cast<std::uint32_t>(block_of_op_.size()));
      if (event.op == TraceOp::kFreeRequested) {
        requested_us[event.block] = event.time_us;
        continue;
      }
      block_of_op_.push_back(event.block);
      if (event.op == TraceOp::kAlloc) {
        sizes_.push_back(event.size_bytes);
        streams_.push_back(event.stream);
      } else if (requested_us[event.block] >= 0) {
        wait_us_[event.block] = static_cast<std::uint64_t>(
            std::max<std::int64_t>(0, event.time_us - requested_us[event.block]));
      }
    }
    op_of_event_.push_back(static_cast<std::uint32_t>(block_of_op_.size()));
  }

  void find_peak() {
    std::uint64_t live = 0;
    live_.reserve(ops());
    for (std::size_t op = 0; op < ops(); ++op) {
      const ReplayOp& what = workload_.ops()[op];
      live += what.alloc ? what.size_bytes : std::uint64_t{0} - what.size_bytes;
      live_.push_back(live);
      if (live > live_[peak_op_]) peak_op_ = op;
    }
  }

  void add_program(std::vector<Column>& columns) const {
    columns.push_back(pack_numbers("time_us", ops(), true, [&](auto i) { return time_us(i); }));
    columns.push_back(pack_numbers("event", ops(), true,
                                   [&](auto i) { return workload_.event_number(i); }));
    std::uint64_t blocks = 0;
    columns.push_back(pack_numbers("freed", ops(), false, [&](auto i) -> std::uint64_t {
      if (i == 0) blocks = 0;
      if (!workload_.ops()[i].alloc) return blocks - block_of_op_[i];
      ++blocks;
      return 0;
    }));
    const std::uint64_t n = trace_.blocks;
    columns.push_back(pack_numbers("size", n, false, [&](auto i) { return sizes_[i]; }));
    columns.push_back(pack_numbers("stream", n, false, [&](auto i) { return streams_[i]; }));
    columns.push_back(pack_numbers("place", n, false, [&](auto i) { return sites_.place[i]; }));
    columns.push_back(pack_numbers("wait_us", n, false, [&](auto i) { return wait_us_[i]; }));
    const std::vector<std::uint8_t>& category = options_.answer.category;
    if (category.size() == n && n > 0)
      columns.push_back(pack_numbers("category", n, false,
                                     [&](auto i) { return std::uint64_t{category[i]}; }));
  }

  void add_marks(std::vector<Column>& columns) const {
    const auto& marks = trace_.marks;
    const std::uint64_t n = marks.size();
    columns.push_back(pack_numbers("mark_op", n, true, [&](auto i) {
      return std::uint64_t{op_of_event_[marks[i].event]};
    }));
    std::int64_t latest = 0;  // where times run backwards, the clock stands still
    columns.push_back(pack_numbers("mark_time_us", n, true, [&](auto i) {
      latest = std::max(i == 0 ? 0 : latest, since_start_us(marks[i].time_us));
      return static_cast<std::uint64_t>(latest);
    }));
    columns.push_back(pack_numbers("mark_kind", n, false, [&](auto i) {
      return static_cast<std::uint64_t>(marks[i].kind);
    }));
    columns.push_back(pack_numbers("mark_bytes", n, false,
                                   [&](auto i) { return marks[i].size_bytes; }));
    columns.push_back(pack_numbers("mark_text", n, false, [&](auto i) -> std::uint64_t {
      return mark_texts_.try_emplace(marks[i].text, mark_texts_.size()).first->second;
    }));
  }

  // Texts, once each, that the columns point to.
  Json names() const {
    Json names;
    names["groups"] = sites_.groups;
    names["place_group"] = sites_.group;
    Json stacks = Json::array();
    Json place_stack = Json::array();
    Json tags = Json::array();
    Json frames = Json::array();
    std::unordered_map<std::uint32_t, std::size_t> stack_numbers;
    std::unordered_map<std::uint32_t, std::size_t> frame_numbers;
    for (std::size_t place = 0; place < sites_.group.size(); ++place) {
      const auto [at, added] = stack_numbers.try_emplace(sites_.stack[place], stacks.size());
      place_stack.push_back(at->second);
      tags.push_back(one_line(trace_.sites->text(sites_.tag[place])));
      if (!added) continue;
      Json stack = Json::array();
      for (const std::uint32_t frame : trace_.sites->stack(sites_.stack[place])) {
        const auto [number, is_new] = frame_numbers.try_emplace(frame, frames.size());
        if (is_new) frames.push_back(trace_.sites->frame_label(frame));
        stack.push_back(number->second);
      }
      stacks.push_back(std::move(stack));
    }
    names["place_stack"] = std::move(place_stack);
    names["place_tag"] = std::move(tags);
    names["stacks"] = std::move(stacks);
    names["frames"] = std::move(frames);
    std::vector<int> own(frame_numbers.size());
    for (const auto& [frame, number] : frame_numbers)
      own[number] = is_own_frame(*trace_.sites, frame) ? 1 : 0;
    names["frame_own"] = std::move(own);
    names["categories"] = options_.answer.categories;
    std::vector<std::string> texts(mark_texts_.size());
    for (const auto& [text, number] : mark_texts_)
      texts[number] = one_line(trace_.sites->text(text));
    names["mark_texts"] = std::move(texts);
    names["streams"] = trace_.streams;
    return names;
  }

  // All but what policies need.
  Json program_figures() const {
    Json json;
    json["trace"] = trace_.name;
    json["file"] = options_.file;
    json["events"] = ops();
    json["allocations"] = trace_.blocks;
    json["streams"] = trace_.streams.size();
    json["trace_duration_us"] = duration_us_;
    json["timed"] = duration_us_ > 0 || ops() <= 1;
    json["live_peak_bytes"] = ops() == 0 ? 0 : live_[peak_op_];
    json["live_peak_event"] = ops() == 0 ? 0 : workload_.event_number(peak_op_);
    json["live_peak_time_us"] = ops() == 0 ? 0 : time_us(peak_op_);
    json["live_at_end_bytes"] = ops() == 0 ? 0 : live_.back();
    json["grouped_by"] = sites_.grouped_by;
    json["verdict"] = verdict();
    add_peak_groups(json);
    add_out_of_memory(json);
    json["capacity_bytes"] = nullptr;
    if (options_.capacity_bytes != 0) json["capacity_bytes"] = options_.capacity_bytes;
    json["policies"] = Json::array();
    return json;
  }

  Json verdict() const {
    const ViewAnswer& answer = options_.answer;
    if (answer.sentences.empty()) return nullptr;
    Json json = {{"sentences", answer.sentences},
                 {"changes", answer.changes},
                 {"categories", Json::array()}};
    for (const ViewAnswer::Share& share : answer.shares)
      json["categories"].push_back({{"name", answer.categories.at(share.category)},
                                    {"category", share.category},
                                    {"bytes", share.bytes},
                                    {"confidence", share.confidence}});
    return json;
  }

  void add_peak_groups(Json& json) const {
    struct Group {
      std::uint64_t bytes = 0;
      std::uint64_t blocks = 0;
      std::size_t number = 0;
    };
    std::vector<Group> groups(sites_.groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) groups[i].number = i;
    std::vector<bool> live(trace_.blocks);
    for (std::size_t op = 0; op < ops() && op <= peak_op_; ++op)
      live[block_of_op_[op]] = workload_.ops()[op].alloc;
    std::uint64_t count = 0;
    for (std::size_t block = 0; block < live.size(); ++block) {
      if (!live[block]) continue;
      Group& group = groups[sites_.group[sites_.place[block]]];
      group.bytes += sizes_[block];
      ++group.blocks;
      ++count;
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [](const Group& a, const Group& b) { return a.bytes > b.bytes; });
    json["live_peak_allocations"] = count;
    json["largest_at_peak"] = Json::array();
    constexpr std::size_t kMost = 20;
    for (std::size_t i = 0; i < std::min(kMost, groups.size()) && groups[i].blocks > 0; ++i)
      json["largest_at_peak"].push_back({{"name", sites_.groups[groups[i].number]},
                                         {"group", groups[i].number},
                                         {"bytes", groups[i].bytes},
                                         {"allocations", groups[i].blocks}});
  }

  void add_out_of_memory(Json& json) const {
    json["out_of_memory"] = Json::array();
    for (const TraceMark& mark : trace_.marks) {
      if (mark.kind != MarkKind::kOutOfMemory) continue;
      const std::uint32_t op = op_of_event_[mark.event];
      Json one = {{"event", mark.event},
                  {"operation", op},
                  {"time_us", since_start_us(mark.time_us)},
                  {"requested_bytes", mark.size_bytes},
                  {"live_bytes", op == 0 ? 0 : live_[op - 1]},
                  {"device_free_bytes", nullptr},
                  {"stack", own_stack(*trace_.sites, mark.site)}};
      if (mark.device_free_bytes != TraceMark::kUnknown)
        one["device_free_bytes"] = mark.device_free_bytes;
      json["out_of_memory"].push_back(std::move(one));
    }
  }

  static Json policy_figures(const PolicyView& view) {
    const ReplayFigures& figures = view.figures;
    Json json = {{"policy", view.policy},
                 {"reserved_peak_bytes", figures.reserved_peak_bytes},
                 {"live_at_reserved_peak_bytes", figures.live_at_peak_bytes},
                 {"fragmentation", figures.fragmentation()},
                 {"driver_calls", figures.ledger.memory_calls()},
                 {"driver_stall_us", nullptr},  // not timed in a recording
                 {"moving_stall_us", nullptr},
                 {"recorded", view.policy == "recorded"},
                 {"out_of_memory", figures.out_of_memory.has_value()}};
    if (!json["recorded"]) {
      json["driver_stall_us"] = static_cast<double>(figures.ledger.stall_ns) / 1e3;
      json["moving_stall_us"] = static_cast<double>(figures.ledger.moving_stall_ns) / 1e3;
    }
    if (figures.out_of_memory) {
      json["out_of_memory_event"] = figures.out_of_memory->event;
      json["out_of_memory_message"] = figures.out_of_memory->message;
    }
    return json;
  }

  // Most live bytes in each of 1024 equal stretches of time, or of operations where the recording
  // has no times: what is drawn before anything else.
  Json outline() const {
    constexpr std::size_t kColumns = 1024;
    std::vector<std::uint64_t> most(kColumns);
    if (ops() == 0) return most;
    const bool timed = duration_us_ > 0;
    const auto x = [&](std::size_t i) { return static_cast<double>(timed ? time_us(i) : i); };
    const double whole = x(ops() - 1) + 1;
    std::size_t op = 0;
    std::uint64_t carried = 0;
    for (std::size_t column = 0; column < kColumns; ++column) {
      most[column] = carried;
      const double end = whole * static_cast<double>(column + 1) / kColumns;
      for (; op < ops() && x(op) < end; ++op)
        most[column] = std::max(most[column], carried = live_[op]);
    }
    return most;
  }

  Trace trace_;  // without its events once they are packed
  const ViewOptions& options_;
  const Workload workload_;
  ViewSites sites_;
  std::vector<std::uint32_t> block_of_op_;
  std::vector<std::uint32_t> op_of_event_;  // operations before each event; one more for the end
  std::vector<std::uint64_t> sizes_;        // this and the next two by block
  std::vector<std::uint32_t> streams_;
  std::vector<std::uint64_t> wait_us_;
  std::vector<std::uint64_t> live_;         // bytes after each operation
  std::size_t peak_op_ = 0;
  std::int64_t start_us_ = 0;
  std::uint64_t duration_us_ = 0;
  mutable std::unordered_map<std::uint32_t, std::size_t> mark_texts_;  // numbered as they come
};

}  // namespace

ViewData make_view(Trace trace, const ViewOptions& options, ColumnsAt columns_at) {
  for (const std::string& policy : options.policies) find_policy(policy);
  return ViewMaker(std::move(trace), options).make(columns_at);
}

}  // namespace tenon
