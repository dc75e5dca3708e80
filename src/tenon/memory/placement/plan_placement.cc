#include "tenon/memory/placement/plan_placement.h"

#include "tenon/base/align.h"
#include "tenon/base/hash.h"
#include "tenon/memory/placement/plan_allocator.h"

namespace tenon {

// Here, where the heap is compiled for speed.
template class FastPath<PlanPlacement, ChunkedAllocator>;

namespace {

template <typename Sizes>
std::uint64_t hash_of(const Sizes& sizes) {
  RunningHash hash;
  for (const std::uint64_t size : sizes) hash.add(size);
  return hash.value();
}

}  // namespace

PlanPlacement::PlanPlacement(DeviceAllocator& allocator, Stream stream, const PlanConfig& config)
    : PlacementHeap(allocator, stream),
      stream_(stream),
      range_(config.range.get()),
      unit_bytes_(config.plan->unit_bytes()) {
  const StreamPlan* plan = config.plan->stream(stream.id);
  if (plan == nullptr || plan->size_bytes == 0) return;
  heap_.emplace(*plan, unit_bytes_);
  if (range_ != nullptr)
    for (std::size_t i = 0; i < heap_->slots(); ++i) {
      const PlanBlock& slot = heap_->slot(i);
      spans_.push_back(range_->span_of(slot.offset, slot.size));
    }
  memory_bytes_ = range_ != nullptr ? config.plan->total_bytes() : plan->size_bytes;
}

void* PlanPlacement::give(Extent& chunk) {
  // The plan's offsets are the stream's range: its chunk is the only one, wherever it lies.
  chunk.origin = reinterpret_cast<std::uintptr_t>(chunk.segment.base);
  if (range_ != nullptr) range_->bring(&chunk);
  use(chunk);
  return this;
}

void PlanPlacement::borrow() {
  borrowed_ = std::make_unique<Extent>(*range_->chunk());
  borrowed_->heap = this;
  use(*borrowed_);
}

void PlanPlacement::use(Extent& chunk) {
  heap_->set_owner(&chunk);
  has_memory_ = true;
  if (range_ != nullptr) generation_ = range_->generation();
}

// Whether the range has the block's bytes for this stream. Should the driver refuse an event, the
// block is given up.
bool PlanPlacement::claim(Handle block) {
  bool claimed = false;
  try {
    claimed = range_->claim(span_of(block), stream_, generation_);
  } catch (...) {
    heap_->release(block);
    throw;
  }
  if (claimed) return true;
  heap_->release(block);  // another stream's block outlived its time there
  ++report_.occupied;
  recent_count_ = 0;
  return false;
}

PlanPlacement::Handle PlanPlacement::refuse_without_memory() {
  if (!heap_.has_value() || refused_) ++report_.unplanned;
  return nullptr;
}

PlanPlacement::Handle PlanPlacement::place_off_plan(std::uint64_t size) {
  if (served_before_ != report_.served) recent_count_ = 0;
  served_before_ = report_.served;
  if (heap_->divergence() == Divergence::kOccupied) {
    // The program is where the plan says, only an older block outlived its time there.
    ++report_.occupied;
    heap_->seek(heap_->cursor() + 1);
    recent_count_ = 0;
    return nullptr;
  }
  ++report_.wrong_size;
  std::rotate(recent_.begin(), recent_.begin() + 1, recent_.end());
  recent_.back() = align_up(size, unit_bytes_);
  if (++recent_count_ < kMemory) return nullptr;
  if (sequences_.empty()) index_sequences();
  const std::optional<std::size_t> slot = find_program();
  if (!slot) return nullptr;
  heap_->seek(*slot);
  recent_count_ = 0;
  ++report_.resynchronised;
  PlanBlock* block = heap_->place(size);
  if (block == nullptr) heap_->seek(*slot + 1);  // found, but its place is still in use
  if (block != nullptr && range_ != nullptr && !claim(block)) return nullptr;
  return block;
}

void PlanPlacement::index_sequences() {
  Sizes sizes = {};
  for (std::size_t i = 0; i < heap_->slots(); ++i) {
    std::rotate(sizes.begin(), sizes.begin() + 1, sizes.end());
    sizes.back() = heap_->slot(i).size;
    if (i + 1 >= kMemory) sequences_.push_back({hash_of(sizes), static_cast<std::uint32_t>(i)});
  }
  std::sort(sequences_.begin(), sequences_.end());
}

// The slot at which the remembered sizes end, nearest ahead of the cursor, around the plan's end.
std::optional<std::size_t> PlanPlacement::find_program() const {
  const std::uint64_t wanted = hash_of(recent_);
  const auto first = std::lower_bound(sequences_.begin(), sequences_.end(),
                                      std::pair{wanted, std::uint32_t{0}});
  if (first == sequences_.end() || first->first != wanted) return std::nullopt;
  const auto ahead = std::lower_bound(
      first, sequences_.end(), std::pair{wanted, static_cast<std::uint32_t>(heap_->cursor())});
  if (ahead != sequences_.end() && ahead->first == wanted) return ahead->second;
  return first->second;
}

void PlanPlacement::check_placement() const {
  if (heap_.has_value()) heap_->check_invariants();
  if (range_ != nullptr) range_->check_invariants();
}

}  // namespace tenon
