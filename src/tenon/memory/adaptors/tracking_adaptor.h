// Knows every block that is alive, and where it was made. Failure: the upstream's, and
// std::bad_alloc for a record.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "tenon/base/call_stack.h"
#include "tenon/memory/adaptors/adaptor.h"
#include "tenon/memory/tag.h"

namespace tenon {

// A block that is alive.
struct TrackedBlock {
  void* data = nullptr;
  std::uint64_t size_bytes = 0;
  std::uint64_t number = 0;  // of the request, from 1
  Tag tag;
  CallStack made_at;
};

// Live blocks that were made at one place: the same call stack and tag.
struct TrackedSite {
  std::uint64_t count = 0;
  std::uint64_t size_bytes = 0;  // all of them together
  Tag tag;
  CallStack made_at;
};

// The blocks that are alive. Thread-safe (one mutex). Reports are O(n log n) for n live blocks.
class TrackedBlocks {
 public:
  // How many are alive, and their bytes as asked for.
  std::uint64_t live_blocks() const;
  std::uint64_t live_bytes() const;
  std::vector<TrackedBlock> blocks() const;  // in the order of their requests
  std::vector<TrackedSite> call_sites() const;  // most bytes first
  // "no blocks are alive", or the number of blocks and bytes, and for each call site its share.
  std::string leak_report() const;

 protected:
  void add(TrackedBlock& block);  // gives it its number
  void remove(const TrackedBlock& block);  // it is freed; requires that add has had it

 private:
  mutable std::mutex mutex_;
  std::unordered_set<const TrackedBlock*> live_;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t requests_ = 0;
};

// Keeps each live block's size, tag, and the call stack of its request. Ask for the leaks where
// there should be none: after a step, at the end. Thread-safe (one mutex). A request is
// O(stack_depth), about a microsecond a frame.
template <typename Base>
class TrackingAdaptor final : public Adaptor<Base>, public TrackedBlocks {
 public:
  explicit TrackingAdaptor(std::type_identity_t<Base>& upstream, int stack_depth = 8)
      : Adaptor<Base>(upstream), stack_depth_(stack_depth) {}

 protected:
  std::string adaptor_name() const override { return "tracking"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    DataPtr inner = this->from_upstream(size_bytes, stream);
    if (inner == nullptr) return inner;
    auto block = std::make_unique<Tracked>();
    Tracked* const record = block.get();
    record->entry.tag = current_tag();
    record->entry.made_at = CallStack::capture(stack_depth_, 2);  // without serve and allocate
    DataPtr data = this->wrap(std::move(inner), size_bytes, stream, std::move(block));
    record->entry.data = record->data;
    record->entry.size_bytes = size_bytes;
    add(record->entry);
    return data;
  }
  void take_back(std::unique_ptr<AdaptorBlock> block) override {
    remove(static_cast<const Tracked&>(*block).entry);
    Adaptor<Base>::take_back(std::move(block));
  }

 private:
  struct Tracked : AdaptorBlock {
    TrackedBlock entry;
  };

  const int stack_depth_;
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A, typename... Depth>
TrackingAdaptor(A&, Depth...) -> TrackingAdaptor<AdaptorBase<A>>;

}  // namespace tenon
