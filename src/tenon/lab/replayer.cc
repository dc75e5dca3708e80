#include "tenon/lab/replayer.h"

#include <time.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <new>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/hash.h"
#include "tenon/base/interruption.h"

namespace tenon {

SimOptions replay_device(const ReplaySetup& setup) {
  // No device has more; a few lines of a trace may ask for a hundred times as much, and every page
  // of it costs memory here.
  constexpr std::uint64_t kMostBytes = 4 * kTiB;
  SimOptions options;
  options.capacity_bytes = std::max(kMostBytes, setup.capacity_bytes);
  if (setup.capacity_bytes != 0 && !find_policy(setup.policy).limits_itself)
    options.capacity_bytes = setup.capacity_bytes;
  options.lag_ns = setup.lag_ns;
  return options;
}

PolicyOptions replay_options(const Workload& workload, const ReplaySetup& setup) {
  const Policy& policy = find_policy(setup.policy);
  PolicyOptions options = options_for(policy, setup.options);
  options.grows_by_shares |= policy.uses_shares && workload.grows_by_shares();
  options.oldest_segment_first |= policy.uses_segment_order && workload.oldest_segment_first();
  if (setup.capacity_bytes != 0 && policy.limits_itself) options.limit_bytes = setup.capacity_bytes;
  if (policy.needs_plan && options.plan == nullptr) options.plan = &workload.plan();
  return options;
}

namespace {

constexpr std::size_t kOpsBetweenLooks = 256;  // for a request to stop

// Processor time of this thread: the turns of other programs do not count.
std::uint64_t thread_cpu_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// The layout hash: each stream's blocks in the order of that stream's operations, so that it does
// not depend on how streams interleave; then the streams in their order.
class LayoutHash {
 public:
  explicit LayoutHash(std::size_t streams) : streams_(streams) {}

  void add_free(std::size_t stream) { ++streams_[stream].operations; }
  void add_alloc(std::size_t stream, std::uint64_t offset) {
    streams_[stream].hash.add(streams_[stream].operations++);
    streams_[stream].hash.add(offset);
  }
  std::uint64_t value() const {
    RunningHash all;
    for (const PerStream& stream : streams_) all.add(stream.hash.value());
    return all.value();
  }

 private:
  struct PerStream {
    RunningHash hash;
    std::uint64_t operations = 0;
  };
  std::vector<PerStream> streams_;
};

}  // namespace

Replayer::Replayer(const Workload& workload, const ReplaySetup& setup)
    : workload_(workload),
      backend_(replay_device(setup)),
      follows_clock_(!find_policy(setup.policy).limits_itself),
      blocks_(workload.slots()) {
  streams_.push_back({backend_.device(), 0});
  while (streams_.size() < workload.streams()) streams_.push_back(backend_.create_stream());
  allocator_ = make_policy(setup.policy, backend_, replay_options(workload, setup));
}

Replayer::~Replayer() { drop_blocks(); }

void Replayer::drop_blocks() {
  for (DataPtr& block : blocks_) block.clear();
}

// As memory that falls asleep does: when the device is done.
void Replayer::give_back() {
  backend_.synchronize();
  allocator_->empty_cache();
}

ReplayFigures Replayer::run() {
  ReplayFigures figures;
  LayoutHash hash(streams_.size());
  std::uint64_t live = 0;
  figures.reserved_peak_bytes = backend_.peak_used_bytes();
  for (std::size_t i = 0; i < workload_.ops().size(); ++i) {
    if (i % kOpsBetweenLooks == 0) stop_if_asked();
    const ReplayOp& op = workload_.ops()[i];
    const Stream stream = streams_[op.stream];
    DataPtr& block = blocks_[op.slot];
    backend_.advance_to(workload_.times_ns()[i]);
    if (op.gives_back) give_back();
    if (op.alloc) {
      try {
        block = allocator_->allocate_on(op.size_bytes, stream);
      } catch (const OutOfMemory& error) {
        figures.out_of_memory = {workload_.event_number(i), error.what()};
        break;
      }
      backend_.queue_work(stream);
      live += op.size_bytes;
      hash.add_alloc(op.stream, block == nullptr ? 0 : allocator_->layout_offset(block));
    } else {
      backend_.queue_work(stream);
      block.clear();
      live -= op.size_bytes;
      hash.add_free(op.stream);
    }
    if (const std::uint64_t peak = backend_.peak_used_bytes(); peak > figures.reserved_peak_bytes) {
      figures.reserved_peak_bytes = peak;
      figures.live_at_peak_bytes = live;
    }
  }
  figures.reserved_peak_bytes = backend_.peak_used_bytes();
  figures.ledger = backend_.ledger();
  figures.layout_hash = hash.value();
  drop_blocks();
  return figures;
}

bool Replayer::completes() {
  for (std::size_t i = 0; i < workload_.ops().size(); ++i) {
    if (i % kOpsBetweenLooks == 0) stop_if_asked();
    const ReplayOp& op = workload_.ops()[i];
    const Stream stream = streams_[op.stream];
    if (follows_clock_) backend_.advance_to(workload_.times_ns()[i]);
    if (op.gives_back) give_back();
    if (!op.alloc) {
      if (follows_clock_) backend_.queue_work(stream);
      blocks_[op.slot].clear();
      continue;
    }
    try {
      blocks_[op.slot] = allocator_->allocate_on(op.size_bytes, stream);
    } catch (const OutOfMemory&) {
      return false;
    }
    if (follows_clock_) backend_.queue_work(stream);
  }
  return true;
}

std::optional<std::uint64_t> Replayer::reserved_peak(std::uint64_t stop_above_bytes) {
  const std::vector<ReplayOp>& ops = workload_.ops();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (i % kOpsBetweenLooks == 0) {
      stop_if_asked();
      if (backend_.peak_used_bytes() > stop_above_bytes) return std::nullopt;
    }
    if (ops[i].gives_back) give_back();
    if (!ops[i].alloc) {
      blocks_[ops[i].slot].clear();
      continue;
    }
    try {
      blocks_[ops[i].slot] = allocator_->allocate_on(ops[i].size_bytes, streams_[ops[i].stream]);
    } catch (const OutOfMemory&) {
      return std::nullopt;
    }
  }
  const std::uint64_t peak_bytes = backend_.peak_used_bytes();
  if (peak_bytes > stop_above_bytes) return std::nullopt;
  return peak_bytes;
}

