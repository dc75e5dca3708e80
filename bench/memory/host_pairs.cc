// What an allocation and a free cost on the host by the pattern of calls, beside other allocators
// that people use. Nothing is touched.
//   bench_host_pairs [PASSES] [--peer NAME=LIBRARY]...
//
//   same      a pair of one size, again and again
//   two       pairs of two sizes in turn
//   nested    allocate two, free the second, free the first
//   a trace   the calls of a recorded program, sizes divided by 256
//
// For recorded programs also the share of requests above 64 KiB, and of these the share that the
// thread's LargeCache serves (host/large_cache.h). Its bounds were chosen on data/traces; of
// data/snapshots, other recordings of three of these programs, come the first rows.
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "peers.h"
#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/lab/workload.h"
#include "tenon/memory/host/large_cache.h"
#include "tenon/memory/host/size_classes.h"
#include "tenon/trace/load.h"

namespace {

using namespace tenon;
using namespace tenon::bench;

constexpr std::size_t kAlignment = 64;
constexpr std::uint64_t kShrink = 256;
const std::filesystem::path kData = TENON_SOURCE_DIR "/data";

std::size_t shrunk(const ReplayOp& op) {
  return static_cast<std::size_t>(std::max<std::uint64_t>(op.size_bytes / kShrink, 1));
}

void keep(void* data) { asm volatile("" : : "r"(data) : "memory"); }

double same_again(const Peer& peer, std::size_t size) {
  return ns_per_call(100'000, [&] {
    void* data = peer.allocate(kAlignment, size);
    keep(data);
    peer.free(data);
  });
}

double two_in_turn(const Peer& peer, std::size_t size) {
  return ns_per_call(50'000, [&] {
    for (const std::size_t one : {size, 2 * size}) {
      void* data = peer.allocate(kAlignment, one);
      keep(data);
      peer.free(data);
    }
  }) / 2;
}

double nested(const Peer& peer, std::size_t size) {
  return ns_per_call(50'000, [&] {
    void* outer = peer.allocate(kAlignment, size);
    keep(outer);
    void* inner = peer.allocate(kAlignment, size);
    keep(inner);
    peer.free(inner);
    peer.free(outer);
  }) / 2;
}

// For an allocation and its free.
double as_recorded(const Peer& peer, const Workload& workload, std::vector<void*>& blocks) {
  const double ns = ns_per_call(1, [&] {
    for (const ReplayOp& op : workload.ops()) {
      void*& block = blocks[op.slot];
      if (op.alloc) {
        block = peer.allocate(kAlignment, align_up(shrunk(op), kAlignment));
        keep(block);
      } else {
        peer.free(block);
        block = nullptr;
      }
    }
    for (void*& block : blocks) peer.free(std::exchange(block, nullptr));
  });
  return 2 * ns / static_cast<double>(workload.ops().size());
}

struct LargeShare {
  std::uint64_t requests = 0;
  std::uint64_t large = 0;
  std::uint64_t hits = 0;
};

// By the cache itself, over blocks without memory.
LargeShare share_of_large(const Workload& workload) {
  LargeShare share;
  host::LargeCache cache;
  std::deque<Block> blocks;
  std::vector<Block*> held(workload.slots());
  for (const ReplayOp& op : workload.ops()) {
    Block*& block = held[op.slot];
    if (op.alloc) {
      const std::uint64_t size = align_up(shrunk(op), kAlignment);
      ++share.requests;
      if (size <= host::kLargestClass) continue;
      ++share.large;
      if (auto* set = cache.find(size); set != nullptr) {
        ++share.hits;
        block = cache.pop(*set);
      } else {
        block = &blocks.emplace_back();
        block->size = size;
      }
    } else if (Block* freed = std::exchange(block, nullptr)) {
      if (freed->size > host::LargeCache::kLargestBytes) continue;
      cache.push(cache.make_room(freed->size, [](Block*) {}), freed, nullptr);
    }
  }
  return share;
}

void print_row(const std::string& name, const std::vector<double>& ns) {
  fmt::print("{:>28}", name);
  for (const double value : ns) fmt::print(" {:>10}", readable(value));
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

template <typename Pattern>
std::vector<double> by_peer(const std::vector<Peer>& all, int passes, Pattern&& pattern) {
  std::vector<std::function<double()>> subjects;
  for (const Peer& peer : all) subjects.push_back([&] { return pattern(peer); });
  return medians(passes, subjects);
}

}  // namespace

int main(int argc, char** argv) {
  const auto [passes, all] = peer_options(argc, argv);
  // With only one thread ever started, glibc skips its atomics: that would be no comparison.
  std::thread([] {}).join();
  fmt::print("an allocation and its free; ns of processor time, medians of {} passes\n", passes);
  print_head(all, "pattern", 28);
  fmt::print(" {:>10} {:>10}\n", "large", "cached");
  std::map<std::string, double> worst;  // of ours, by pattern
  for (const std::size_t size : {std::size_t{256}, std::size_t{16384}, std::size_t{262144}}) {
    const auto row = [&, &all = all, passes = passes](const char* name, auto pattern) {
      const std::vector<double> ns =
          by_peer(all, passes, [&](const Peer& peer) { return pattern(peer, size); });
      print_row(fmt::format("{} {}", name, format_byte_size(size)), ns);
      fmt::print("\n");
      worst[name] = std::max(worst[name], ns[0]);
    };
    row("same", same_again);
    row("two", two_in_turn);
    row("nested", nested);
  }
  std::vector<std::filesystem::path> files;
  for (const char* folder : {"traces", "snapshots"})
    for (const auto& entry : std::filesystem::directory_iterator(kData / folder))
      if (const auto ending = entry.path().extension(); ending == ".zst" || ending == ".pickle")
        files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    const Workload workload(load_traces(file.string()).at(0));
    std::vector<void*> blocks(workload.slots());
    const std::vector<double> ns = by_peer(
        all, passes, [&](const Peer& peer) { return as_recorded(peer, workload, blocks); });
    print_row(file.stem().stem().string(), ns);
    worst["a trace"] = std::max(worst["a trace"], ns[0] / 2);
    const LargeShare share = share_of_large(workload);
    fmt::print(" {:>10} {:>10}\n", percent(share.large, share.requests),
               percent(share.hits, share.large));
  }
  fmt::print("\n");
  print_verdict("same, worst size", worst["same"], 4, " ns");
  print_verdict("two, worst size", worst["two"], 8, " ns");
  print_verdict("nested, worst size", worst["nested"], 8, " ns");
  print_verdict("a trace, worst, an event (half of a pair)", worst["a trace"], 25, " ns");
  return 0;
}
