#include "tenon/memory/placement/chunk_heap.h"

#include <utility>

#include "tenon/base/check.h"
#include "tenon/base/reserve.h"

namespace tenon {

void ChunkHeap::add_chunk(const Segment& segment, std::uint64_t size_bytes) {
  auto chunk = std::make_unique<Chunk>();
  chunk->heap = this;
  chunk->offset_base = offset_end_;
  chunk->segment = segment;
  chunk->size_bytes = size_bytes;
  chunk->place = chunks_.size();
  reserve_more(chunks_);
  chunk->extent = add_extent(*chunk, false);
  offset_end_ += size_bytes;
  chunk_bytes_ += size_bytes;
  chunks_.push_back(std::move(chunk));
}

void ChunkHeap::forget(Chunk& chunk) {
  chunk_bytes_ -= chunk.size_bytes;
  const std::size_t place = chunk.place;
  std::swap(chunks_[place], chunks_.back());
  chunks_[place]->place = place;
  chunks_.pop_back();
}

bool ChunkHeap::borrow_chunk() {
  const Chunk* lent = chunk_to_borrow();
  if (lent == nullptr) return false;
  auto chunk = std::make_unique<Chunk>(*lent);
  chunk->heap = this;
  chunk->extent = add_extent(*chunk, true);
  borrowed_ = std::move(chunk);
  return true;
}

void ChunkHeap::add_blocks(const Chunk& chunk, std::vector<BlockInfo>& out) const {
  for_each_block(chunk, [&](void* block, const Chunk&, bool used) {
    const BlockFacts of = facts(block);
    out.push_back({reinterpret_cast<std::uintptr_t>(of.address), of.size_bytes,
                   used ? of.requested_bytes : 0,
                   used ? BlockInfo::State::kActive : BlockInfo::State::kInactive});
  });
}

void ChunkHeap::add_snapshot(std::vector<SegmentInfo>& out) const {
  for (const auto& chunk : chunks_) {
    SegmentInfo& segment = out.emplace_back();
    segment.address = reinterpret_cast<std::uintptr_t>(chunk->segment.base);
    segment.size_bytes = chunk->segment.size_bytes;
    segment.stream = stream();
    add_blocks(*chunk, segment.blocks);
  }
}

void ChunkHeap::check_invariants() const {
  check_placement();
  std::int64_t blocks = 0, bytes = 0, requested = 0;
  const auto count_blocks = [&](const Chunk& chunk) {
    for_each_block(chunk, [&](void* block, const Chunk& named, bool used) {
      const BlockFacts of = facts(block);
      TENON_CHECK(&named == &chunk, "a block at {} does not name its chunk", of.layout_offset);
      if (!used) return;
      ++blocks;
      bytes += static_cast<std::int64_t>(of.size_bytes);
      requested += static_cast<std::int64_t>(of.requested_bytes);
    });
  };
  std::uint64_t held = 0;
  for (const auto& chunk : chunks_) {
    count_blocks(*chunk);
    held += chunk->size_bytes;
  }
  if (borrowed() != nullptr) count_blocks(*borrowed());
  TENON_CHECK(held == chunk_bytes_, "chunks of {} bytes, counted {}", held, chunk_bytes_);
  TENON_CHECK(blocks == counters.blocks() && bytes == counters.bytes() &&
                  requested == counters.requested_bytes(),
              "{} blocks of {} bytes ({} requested) in chunks of {}, counted {} of {} ({})", blocks,
              bytes, requested, to_string(stream()), counters.blocks(), counters.bytes(),
              counters.requested_bytes());
}

}  // namespace tenon