std::uint64_t Replayer::timed_pass() {
  DeviceAllocator& allocator = *allocator_;
  DataPtr* const blocks = blocks_.data();
  const Stream* const streams = streams_.data();
  const std::uint64_t start = thread_cpu_ns();
  for (const ReplayOp& op : workload_.ops()) {
    if (op.alloc) {
      // Every slot is null here, so the new pointer may be made in place.
      ::new (static_cast<void*>(blocks + op.slot))
          DataPtr(allocator.allocate_on(op.size_bytes, streams[op.stream]));
    } else {
      blocks[op.slot].clear();
    }
  }
  const std::uint64_t elapsed_ns = thread_cpu_ns() - start;
  drop_blocks();
  return elapsed_ns;
}

namespace {

// A replay with many streams. The heap of a stream has 100 KiB, of which a replay touches 28. The
// memory goes back to the system at the end: a later replay would get it at other places and touch
// the rest. Replays on several threads have at most kMostAtOnce such streams together.
class ManyStreams {
 public:
  explicit ManyStreams(const Workload& workload)
      : streams_(workload.streams() > kFew ? workload.streams() : 0) {
    if (streams_ == 0) return;
    Shared& all = shared();
    std::unique_lock lock(all.mutex);
    all.changed.wait(lock, [&] {
      return all.streams == 0 || all.streams + streams_ <= kMostAtOnce;
    });
    all.streams += streams_;
  }
  ~ManyStreams() {
    if (streams_ == 0) return;
#ifdef __GLIBC__
    ::malloc_trim(0);
#endif
    Shared& all = shared();
    const std::lock_guard lock(all.mutex);
    all.streams -= streams_;
    all.changed.notify_all();
  }
  ManyStreams(const ManyStreams&) = delete;
  ManyStreams& operator=(const ManyStreams&) = delete;

 private:
  static constexpr std::uint32_t kFew = 256, kMostAtOnce = 8192;
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint32_t streams = 0;
  };
  static Shared& shared() {
    static auto& all = *new Shared;
    return all;
  }

  const std::uint32_t streams_;
};

}  // namespace

ReplayFigures replay(const Workload& workload, const ReplaySetup& setup) {
  const ManyStreams streams(workload);
  try {
    return Replayer(workload, setup).run();
  } catch (const OutOfMemory& error) {  // already when the policy was made
    ReplayFigures figures;
    figures.out_of_memory = {0, error.what()};
    return figures;
  }
}

std::optional<std::uint64_t> reserved_peak(const Workload& workload, const ReplaySetup& setup,
                                           std::uint64_t stop_above_bytes) {
  const ManyStreams streams(workload);
  try {
    return Replayer(workload, setup).reserved_peak(stop_above_bytes);
  } catch (const OutOfMemory&) {
    return std::nullopt;
  }
}

bool fits(const Workload& workload, const ReplaySetup& setup) {
  const ManyStreams streams(workload);
  try {
    return Replayer(workload, setup).completes();
  } catch (const OutOfMemory&) {
    return false;
  }
}

std::optional<double> measure_ns_per_event(const Workload& workload, ReplaySetup setup,
                                           int passes) {
  // Enough passes for a stable median. A recording of a thousand devices has thousands of figures.
  constexpr std::uint64_t kLeastEvents = 200'000;
  constexpr std::uint64_t kMostPasses = 100;
  constexpr std::uint64_t kMostNs = 1'000'000'000;  // of passes that were not asked for
  const std::uint64_t events = workload.ops().size();
  if (events == 0) return std::nullopt;
  setup.capacity_bytes = 0;
  setup.lag_ns = 0;
  const auto asked = static_cast<std::uint64_t>(std::max(passes, 1));
  const std::uint64_t most = std::max(asked, std::min(kMostPasses, kLeastEvents / events));
  const ManyStreams streams(workload);
  try {
    Replayer replayer(workload, setup);
    replayer.timed_pass();
    std::vector<std::uint64_t> times;
    std::uint64_t total_ns = 0;
    while (times.size() < asked || (times.size() < most && total_ns < kMostNs)) {
      stop_if_asked();
      times.push_back(replayer.timed_pass());
      total_ns += times.back();
    }
    const std::size_t count = times.size();
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(count / 2);
    std::nth_element(times.begin(), middle, times.end());
    double median = static_cast<double>(*middle);
    if (count % 2 == 0)
      median = (median + static_cast<double>(*std::max_element(times.begin(), middle))) / 2;
    return median / static_cast<double>(events);
  } catch (const OutOfMemory&) {
    return std::nullopt;
  }
}

}  // namespace tenon
