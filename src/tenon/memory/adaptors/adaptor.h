// What all adaptors have in common: they wrap an allocator and are one.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/memory/allocator.h"
#include "tenon/memory/device_allocator.h"
#include "tenon/memory/reclaim.h"

// Note [Adaptors]
//
// An adaptor over a DeviceAllocator is a DeviceAllocator, with streams, statistics and observers;
// one over any other Allocator is an Allocator. So each is a template over the two, written once.
// What does not depend on them is in classes with a source (GuardedBlocks, TrackedBlocks). The
// compiler finds out which:
//
//   LimitAdaptor limited(*get_cpu_allocator(), 1 << 30);      // LimitAdaptor<Allocator>
//   LimitAdaptor limited(caching_allocator, 1 << 30);         // LimitAdaptor<DeviceAllocator>
//   LoggingAdaptor logged(limited, std::cerr);                // they compose
//
// Each block gets a record, which owns the upstream's DataPtr and is the context of the one handed
// out. So a free finds its adaptor on any thread. A request of zero bytes has no record.
//
// An adaptor owns neither its upstream, which must outlive it, nor the blocks: they must be gone
// before it goes. Observers and statistics are the upstream's. O(1) beside it, and one record.
namespace tenon {

// The record of one block. Adaptors that know more derive from it.
struct AdaptorBlock {
  virtual ~AdaptorBlock() = default;
  Allocator* owner = nullptr;
  DataPtr inner;               // the upstream's
  void* data = nullptr;        // what was handed out; inner's, or inside it
  std::size_t size_bytes = 0;  // as asked for
  Stream stream;
};

// (Constructors take std::type_identity_t<Base>, so that the deduction guides alone decide.)
//
// Allocator or DeviceAllocator: what an adaptor over an `A` is.
template <std::derived_from<Allocator> A>
using AdaptorBase =
    std::conditional_t<std::derived_from<A, DeviceAllocator>, DeviceAllocator, Allocator>;

// The part that does not depend on what is wrapped.
template <typename Base>
class AdaptorCore : public Base {
 public:
  static constexpr bool kOnDevice = std::is_same_v<Base, DeviceAllocator>;

  // What a scope pool keeps goes back upstream.
  ~AdaptorCore() override { this->end_attachment(&unwrap); }

  std::size_t alignment() const override {
    std::size_t least = upstream_.alignment();
    for (const Base* upstream : upstreams()) least = std::min(least, upstream->alignment());
    return least;
  }

  // As asked for: what lies behind may be the adaptor's.
  std::size_t usable_size(const DataPtr& data) const override {
    const Block* block = record_of(data);
    return block == nullptr ? 0 : block->size_bytes;
  }

  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    const auto lock = enter();
    upstream_.copy_data(dest, src, size_bytes);
  }

 protected:
  using Block = AdaptorBlock;  // a block's record

  template <typename... Args>
  explicit AdaptorCore(Base& upstream, Args&&... args)
      : Base(std::forward<Args>(args)...), upstream_(upstream) {}

  // "limit" and the like: names it in messages.
  virtual std::string adaptor_name() const = 0;

  // Serves a request; the adaptor's work. On a plain Allocator the stream means nothing.
  virtual DataPtr serve(std::size_t size_bytes, Stream stream) = 0;

  // A block is freed. Overriders do their part and call this.
  virtual void take_back(std::unique_ptr<Block> block) { block->inner.clear(); }

  // Gives up what the adaptor itself keeps back, before the upstream's caches go.
  virtual void release_kept() {}

  // All that blocks may come from, and the one that this block came from.
  virtual std::vector<Base*> upstreams() const { return {&upstream_}; }
  virtual Base& home_of(const Block&) const { return upstream_; }

  // Held while the upstream is used; nothing by default.
  virtual std::unique_lock<std::recursive_mutex> enter() const { return {}; }

  // A request that a limit of the adaptor's refuses.
  Shortage own_shortage() const { return {reclaim_place_of(upstream_), this, false}; }

  // A block of the upstream: on `stream` where it knows streams.
  DataPtr from_upstream(std::size_t size_bytes, Stream stream) {
    if constexpr (kOnDevice)
      return upstream_.allocate_on(size_bytes, stream);
    else
      return upstream_.allocate(size_bytes);
  }

  // The same with `more_bytes`, which only the adaptor wants: messages have the caller's number.
  DataPtr padded_from_upstream(std::size_t more_bytes, std::size_t size_bytes, Stream stream) {
    check_size(size_bytes);
    if (size_bytes == 0) return from_upstream(0, stream);
    try {
      return from_upstream(size_bytes + more_bytes, stream);
    } catch (const OutOfMemory& error) {
      OutOfMemoryDetails details = error.details();
      details.requested_bytes = size_bytes;
      throw OutOfMemory(std::move(details));
    }
  }

