#include "tenon/memory/scopes/scope_arena.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/base/reserve.h"
#include "tenon/memory/front/completion.h"

namespace tenon {

using scopes::kEscapePageBytes;
using scopes::Resident;
using scopes::ResidentPage;
using scopes::Span;

namespace {

bool has_room(const Span& span, std::uint64_t size_bytes) {
  return span.block != nullptr && size_bytes <= span.end - span.position;
}

}  // namespace

// The deleter of every block of every arena.
void free_resident(void* context) {
  auto* resident = static_cast<Resident*>(context);
  const Resident::State before =
      resident->state.exchange(Resident::State::kDead, std::memory_order_acq_rel);
  // While the scope is open it looks for itself; from here on the record may be used again.
  if (before == Resident::State::kLive) [[likely]] return;
  if (before == Resident::State::kDead)
    throw InvalidPointer("free: this block of a scope was freed already");
  Resident* cluster = resident->cluster;
  ResidentPage::of(resident)->drop();
  if (cluster->escapes.fetch_sub(1, std::memory_order_acq_rel) == 1)
    ResidentPage::of(cluster)->pool->release(cluster);
}

ScopeArena::ScopeArena(std::shared_ptr<ScopePool> pool) : pool_(std::move(pool)) {}

ScopeArena::Lane& ScopeArena::lane_of(std::uint32_t stream) {
  for (Lane& lane : lanes_)
    if (lane.stream == stream) [[likely]] return lane;
  lanes_.emplace_back().stream = stream;
  return lanes_.back();
}

DataPtr ScopeArena::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return DataPtr(device());
  check_size(size_bytes);
  const std::uint32_t stream = current_stream(device()).id;
  const std::uint64_t rounded = align_up(size_bytes, pool_->options().alignment);
  for (Span fresh;;) {
    {
      const std::lock_guard lock(lock_);
      Lane& lane = lane_of(stream);
      const bool has_spans = lane.span.block != nullptr || !lane.retired.empty();
      if (fresh.block != nullptr) {
        adopt(lane, fresh);
      } else if (has_spans && !has_room(lane.span, rounded)) {
        const LongLock::Stay stay(lock_);
        make_room(lane, rounded);
      }
      Resident* resident = nullptr;
      if (void* data = place(lane, rounded, &resident)) {
        resident->size_bytes = size_bytes;
        report_.bytes += size_bytes;
        return DataPtr(data, resident, &free_resident, device());
      }
    }
    // Without the lock: the upstream may call observers, and they may allocate here.
    fresh = pool_->take_span(stream, rounded);
  }
}

// Retires the span that is being filled, for a fresh one.
void ScopeArena::adopt(Lane& lane, const Span& fresh) {
  const LongLock::Stay stay(lock_);
  try {
    retire(lane);
  } catch (...) {
    pool_->give_back(fresh.block);
    throw;
  }
  lane.span = fresh;
  lane.span.first_resident = lane.residents;
}

// Null when the span has no room.
void* ScopeArena::place(Lane& lane, std::uint64_t size_bytes, Resident** placed) {
  Span& span = lane.span;
  if (!has_room(span, size_bytes)) return nullptr;
  if (lane.residents == lane.pages.size() * ResidentPage::kResidents) {
    const LongLock::Stay stay(lock_);
    lane.pages.push_back(pool_->take_page());
  }
  Resident& record = resident(lane, lane.residents);
  record.offset = span.position;
  record.state.store(Resident::State::kLive, std::memory_order_relaxed);
  ++lane.residents;
  ++report_.allocations;
  span.position += size_bytes;
  *placed = &record;
  return span.chunk->base + record.offset;
}

// Looks for room in spans whose blocks are all gone: the current one is filled anew, others return
// to the pool, where this or any scope of the stream finds them.
void ScopeArena::make_room(Lane& lane, std::uint64_t size_bytes) {
  note_use();
  Span& current = lane.span;
  const bool empty = current.block != nullptr && all_dead(lane, current, lane.residents);
  bool ordered = false;
  std::erase_if(lane.retired, [&](Span& span) {
    if (!all_dead(lane, span, span.end_resident)) return false;
    if (!std::exchange(ordered, true)) order_after_users(lane);
    pool_->give_back(span.block);
    return true;
  });
  if (!empty) return;
  if (!ordered) order_after_users(lane);
  if (lane.retired.empty()) lane.residents = 0;  // none is left: the records are free too
  current.first_resident = lane.residents;
  current.position = current.begin();
  if (size_bytes > current.end - current.position) retire(lane);  // larger than the whole span
}

// A dead block stays dead, so each is checked once: O(1) amortised.
bool ScopeArena::all_dead(Lane& lane, Span& span, std::uint64_t end_resident) {
  for (; span.first_resident < end_resident; ++span.first_resident)
    if (resident(lane, span.first_resident).state.load(std::memory_order_acquire) !=
        Resident::State::kDead)
      return false;
  return true;
}

void ScopeArena::retire(Lane& lane) {
  Span& span = lane.span;
  if (span.block == nullptr) return;
  if (span.position == span.begin()) {
    pool_->give_back(span.block);
  } else {
    reserve_more(lane.retired);
    if (Block* tail = pool_->cut(span.block, align_up(span.position, kEscapePageBytes)))
      pool_->give_back(tail);
    span.end = span.begin() + span.block->size;
    span.end_resident = lane.residents;
    lane.retired.push_back(span);
  }
  span = {};
}

