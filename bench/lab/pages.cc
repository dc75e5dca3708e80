// What pages allow `stitched`, and where its bytes are.
//
//   bench_pages [--programs N] [--first SEED]    default: 100 generated programs, seeds from 1,000
//
// A bound for every placement, replays with pages of one size, with pages in proportion to the
// program's live peak and with the best size for each program (which no allocator knows in
// advance), and the reserved peak by parts.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/lab/jobs.h"
#include "tenon/lab/replayer.h"
#include "tenon/lab/synthesis/synthesis.h"
#include "tenon/lab/text_table.h"
#include "tenon/memory/gpu/pytorch_rules.h"

namespace {

using namespace tenon;

constexpr std::uint64_t kUsualPage = 16 * kMiB, kSmallPage = 2 * kMiB;  // of `stitched`
constexpr std::uint64_t kLargestPage = 128 * kMiB;  // in proportion to the live peak
constexpr double kStall = 1.5;  // aimed at, geometric mean over `expandable`'s

bool is_large(const Workload& workload) { return workload.live_peak_bytes() >= kGiB; }

double live_peak(const Workload& workload) {
  return static_cast<double>(workload.live_peak_bytes());
}

// ------------------------------------------------------------------------------------------------
// By page size

// Live bytes of one stream, in blocks that may lie in small pages and in others.
struct StreamLive {
  std::uint64_t small = 0, large = 0;

  // The fewest bytes of pages that hold them.
  std::uint64_t page_bytes(std::uint64_t page) const {
    const std::uint64_t large_pages = round_up(large, page);
    const std::uint64_t rest = large_pages - large;
    return large_pages + (small <= rest ? 0 : round_up(small - rest, kSmallPage));
  }
};

// What the pages of `page` bytes and the small ones come to at least, wherever blocks are placed
// and however pages move, where a page holds blocks of one stream: a peak over the trace.
std::uint64_t least_bytes(const Workload& workload, std::uint64_t page) {
  std::vector<StreamLive> streams(workload.streams());
  std::vector<std::uint64_t> sizes(workload.slots());
  std::uint64_t held = 0, peak = 0;
  for (const ReplayOp& op : workload.ops()) {
    if (op.alloc) sizes[op.slot] = round_up(op.size_bytes, kMinBlockSize);
    const std::uint64_t size = sizes[op.slot];
    StreamLive& stream = streams[op.stream];
    std::uint64_t& live = size <= kSmallSize ? stream.small : stream.large;
    held -= stream.page_bytes(page);
    live = op.alloc ? live + size : live - size;
    held += stream.page_bytes(page);
    peak = std::max(peak, held);
  }
  return peak;
}

// What a bound or replays of `stitched` come to over the programs: geometric means, and the worst.
struct Summary {
  double mean = 0, worst_large = 0, worst_small = 0, stall = 0;
  std::size_t more = 0;  // programs with over 0.2 % more than `expandable`

