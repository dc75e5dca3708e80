// The allocator that a scope gives its body.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tenon/base/long_lock.h"
#include "tenon/memory/scopes/scope_pool.h"

namespace tenon {

// Bump allocation in spans of a ScopePool. A span whose blocks are all free is filled anew when
// room is needed. At the end of the scope everything goes together; blocks that are still held
// become escapes, which stay valid and keep only their own pages of the chunk. The end needs no
// memory of its own: where there is none to cut an escape off, it keeps what lies beside it too.
//
// Streams: every stream has spans of its own, filled in stream order. If another stream uses a
// block, name it by record_stream while the scope is open.
//
// Thread safety: any thread may allocate (one spin lock, on which threads sleep while another looks
// for room) and drop blocks (no lock while the scope is open). allocate: O(1) but for a new span.
// Must not be used after its scope has ended.
class ScopeArena final : public Allocator {
 public:
  explicit ScopeArena(std::shared_ptr<ScopePool> pool);
  ~ScopeArena() override;  // the end of the scope
  ScopeArena(const ScopeArena&) = delete;
  ScopeArena& operator=(const ScopeArena&) = delete;

  DataPtr allocate(std::size_t size_bytes) override;
  std::size_t alignment() const override { return pool_->options().alignment; }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    pool_->upstream().copy_data(dest, src, size_bytes);
  }
  // Throws InvalidPointer for a block of another allocator, InvalidArgument where the upstream
  // knows no streams.
  [[gnu::cold]] void record_stream(const DataPtr& data, Stream stream);

  // Where its memory is, and the pool that lends it.
  Device device() const { return pool_->device(); }
  const std::shared_ptr<ScopePool>& pool() const { return pool_; }
  // A block's place within its stream's range: the chunk's, as the upstream has it, and the place
  // in the chunk. Requires: a live block of this arena. O(chunks).
  std::uint64_t layout_offset(const DataPtr& data) const { return pool_->layout_offset(data); }
  // So far; escapes are known at the end.
  ScopeReport report() const;

  // Lends what is left of its spans to a scope inside; the next allocation takes room again.
  void park();

 private:
  // One stream's spans and residents.
  struct Lane {
    std::uint32_t stream = 0;
    scopes::Span span;                  // being filled; null block: none
    std::vector<scopes::Span> retired;  // full, oldest first
    std::vector<scopes::ResidentPage*> pages;
    std::uint64_t residents = 0;        // numbered from 0, kResidents to a page
    std::vector<Stream> users;          // other streams, by record_stream
  };

  friend void free_resident(void* context);

  Lane& lane_of(std::uint32_t stream);
  void* place(Lane& lane, std::uint64_t size_bytes, scopes::Resident** placed);
  void make_room(Lane& lane, std::uint64_t size_bytes);
  void retire(Lane& lane);
  bool all_dead(Lane& lane, scopes::Span& span, std::uint64_t end_resident);
  scopes::Resident& resident(Lane& lane, std::uint64_t number) const {
    constexpr std::uint64_t kResidents = scopes::ResidentPage::kResidents;
    return lane.pages[number / kResidents]->residents[number % kResidents];
  }
  void adopt(Lane& lane, const scopes::Span& fresh);
  void order_after_users(Lane& lane);
  void note_use();
  void close(Lane& lane);
  void close_span(Lane& lane, const scopes::Span& span);
  void escape(scopes::Resident& block, scopes::Resident* cluster);

  const std::shared_ptr<ScopePool> pool_;
  mutable LongLock lock_;  // held by a Stay during calls of the pool and the driver
  std::vector<Lane> lanes_;
  ScopeReport report_;
  std::uint64_t noted_bytes_ = 0;  // of the pool's in_use_bytes, ours
};

}  // namespace tenon