void ScopeArena::park() {
  const std::lock_guard lock(lock_);
  const LongLock::Stay stay(lock_);
  note_use();
  for (Lane& lane : lanes_) retire(lane);
}

void ScopeArena::note_use() {
  std::uint64_t bytes = 0;
  for (const Lane& lane : lanes_) {
    if (lane.span.block != nullptr) bytes += lane.span.position - lane.span.begin();
    for (const Span& span : lane.retired) bytes += span.position - span.begin();
  }
  pool_->note_use(std::exchange(noted_bytes_, bytes), bytes);
  report_.high_water_bytes = std::max(report_.high_water_bytes, bytes);
}

ScopeReport ScopeArena::report() const {
  const std::lock_guard lock(lock_);
  return report_;
}

// --- Streams.

void ScopeArena::record_stream(const DataPtr& data, Stream stream) {
  if (pool_->on_stream_ == nullptr || stream.device != device())
    raise<InvalidArgument>("record_stream: this scope's memory knows no {}", to_string(stream));
  if (data == nullptr) return;
  const std::lock_guard lock(lock_);
  if (data.get_deleter() == &free_resident) {
    const ResidentPage* page = ResidentPage::of(static_cast<Resident*>(data.get_context()));
    for (Lane& lane : lanes_) {
      if (std::find(lane.pages.begin(), lane.pages.end(), page) == lane.pages.end()) continue;
      if (lane.stream != stream.id &&
          std::find(lane.users.begin(), lane.users.end(), stream) == lane.users.end())
        lane.users.push_back(stream);
      return;
    }
  }
  raise<InvalidPointer>("record_stream({}): not a block of this scope", data.get());
}

// Orders the lane stream's next work after the other streams' queued work.
void ScopeArena::order_after_users(Lane& lane) {
  if (lane.users.empty()) [[likely]] return;
  Backend& backend = pool_->on_stream_->backend();
  try {
    for (const Stream user : lane.users)
      Completion::order_now(backend, user, {device(), lane.stream});
  } catch (...) {
    backend.synchronize();  // no event to be had: the host waits instead
  }
}

// --- The end.

ScopeArena::~ScopeArena() {
  const std::lock_guard lock(lock_);  // what other threads have done in the scope
  const LongLock::Stay stay(lock_);
  note_use();
  for (Lane& lane : lanes_) {
    close(lane);
    for (ResidentPage* page : lane.pages)
      if (page->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) pool_->give_page(page);
  }
  pool_->note_use(noted_bytes_, 0);
  pool_->end_scope(report_);
}

void ScopeArena::close(Lane& lane) {
  try {
    order_after_users(lane);
  } catch (...) {
    // The device does not even wait any more: nothing runs on it that could use the memory.
  }
  for (const Span& span : lane.retired) close_span(lane, span);
  if (lane.span.block == nullptr) return;
  lane.span.end_resident = lane.residents;
  close_span(lane, lane.span);
}

// Blocks that are still held become escapes, and what lies between their clusters goes back.
void ScopeArena::close_span(Lane& lane, const Span& span) {
  Resident* cluster = nullptr;
  Block* rest = span.block;  // the cluster and what lies above it
  std::uint64_t cluster_end = 0;
  for (std::uint64_t i = span.first_resident; i < span.end_resident; ++i) {
    Resident& block = resident(lane, i);
    if (block.state.load(std::memory_order_acquire) == Resident::State::kDead) continue;
    const std::uint64_t first = align_down(block.offset, kEscapePageBytes);
    const std::uint64_t last = align_up(block.offset + block.size_bytes, kEscapePageBytes);
    if (cluster != nullptr && first >= cluster_end) {
      if (Block* above = pool_->cut(rest, cluster_end))
        pool_->keep(std::exchange(cluster, nullptr), std::exchange(rest, above));
    }
    if (cluster == nullptr) {
      if (Block* above = pool_->cut(rest, first)) pool_->give_back(std::exchange(rest, above));
      cluster = &block;
      cluster->escapes.store(1, std::memory_order_relaxed);
      ResidentPage::of(cluster)->holders.fetch_add(1, std::memory_order_relaxed);
    }
    cluster_end = last;
    escape(block, cluster);
  }
  Block* const unused = cluster == nullptr ? rest : pool_->cut(rest, cluster_end);
  if (unused != nullptr) pool_->give_back(unused);
  if (cluster != nullptr) pool_->keep(cluster, rest);
}

// The holder may let the block go at any moment, on any thread: the first change of the state
// decides. The scope holds the cluster and the pages meanwhile.
void ScopeArena::escape(Resident& block, Resident* cluster) {
  ResidentPage* page = ResidentPage::of(&block);
  if (page->pool == nullptr) page->pool = pool_;
  page->holders.fetch_add(1, std::memory_order_relaxed);
  block.cluster = cluster;
  cluster->escapes.fetch_add(1, std::memory_order_relaxed);
  Resident::State expected = Resident::State::kLive;
  if (block.state.compare_exchange_strong(expected, Resident::State::kEscaped,
                                          std::memory_order_acq_rel)) {
    ++report_.escapes;
    report_.escaped_bytes += block.size_bytes;
  } else {
    page->holders.fetch_sub(1, std::memory_order_relaxed);
    cluster->escapes.fetch_sub(1, std::memory_order_relaxed);
  }
}

}  // namespace tenon
