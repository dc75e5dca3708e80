// One stream's part of a plan, followed as closely as the program allows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tenon/heap/plan_heap.h"
#include "tenon/memory/placement/chunked_allocator.h"
#include "tenon/memory/placement/shared_range.h"

namespace tenon {

struct PlanConfig {
  const Plan* plan = nullptr;          // outlives the allocator
  std::shared_ptr<SharedRange> range;  // where the plan's streams share; else null
};

// How well a program kept to its plan.
struct PlanAdherence {
  std::uint64_t served = 0;          // requests that got their planned place
  std::uint64_t wrong_size = 0;      // the plan had another size next
  std::uint64_t occupied = 0;        // the planned place was still in use
  std::uint64_t unplanned = 0;       // no plan for the stream, or no memory for it
  std::uint64_t resynchronised = 0;  // times the program was found again elsewhere in the plan

  std::uint64_t diverged() const { return wrong_size + occupied; }
};

// Serves a stream from its plan and finds the program again after it has left it:
//  - a request of another size than the next slot's is taken for one that the plan does not know
//    and is refused (the fallback serves it); the plan waits;
//  - a request whose place is still in use is refused too, and the plan goes on;
//  - the last few sizes that were refused in a row are remembered: where the same sequence stands
//    elsewhere in the plan (nearest ahead, around its end), the program is taken to be there.
// Wherever that leads, PlanHeap serves no place that is in use, so a wrong guess costs memory, not
// correctness. Where streams share a range, SharedRange has the last word.
class PlanPlacement final : public PlacementHeap<PlanPlacement, PlanBlock> {
 public:
  [[gnu::cold]] PlanPlacement(DeviceAllocator& allocator, Stream stream, const PlanConfig& config);

  static std::uint64_t offset_of(Handle block) { return block->offset; }
  static std::uint64_t size_of(Handle block) { return block->size; }
  static Handle& link_of(Handle block) { return reinterpret_cast<Handle&>(block->context); }

  // The common case, without effect where it is another: a program that keeps to its plan, memory
  // for which no other stream must be waited for.
  Handle place_fast(std::uint64_t size) {
    if (!has_memory_) [[unlikely]] return nullptr;
    PlanBlock* block = heap_->place_next(size, [&](Handle next) {
      return range_ == nullptr
                 ? heap_->is_clear(*next)
                 : range_->claim_fast(spans_[heap_->cursor()], stream_, generation_);
    });
    if (block != nullptr) [[likely]] ++report_.served;
    return counted(block, size);
  }
  Handle place_block(std::uint64_t size) {
    if (!has_memory()) [[unlikely]] return refuse_without_memory();
    PlanBlock* block = heap_->place(size);
    if (block == nullptr) [[unlikely]] return place_off_plan(size);
    if (range_ != nullptr && !claim(block)) return nullptr;
    ++report_.served;
    return block;
  }
  void release_block(Handle block) {
    heap_->release(block);
    if (range_ != nullptr) range_->give_back(span_of(block), stream_);
  }

  // The whole plan, once.
  std::uint64_t wanted_bytes(std::uint64_t, int choice) const override {
    const bool wanted = choice == 0 && heap_.has_value() && !has_memory() && !refused_;
    return wanted ? memory_bytes_ : 0;
  }
  // Memory that another stream's heap has brought and this one may use.
  bool can_borrow() const override {
    return range_ != nullptr && heap_.has_value() && !has_memory() && range_->chunk() != nullptr;
  }
  [[gnu::cold]] void borrow() override;
  const Extent* borrowed() const override { return extents().empty() ? borrowed_.get() : nullptr; }
  using ExtentHeap::blocks_of;
  bool withdraw(Extent&) override {
    if (range_ != nullptr ? !range_->close_if_free() : heap_->any_in_use()) return false;
    has_memory_ = false;
    if (range_ != nullptr) range_->take_away();
    return true;
  }
  // The device has no memory for the plan: the fallback serves the stream from now on.
  void note_refused() override { refused_ = true; }
  std::uint64_t largest_free() const override { return has_memory() ? heap_->largest_free() : 0; }
  const PlanAdherence& report() const { return report_; }

 private:
  static constexpr std::size_t kMemory = 4;  // sizes that identify a place in the plan: any few
  using Sizes = std::array<std::uint64_t, kMemory>;

  [[gnu::cold]] void* give(Extent& chunk) override;
  // Its blocks lie in the chunk, brought by this heap or by another.
  void use(Extent& chunk);
  void for_each_block(const Extent&, const Visit& visit) const override {
    for (PlanBlock* block : heap_->in_use_by_offset())
      visit(block, chunk_of(block), State::kActive);
  }
  [[gnu::cold]] void check_placement() const override;
  bool has_memory() const {
    return has_memory_ && (range_ == nullptr || generation_ == range_->generation());
  }
  bool claim(Handle block);
  SharedRange::Span span_of(Handle block) const {
    return spans_[static_cast<std::size_t>(block - &heap_->slot(0))];
  }
  Handle refuse_without_memory();
  Handle place_off_plan(std::uint64_t size);
  std::optional<std::size_t> find_program() const;
  [[gnu::cold]] void index_sequences();

  std::optional<PlanHeap> heap_;  // none: the plan does not know the stream
  const Stream stream_;
  SharedRange* const range_;      // null: the stream's memory is its own
  std::vector<SharedRange::Span> spans_;  // of each slot in the shared range
  std::uint64_t generation_ = 0;  // of the range's memory, when it was taken
  std::unique_ptr<Extent> borrowed_;  // the heap's own record of another's chunk
  std::uint64_t unit_bytes_ = 1;
  std::uint64_t memory_bytes_ = 0;  // that the plan needs, for the stream or for all that share
  bool has_memory_ = false;
  bool refused_ = false;
  Sizes recent_ = {};              // rounded sizes refused lately, oldest first
  std::size_t recent_count_ = 0;   // how many of them in a row
  std::uint64_t served_before_ = 0;  // report_.served at the last refusal
  // Where each sequence of kMemory sizes ends in the plan: (hash, slot), sorted. Made when first
  // needed.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> sequences_;
  PlanAdherence report_;
};

}  // namespace tenon
