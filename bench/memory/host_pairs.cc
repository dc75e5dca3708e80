// What an allocation and a free cost on the host by the pattern of calls, beside other allocators
// that people use. Nothing is touched.
//   bench_host_pairs [passes]
//
//   same      a pair of one size, again and again
//   two       pairs of two sizes in turn
//   nested    allocate two, free the second, free the first
//   a trace   the calls of a recorded program, sizes divided by 256
//
// "last block" is the share of requests that the block freed just before serves, since it was the
// thread's last one and has the same size: what the host allocator's cache of one block can meet.
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "peers.h"
#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/lab/workload.h"
#include "tenon/trace/load.h"

namespace {

using namespace tenon;
using namespace tenon::bench;

constexpr std::size_t kAlignment = 64;
constexpr std::uint64_t kShrink = 256;

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

double last_block_share(const Workload& workload) {
  std::uint64_t requests = 0;
  std::uint64_t hits = 0;
  std::uint64_t last_size = 0;
  std::uint32_t last_slot = 0;
  bool waits = false;
  for (const ReplayOp& op : workload.ops()) {
    if (!op.alloc) {
      waits = waits || op.slot == last_slot;
      continue;
    }
    ++requests;
    hits += waits && last_size == shrunk(op) ? 1 : 0;
    last_size = shrunk(op);
    last_slot = op.slot;
    waits = false;
  }
  return static_cast<double>(hits) / static_cast<double>(requests);
}

void print_row(const std::string& name, const std::vector<double>& ns, double last_block) {
  fmt::print("{:>22}", name);
  for (const double value : ns) fmt::print(" {:>10}", readable(value));
  fmt::print(" {:>10.1f} %\n", 100 * last_block);
}

template <typename Pattern>
std::vector<double> by_peer(const std::vector<Peer>& all, int passes, Pattern&& pattern) {
  std::vector<std::function<double()>> subjects;
  for (const Peer& peer : all) subjects.push_back([&] { return pattern(peer); });
  return medians(passes, subjects);
}

}  // namespace

int main(int argc, char** argv) {
  const int passes = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15;
  const std::vector<Peer> all = peers();
  // With only one thread ever started, glibc skips its atomics: that would be no comparison.
  std::thread([] {}).join();
  fmt::print("an allocation and its free; ns of processor time, medians of {} passes\n", passes);
  print_head(all, "pattern");
  fmt::print(" {:>12}\n", "last block");
  for (const std::size_t size : {std::size_t{256}, std::size_t{16384}, std::size_t{262144}}) {
    const auto row = [&](const char* name, auto pattern, double last_block) {
      print_row(fmt::format("{} {}", name, format_byte_size(size)),
                by_peer(all, passes, [&](const Peer& peer) { return pattern(peer, size); }),
                last_block);
    };
    row("same", same_again, 1);
    row("two", two_in_turn, 0);
    row("nested", nested, 0.5);
  }
  const std::filesystem::path traces = TENON_SOURCE_DIR "/data/traces";
  for (const char* name : {"gpt2", "gpt2_varlen", "resnet50_amp", "maskrcnn", "gnn_sampled"}) {
    const auto file = traces / (std::string(name) + ".csv.zst");
    const Workload workload(load_traces(file.string()).at(0));
    std::vector<void*> blocks(workload.slots());
    print_row(name,
              by_peer(all, passes, [&](const Peer& p) { return as_recorded(p, workload, blocks); }),
              last_block_share(workload));
  }
  return 0;
}
