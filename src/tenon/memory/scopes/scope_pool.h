// The memory that scopes use over and over.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/heap/best_fit_heap.h"
#include "tenon/memory/allocator.h"
#include "tenon/memory/device_allocator.h"
#include "tenon/memory/reclaim.h"
#include "tenon/memory/scopes/resident.h"

namespace tenon {

// How a pool grows and aligns.
struct ScopeOptions {
  std::uint64_t first_chunk_bytes = kMiB;     // each further chunk doubles what is held ...
  std::uint64_t max_chunk_bytes = 64 * kMiB;  // ... up to this, or as the request needs
  // Of every block: a power of two up to 4096; 0: the upstream's, from 64 on
  std::uint64_t alignment = 0;
};

// What one scope did, known at its end.
struct ScopeReport {
  std::uint64_t allocations = 0;
  std::uint64_t bytes = 0;           // asked for, over the scope's whole life
  std::uint64_t high_water_bytes = 0;  // most in use by the arena at once
  std::uint64_t escapes = 0;         // blocks that outlived the scope
  std::uint64_t escaped_bytes = 0;
};

// What a pool has done, and what it holds now.
struct ScopePoolStats {
  std::uint64_t scopes = 0;            // that have ended
  std::uint64_t escapes = 0;           // ever
  std::uint64_t escaped_bytes = 0;     // ever, as asked for
  std::uint64_t kept_bytes = 0;        // that escapes keep from being used again, now
  std::uint64_t upstream_calls = 0;    // allocations from upstream
  std::uint64_t chunks = 0;
  std::uint64_t reserved_bytes = 0;    // in chunks
  std::uint64_t in_use_bytes = 0;      // by open scopes, as last noted
  std::uint64_t high_water_bytes = 0;  // most in use by all open scopes at once
};

namespace scopes {

inline constexpr std::uint64_t kEscapePageBytes = 4096;  // an escape keeps whole ones

// One block from upstream. Offsets in its placement count from its first aligned byte. It owns its
// blocks (Block::owner).
struct Chunk {
  DataPtr memory;
  std::byte* base = nullptr;
  std::uint64_t size_bytes = 0;
  std::uint32_t stream = 0;
  BestFitHeap heap;
};

// A piece of a chunk that an arena fills from the bottom up.
struct Span {
  Chunk* chunk = nullptr;
  Block* block = nullptr;
  std::uint64_t position = 0;          // first free byte, in the chunk
  std::uint64_t end = 0;
  std::uint64_t first_resident = 0;    // in the arena's numbering: all earlier ones are dead,
  std::uint64_t end_resident = 0;      // and it has none from here on, once it is full

  // Its first byte, in the chunk.
  std::uint64_t begin() const { return block->offset; }
};

}  // namespace scopes

// Chunks from an upstream allocator, lent to scopes in spans. A span goes to a scope of the same
// stream, is given back when the scope ends, and keeps, page by page, what outlived it:
//
//   chunk  |  span of an open scope ...      | E |   free   | E E |  free        |
//                                            escapes of ended scopes
//
// A span is taken from the oldest chunk that has room. So a scope that repeats the requests of the
// one before finds everything at the same addresses, without calls of the upstream.
//
// A chunk is kept until trim(), the end of the pool, or a lack of memory (reclaim.h). It also goes
// when all are free and a larger one takes their place. So scopes that grow hold their largest
// chunk, not the sum. The pool is held by its users, by open scopes, and by escapes. Requires: the
// upstream outlives all three; that of scope_pool_of() may end first, but as an adaptor it leaves
// escapes that need its own upstream.
//
// Thread safety: one mutex, taken for spans and escapes, never for a block; not held during calls
// of the upstream. Taking a span: O(chunks).
class ScopePool : public std::enable_shared_from_this<ScopePool>, private Reclaimer {
 public:
  // Throws InvalidArgument for options that make no sense.
  static std::shared_ptr<ScopePool> make(Allocator& upstream, const ScopeOptions& options = {});
  [[gnu::cold]] ~ScopePool();
  ScopePool(const ScopePool&) = delete;
  ScopePool& operator=(const ScopePool&) = delete;

  // Chunks without any span or escape go back upstream. In the others, on the CPU, the free pages'
  // memory goes back to the system.
  void trim();

  // A copy; takes the pool's mutex.
  ScopePoolStats stats() const;
  ScopeReport last_report() const;  // of the scope that ended last
  // What it was made with.
  Allocator& upstream() const { return upstream_; }
  Device device() const { return device_; }
  const ScopeOptions& options() const { return options_; }
  // Throws InternalError where the books are not whole. O(blocks).
  [[gnu::cold]] void check_invariants() const;

 private:
  friend class ScopeArena;
  friend class ScopeAttachment;
  friend void free_resident(void* context);

  [[gnu::cold]] ScopePool(Allocator& upstream, const ScopeOptions& options);

  // --- For arenas.
  // The whole of a free block with room for `size_bytes`, growing if need be.
  scopes::Span take_span(std::uint32_t stream, std::uint64_t size_bytes);
  // Room that is already there; a null block when there is none.
  scopes::Span find_span(std::uint32_t stream, std::uint64_t size_bytes);
  void give_back(Block* block);
  // Cuts a block at `offset`, and returns what lies above. Null where nothing lies on one side, or
  // where there is no memory for a record of it.
  Block* cut(Block* block, std::uint64_t offset);
  void note_use(std::uint64_t noted_bytes, std::uint64_t bytes);
  void end_scope(const ScopeReport& report);
  scopes::ResidentPage* take_page();
  void give_page(scopes::ResidentPage* page);

  // --- For escapes.
  void keep(scopes::Resident* cluster, Block* block);
  void release(scopes::Resident* cluster);
  // The upstream is gone, and its memory with it.
  void abandon();
  // The upstream, an adaptor, ends: idle chunks go back, and those with escapes lose its record.
  [[gnu::cold]] void outlive(DataPtr (*unwrap)(DataPtr));

  // --- When memory is short.
  [[gnu::cold]] std::string reclaim_name() const override;
  std::uint64_t idle_bytes() const override;
  void reclaim() override { release_free_chunks(); }

  [[gnu::cold]] DataPtr from_upstream(std::uint32_t stream, std::uint64_t size_bytes);
  bool try_add_chunk(std::uint32_t stream, std::uint64_t size_bytes);
  [[gnu::cold]] void add_chunk(std::uint32_t stream, std::uint64_t size_bytes);
  [[gnu::cold]] bool all_free(std::uint32_t stream);
  // Of one stream, else of all. Returns bytes.
  [[gnu::cold]] std::uint64_t release_free_chunks(std::optional<std::uint32_t> stream = {});
  [[gnu::cold]] std::uint64_t layout_offset(const DataPtr& data) const;

  Allocator& upstream_;
  const Device device_;
  const ScopeOptions options_;
  DeviceAllocator* const on_stream_;  // the upstream, where it knows streams

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<scopes::Chunk>> chunks_;  // oldest first
  scopes::ResidentPage* free_pages_ = nullptr;
  ScopePoolStats stats_;
  ScopeReport last_report_;
  ReclaimEnrolment enrolment_;  // last
};

// The pool that with_scope keeps with an upstream, made at the first call. It ends with the
// upstream.
std::shared_ptr<ScopePool> scope_pool_of(Allocator& upstream);

}  // namespace tenon