  void add(const Workload& workload, std::uint64_t bytes, const ReplayFigures& expandable) {
    const double reserved = static_cast<double>(bytes) / live_peak(workload);
    mean += std::log(reserved);
    double& worst = is_large(workload) ? worst_large : worst_small;
    worst = std::max(worst, reserved);
    more += static_cast<double>(bytes) >
            1.002 * static_cast<double>(expandable.reserved_peak_bytes);
  }
  void add_stall(const ReplayFigures& stitched, const ReplayFigures& expandable) {
    stall += std::log(static_cast<double>(stitched.ledger.stall_ns) /
                      static_cast<double>(expandable.ledger.stall_ns));
  }
  void add_to(TextTable& table, const std::string& name, std::size_t count) const {
    const auto programs = static_cast<double>(count);
    const auto show = [](double value) {
      return value == 0 ? std::string("-") : fmt::format("{:.4f}", value);
    };
    table.add({name, show(std::exp(mean / programs)), show(worst_large), show(worst_small),
               stall == 0 ? "-" : fmt::format("{:.2f}", std::exp(stall / programs)),
               fmt::format("{}", more)});
  }
};

using PageOf = std::function<std::uint64_t(const Workload&)>;

std::vector<ReplayFigures> replay_all(const std::vector<Workload>& workloads,
                                      const std::string& policy, const PageOf& page) {
  std::vector<ReplayFigures> figures(workloads.size());
  run_jobs(workloads.size(), 0, [&](std::size_t i) {
    ReplaySetup setup;
    setup.policy = policy;
    if (page != nullptr) setup.options.page_bytes = page(workloads[i]);
    figures[i] = replay(workloads[i], setup);
  });
  return figures;
}

// For each program, the page size that is best with hindsight. A program's stall is worth `weight`
// times its memory (both as logarithms), and `weight` is the least at which the geometric mean of
// the stall is at most kStall times `expandable`'s. So no choice of page sizes by program reserves
// less at that weight.
Summary best_page_sizes(const std::vector<Workload>& workloads,
                        const std::vector<ReplayFigures>& expandable) {
  std::vector<std::vector<ReplayFigures>> by_size;
  for (std::uint64_t page = kSmallPage; page <= kLargestPage; page *= 2)
    by_size.push_back(replay_all(workloads, "stitched", [=](const Workload&) { return page; }));
  const auto cost = [](const ReplayFigures& figures, double weight) {
    return std::log(static_cast<double>(figures.reserved_peak_bytes)) +
           weight * std::log(static_cast<double>(figures.ledger.stall_ns));
  };
  for (double weight = 0;; weight += 0.0005) {
    Summary best;
    for (std::size_t i = 0; i < workloads.size(); ++i) {
      const ReplayFigures* least = &by_size.front()[i];
      for (const auto& figures : by_size)
        if (cost(figures[i], weight) < cost(*least, weight)) least = &figures[i];
      best.add(workloads[i], least->reserved_peak_bytes, expandable[i]);
      best.add_stall(*least, expandable[i]);
    }
    if (std::exp(best.stall / static_cast<double>(workloads.size())) <= kStall) return best;
  }
}

// What `stitched` holds, and beside one page size for all programs the least that it allows: the
// difference is what placement wastes.
void print_page_sizes(const std::vector<Workload>& workloads) {
  const std::size_t count = workloads.size();
  TextTable table({"lag 5 ms", "reserved/live", "worst >= 1 GiB", "worst below",
                   "stall/expandable's", "more than expandable"});
  const auto expandable = replay_all(workloads, "expandable", nullptr);
  const auto add_row = [&](const std::string& pages, const PageOf& page) {
    const auto figures = replay_all(workloads, "stitched", page);
    Summary held;
    for (std::size_t i = 0; i < count; ++i) {
      held.add(workloads[i], figures[i].reserved_peak_bytes, expandable[i]);
      held.add_stall(figures[i], expandable[i]);
    }
    held.add_to(table, "stitched, pages of " + pages, count);
  };
  for (const std::uint64_t page : {kUsualPage, kSmallPage}) {
    const std::string name = format_byte_size(page);
    add_row(name, [page](const Workload&) { return page; });
    Summary least;
    for (std::size_t i = 0; i < count; ++i)
      least.add(workloads[i], least_bytes(workloads[i], page), expandable[i]);
    least.add_to(table, "bound, pages of " + name, count);
  }
  for (const std::uint64_t parts : {128, 192, 256, 512})
    add_row(fmt::format("live peak / {}", parts), [parts](const Workload& workload) {
      const std::uint64_t page = round_up(workload.live_peak_bytes() / parts, kSmallPage);
      return std::clamp(page, kSmallPage, kLargestPage);
    });
  best_page_sizes(workloads, expandable).add_to(table, "stitched, best page for each", count);
  fmt::print("{} programs, what pages allow\n{}\n", count, table.format());
}

// ------------------------------------------------------------------------------------------------
// By parts

// What `stitched` holds after a request, in bytes.
struct Parts {
  double live = 0;         // requested
  double rounding = 0;     // requests rounded up to 512 bytes
  double idle = 0;         // pages in which no block lives
  double small_pages = 0;  // free pieces of small pages in use,
  double pieces = 0;       // of large pages in which every block is smaller than a page,
  double ends = 0;         // and of large pages that a block of a page or more reaches into
};

// Adds one run of backed addresses.
void add_run(const SegmentInfo& run, Parts* parts) {
  struct Use {
    std::uint64_t free = 0;     // bytes
    std::uint64_t largest = 0;  // block that lives there
  };
  const std::uint64_t page = run.small_pool ? kSmallPage : kUsualPage;
  std::vector<Use> pages(run.size_bytes / page);
  for (const BlockInfo& block : run.blocks) {
    const bool is_free = block.state == BlockInfo::State::kInactive;
    if (!is_free) {
      parts->live += static_cast<double>(block.requested_bytes);
      parts->rounding += static_cast<double>(block.size_bytes - block.requested_bytes);
    }
    const std::uint64_t begin = block.address - run.address, end = begin + block.size_bytes;
    for (std::uint64_t at = begin; at < end; at = (at / page + 1) * page) {
      Use& use = pages[at / page];
      if (is_free)
        use.free += std::min(end, (at / page + 1) * page) - at;
      else
        use.largest = std::max(use.largest, block.size_bytes);
    }
  }
  for (const Use& use : pages)
    (use.largest == 0      ? parts->idle
     : run.small_pool      ? parts->small_pages
     : use.largest < page  ? parts->pieces
                           : parts->ends) += static_cast<double>(use.free);
}

// Replays the first `stop` ops. Returns the number of ops after which the reserved bytes had last
// risen to a new peak by a large page; `parts`, where not null, is what is held at the end.
std::size_t replay_until(const Workload& workload, std::size_t stop, Parts* parts) {
  ReplaySetup setup;
  setup.policy = "stitched";
  setup.options.page_bytes = kUsualPage;
  SimBackend backend(replay_device(setup));
  const auto allocator = make_policy(setup.policy, backend, replay_options(workload, setup));
  std::vector<Stream> streams = {{backend.device(), 0}};
  while (streams.size() < workload.streams()) streams.push_back(backend.create_stream());
  std::vector<DataPtr> blocks(workload.slots());
  std::uint64_t peak = 0;
  std::size_t risen = 0;
  for (std::size_t i = 0; i < stop; ++i) {
    const ReplayOp& op = workload.ops()[i];
    backend.advance_to(workload.times_ns()[i]);
    if (op.alloc) {
      blocks[op.slot] = allocator->allocate_on(op.size_bytes, streams[op.stream]);
      backend.queue_work(streams[op.stream]);
    } else {
      backend.queue_work(streams[op.stream]);
      blocks[op.slot].clear();
    }
    if (backend.peak_used_bytes() >= peak + kUsualPage) risen = i + 1;
    peak = backend.peak_used_bytes();
  }
  if (parts == nullptr) return risen;
  double runs = 0;
  for (const SegmentInfo& run : allocator->snapshot()) {
    add_run(run, parts);
    runs += static_cast<double>(run.size_bytes);
  }
  parts->idle += static_cast<double>(backend.used_bytes()) - runs;  // pages without addresses
  return risen;
}

// Where the bytes are that are held above the live peak, when the last large page came.
void print_parts(const std::vector<Workload>& workloads) {
  std::vector<Parts> all(workloads.size());
  run_jobs(workloads.size(), 0, [&](std::size_t i) {
    const std::size_t ops = workloads[i].ops().size();
    replay_until(workloads[i], replay_until(workloads[i], ops, nullptr), &all[i]);
  });
  TextTable table({"lag 5 ms, % of the live peak", "all", ">= 1 GiB", "below"});
  const auto add_row = [&](const std::string& name, auto&& part) {
    std::array<double, 3> sums = {}, counts = {};
    for (std::size_t i = 0; i < workloads.size(); ++i)
      for (const std::size_t column : {std::size_t{0}, is_large(workloads[i]) ? 1UL : 2UL}) {
        sums[column] += 100 * part(all[i], live_peak(workloads[i])) / live_peak(workloads[i]);
        ++counts[column];
      }
    std::vector<std::string> row = {name};
    for (std::size_t column = 0; column < sums.size(); ++column)
      row.push_back(counts[column] == 0 ? "-"
                                        : fmt::format("{:.2f}", sums[column] / counts[column]));
    table.add(row);
  };
  add_row("idle pages, less what live bytes lack to their peak",
          [](const Parts& parts, double live) { return parts.idle + parts.live - live; });
  add_row("requests rounded up", [](const Parts& parts, double) { return parts.rounding; });
  add_row("free pieces of small pages in use",
          [](const Parts& parts, double) { return parts.small_pages; });
  add_row("free pieces of large pages with smaller blocks only",
          [](const Parts& parts, double) { return parts.pieces; });
  add_row("free pieces of large pages that a block of a page or more reaches into",
          [](const Parts& parts, double) { return parts.ends; });
  fmt::print("{} programs, what is held above the live peak when the last large page comes: "
             "means\n{}\n",
             workloads.size(), table.format());
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t programs = 100;
  std::uint64_t first = 1'000;
  CLI::App app("What pages allow stitched");
  app.add_option("--programs", programs, "How many")->check(CLI::Range(1, 100'000));
  app.add_option("--first", first, "Their first seed");
  CLI11_PARSE(app, argc, argv);
  try {
    std::vector<Trace> traces(programs);
    run_jobs(programs, 0, [&](std::size_t i) {
      SynthesisOptions options;
      options.seed = first + i;
      traces[i] = synthesize(options);
    });
    const std::vector<Workload> workloads(traces.begin(), traces.end());
    print_page_sizes(workloads);
    print_parts(workloads);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_pages: {}\n", error.what());
    return 2;
  }
}