  // Hands out an upstream block of at least `size_bytes` from `data` on (null: all of it), with its
  // record.
  DataPtr wrap(DataPtr inner, std::size_t size_bytes, Stream stream,
               std::unique_ptr<Block> block = std::make_unique<Block>(), void* data = nullptr) {
    if (inner == nullptr) return inner;
    const Device device = inner.device();
    block->owner = this;
    block->data = data != nullptr ? data : inner.get();
    block->inner = std::move(inner);
    block->size_bytes = size_bytes;
    block->stream = stream;
    void* const handed_out = block->data;
    return DataPtr(handed_out, block.release(), &drop, device);
  }

  // The record of a block that was handed out here; null for the null pointer. Throws
  // InvalidPointer for any other.
  Block* record_of(const DataPtr& data) const {
    if (data == nullptr) return nullptr;
    auto* block = data.get_deleter() == &drop ? static_cast<Block*>(data.get_context()) : nullptr;
    if (block == nullptr || block->owner != this)
      throw InvalidPointer("the block comes from another allocator than adaptor " + adaptor_name());
    return block;
  }

  // The adaptor itself has no memory to give: reports the failure to the observers and throws.
  [[noreturn]] void refuse(std::size_t size_bytes, Stream stream, OutOfMemoryDetails details) {
    details.requested_bytes = size_bytes;
    if constexpr (kOnDevice) {
      details.allocator = this->name();
      details.device = to_string(this->device());
      this->observers().report(MemoryEvent::kAllocationFailed, nullptr, size_bytes, stream);
    } else {
      details.allocator = adaptor_name();
      details.device = "upstream's device";
    }
    throw OutOfMemory(std::move(details));
  }

  // The upstream's block alone; the record goes.
  static DataPtr unwrap(DataPtr data) {
    if (data == nullptr || data.get_deleter() != &drop) return data;
    const std::unique_ptr<Block> block(static_cast<Block*>(data.release_context()));
    return std::move(block->inner);
  }

  // The deleter of the blocks handed out.
  static void drop(void* context) {
    std::unique_ptr<Block> block(static_cast<Block*>(context));
    auto& self = static_cast<AdaptorCore&>(*block->owner);
    const auto lock = self.enter();
    self.take_back(std::move(block));
  }

  Base& upstream_;
};

template <typename Base>
class Adaptor;

// Over any allocator. Bare pointers are found in a PointerMap.
template <>
class Adaptor<Allocator> : public AdaptorCore<Allocator> {
 public:
  explicit Adaptor(Allocator& upstream) : AdaptorCore(upstream) {}

  DataPtr allocate(std::size_t size_bytes) override {
    const auto lock = enter();
    return serve(size_bytes, Stream{});
  }
  void* raw_allocate(std::size_t size_bytes) override;
  void raw_deallocate(void* data) override;
  DeleterFn raw_deleter() const override {
    raw_table_.enrol();
    return &free_raw;
  }

 private:
  mutable RawTable raw_table_;
};

// Over a DeviceAllocator: forwards everything that is not about one block to the upstream. With
// several upstreams, sums theirs; peaks are then upper bounds.
template <>
class Adaptor<DeviceAllocator> : public AdaptorCore<DeviceAllocator> {
 public:
  explicit Adaptor(DeviceAllocator& upstream) : AdaptorCore(upstream, upstream.backend()) {}

  std::string name() const override { return adaptor_name() + "(" + upstream_.name() + ")"; }
  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override {
    check_request(size_bytes, stream);
    const auto lock = enter();
    return serve(size_bytes, stream);
  }
  void record_stream(const DataPtr& data, Stream stream) override;
  void empty_cache() override;
  AllocatorStats stats() const override;
  void reset_peak_stats() override;
  std::uint64_t reserved_bytes() const override;
  std::uint64_t largest_free_bytes() const override;
  std::vector<SegmentInfo> snapshot() const override;
  std::uint64_t layout_offset(const DataPtr& data) const override;
  void check_invariants() const override;
  void add_sources(std::vector<const Allocator*>& sources) const override;
  ObserverList& observers() override { return upstream_.observers(); }

 private:
  template <typename Visit>
  void for_each_upstream(Visit&& visit) const {
    const auto lock = enter();
    for (DeviceAllocator* upstream : upstreams()) visit(*upstream);
  }
};

}  // namespace tenon
