#include "tenon/lab/view/policy_view.h"

#include <algorithm>
#include <unordered_map>

#include "tenon/base/error.h"
#include "tenon/base/interruption.h"
#include "tenon/lab/view/display_space.h"

namespace tenon {
namespace {

// The loop of Replayer::run over a backend that is watched.
class WatchedReplay {
 public:
  WatchedReplay(const Workload& workload, const ReplaySetup& setup)
      : workload_(workload),
        device_(replay_device(setup)),
        watched_(device_),
        blocks_(workload.slots()) {
    streams_.push_back({device_.device(), 0});
    while (streams_.size() < workload.streams()) streams_.push_back(device_.create_stream());
    allocator_ = make_policy(setup.policy, watched_, replay_options(workload, setup));
  }
  ~WatchedReplay() { watched_.stop(); }

  void run(PolicyView& view) {
    std::uint64_t live = 0;
    view.figures.reserved_peak_bytes = device_.peak_used_bytes();
    for (std::uint32_t i = 0; i < workload_.ops().size(); ++i) {
      if (i % 256 == 0) stop_if_asked();
      const ReplayOp& op = workload_.ops()[i];
      watched_.set_op(i);
      device_.advance_to(workload_.times_ns()[i]);
      if (op.gives_back) {  // as Replayer does
        device_.synchronize();
        allocator_->empty_cache();
      }
      if (op.alloc) {
        if (!allocate(op, i, view)) break;
        live += op.size_bytes;
      } else {
        device_.queue_work(streams_[op.stream]);
        blocks_[op.slot].clear();
        live -= op.size_bytes;
      }
      if (const std::uint64_t peak = device_.peak_used_bytes();
          peak > view.figures.reserved_peak_bytes) {
        view.figures.reserved_peak_bytes = peak;
        view.figures.live_at_peak_bytes = live;
      }
      view.ops_done = i + 1;
    }
    view.figures.reserved_peak_bytes = device_.peak_used_bytes();
    view.figures.ledger = device_.ledger();
    watched_.stop();
    blocks_.clear();
    view.held = watched_.held();
    lay_out(view, watched_.backing(), static_cast<std::uint32_t>(workload_.ops().size()));
  }

 private:
  bool allocate(const ReplayOp& op, std::uint32_t i, PolicyView& view) {
    DataPtr& block = blocks_[op.slot];
    try {
      block = allocator_->allocate_on(op.size_bytes, streams_[op.stream]);
    } catch (const OutOfMemory& error) {
      view.figures.out_of_memory = {workload_.event_number(i), error.what()};
      return false;
    }
    device_.queue_work(streams_[op.stream]);
    const auto address = reinterpret_cast<std::uintptr_t>(block.get());
    if (address != 0) watched_.note_block(address, op.size_bytes);
    view.places.push_back(address == 0 ? PolicyView::kNowhere : address);
    return true;
  }

  const Workload& workload_;
  SimBackend device_;
  WatchingBackend watched_;
  std::vector<Stream> streams_;
  std::unique_ptr<DeviceAllocator> allocator_;
  std::vector<DataPtr> blocks_;  // by slot
};

}  // namespace

void lay_out(PolicyView& view, const std::vector<BackingChange>& backing, std::uint32_t ops) {
  const DisplaySpace space(backing);
  view.display_bytes = space.size_bytes();
  for (std::uint64_t& place : view.places)
    if (place != PolicyView::kNowhere) place = space.offset_of(place);
  std::unordered_map<std::uint64_t, std::size_t> open;  // address -> span
  for (const BackingChange& change : backing) {
    if (change.size_bytes == 0) continue;
    if (change.begins) {
      open[change.address] = view.spans.size();
      view.spans.push_back({space.offset_of(change.address), change.size_bytes, change.op, ops});
    } else if (const auto found = open.find(change.address); found != open.end()) {
      view.spans[found->second].to_op = change.op;
      open.erase(found);
    }
  }
  std::erase_if(view.spans, [](const BackedSpan& span) { return span.from_op == span.to_op; });
}

PolicyView view_policy(const Workload& workload, const ReplaySetup& setup) {
  PolicyView view;
  view.policy = setup.policy;
  try {
    WatchedReplay(workload, setup).run(view);
  } catch (const OutOfMemory& error) {  // already when the policy was made
    view.figures.out_of_memory = {0, error.what()};
  }
  return view;
}

}  // namespace tenon
