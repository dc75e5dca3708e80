#include "tenon/trace/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "tenon/base/interruption.h"
#include "tenon/base/printable.h"
#include "tenon/trace/call_site.h"

namespace tenon {
namespace {

// A JSON string. What is no UTF-8 is replaced, as are control characters.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : one_line(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

class PerfettoWriter {
 public:
  std::string write(std::span<const Trace> traces) {
    out_ += "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    for (std::size_t i = 0; i < traces.size(); ++i) write_trace(traces[i], i + 1);
    if (out_.ends_with(",\n")) out_.resize(out_.size() - 2);
    return std::move(out_) + "\n]}\n";
  }

 private:
  template <typename... Arguments>
  void entry(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Arguments>(arguments)...);
    out_ += ",\n";
  }

  void write_trace(const Trace& trace, std::size_t process) {
    entry(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", process,
          json_string(trace.name));
    write_counters(trace, process);
    write_blocks(trace, process);
    write_marks(trace, process);
  }

  // One entry for each time, with what holds at its end.
  void write_counters(const Trace& trace, std::size_t process) {
    std::uint64_t live = 0;
    std::uint64_t reserved = 0;
    std::size_t mark = 0;
    for (std::size_t i = 0; i < trace.events.size(); ++i) {
      stop_if_asked();
      const TraceEvent& event = trace.events[i];
      for (; mark < trace.marks.size() && trace.marks[mark].event <= i; ++mark) {
        const TraceMark& now = trace.marks[mark];
        if (memory_came(now.kind)) reserved += now.size_bytes;
        if (memory_went(now.kind)) reserved -= std::min(reserved, now.size_bytes);
      }
      if (event.op == TraceOp::kAlloc) live += event.size_bytes;
      if (event.op == TraceOp::kFreeCompleted) live -= event.size_bytes;
      if (i + 1 < trace.events.size() && trace.events[i + 1].time_us == event.time_us) continue;
      if (reserved > 0) {
        entry(R"({{"ph":"C","pid":{},"ts":{},"name":"memory","args":{{"live":{},"reserved":{}}}}})",
              process, event.time_us, live, reserved);
      } else {
        entry(R"({{"ph":"C","pid":{},"ts":{},"name":"memory","args":{{"live":{}}}}})", process,
              event.time_us, live);
      }
    }
  }

  void write_blocks(const Trace& trace, std::size_t process) {
    const CallSiteTable call_sites(*trace.sites);
    const std::uint64_t least = trace.live_peak_bytes() / 1000;
    std::vector<bool> open(trace.blocks);
    std::int64_t last_us = 0;
    for (const TraceEvent& event : trace.events) {
      stop_if_asked();
      last_us = std::max(last_us, event.time_us);
      if (event.size_bytes < least || event.size_bytes == 0) continue;
      if (event.op == TraceOp::kAlloc) {
        std::string name = call_sites.site_name(*trace.sites, event.site);
        if (name.empty()) name = fmt::format("{} bytes", event.size_bytes);
        open[event.block] = true;
        entry(R"({{"ph":"b","cat":"block","id":{},"pid":{},"tid":{},"ts":{},"name":{},)"
              R"("args":{{"bytes":{},"stack":{}}}}})",
              event.block, process, event.stream, event.time_us, json_string(name),
              event.size_bytes, json_string(stack(trace, call_sites, event.site)));
      } else if (event.op == TraceOp::kFreeCompleted) {
        open[event.block] = false;
        end_block(event.block, process, event.stream, event.time_us);
      }
    }
    for (std::uint32_t block = 0; block < trace.blocks; ++block)
      if (open[block]) end_block(block, process, 0, last_us);
  }

  void end_block(std::uint32_t block, std::size_t process, std::uint32_t stream,
                 std::int64_t time_us) {
    entry(R"({{"ph":"e","cat":"block","id":{},"pid":{},"tid":{},"ts":{},"name":"block"}})", block,
          process, stream, time_us);
  }

  void write_marks(const Trace& trace, std::size_t process) {
    for (const TraceMark& mark : trace.marks) {
      switch (mark.kind) {
        case MarkKind::kPhaseBegin:
        case MarkKind::kPhaseEnd:
          entry(R"({{"ph":"{}","cat":"phase","id":{},"pid":{},"tid":0,"ts":{},"name":{}}})",
                mark.kind == MarkKind::kPhaseBegin ? "b" : "e", mark.text, process, mark.time_us,
                json_string(trace.sites->text(mark.text)));
          break;
        case MarkKind::kOutOfMemory:
          entry(R"({{"ph":"i","s":"g","pid":{},"tid":0,"ts":{},"name":"out of memory",)"
                R"("args":{{"bytes":{}}}}})",
                process, mark.time_us, mark.size_bytes);
          break;
        case MarkKind::kSleepToHost:
        case MarkKind::kSleepDropped:
        case MarkKind::kWake:
        case MarkKind::kEmptyCache:
          entry(R"({{"ph":"i","s":"p","pid":{},"tid":0,"ts":{},"name":{},"args":{{"bytes":{}}}}})",
                process, mark.time_us,
                json_string(fmt::format("{} {}", mark_kind_name(mark.kind),
                                   trace.sites->text(mark.text))),
                mark.size_bytes);
          break;
        default: break;
      }
    }
  }

  // Without the frames of the allocator, of dispatch and of the interpreter.
  static std::string stack(const Trace& trace, const CallSiteTable& call_sites,
                           std::uint32_t site) {
    std::string text;
    for (const std::uint32_t frame : trace.sites->stack(trace.sites->site(site).stack)) {
      if (call_sites.kind(frame) == FrameKind::kMachinery) continue;
      text += (text.empty() ? "" : " < ") + trace.sites->frame_label(frame);
    }
    return text;
  }

  std::string out_;
};

}  // namespace

std::string format_perfetto(std::span<const Trace> traces) {
  return PerfettoWriter().write(traces);
}

}  // namespace tenon
