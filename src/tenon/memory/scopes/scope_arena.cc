#include "tenon/memory/scopes/scope_arena.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/memory/front/completion.h"

namespace tenon {

using scopes::Cluster;
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
  Cluster* cluster = resident->cluster;
  ResidentPage* page = ResidentPage::of(resident);
  if (page->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete page;
  if (cluster->residents.fetch_sub(1, std::memory_order_acq_rel) == 1)
    cluster->pool->release(cluster);
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
      if (has_spans && (fresh.block != nullptr || !has_room(lane.span, rounded))) {
        const LongLock::Stay stay(lock_);
        if (fresh.block != nullptr)
          retire(lane);
        else
          make_room(lane, rounded);
      }
      if (fresh.block != nullptr) {
        lane.span = fresh;
        lane.span.first_resident = lane.residents;
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
    pool_->give_span(span);
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
    pool_->give_span(span);
  } else {
    pool_->give_tail(span);
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
  } catch (const DeviceError&) {
    backend.synchronize();  // no event to be had: the host waits instead
  }
}

// --- The end.

ScopeArena::~ScopeArena() {
  const std::lock_guard lock(lock_);  // what other threads have done in the scope
  const LongLock::Stay stay(lock_);
  note_use();
  std::vector<ResidentPage*> free_pages;
  for (Lane& lane : lanes_) {
    close(lane);
    for (ResidentPage* page : lane.pages)
      if (page->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) free_pages.push_back(page);
  }
  pool_->give_pages(free_pages);
  pool_->note_use(noted_bytes_, 0);
  pool_->end_scope(report_);
}

void ScopeArena::close(Lane& lane) {
  try {
    order_after_users(lane);
  } catch (const DeviceError&) {
    // The device does not even wait any more: nothing runs on it that could use the memory.
  }
  retire(lane);
  for (const Span& span : lane.retired) close_span(lane, span);
}

// Blocks that are still held become escapes. Their holders may let them go at any moment, on any
// thread: the first change of the state decides. The scope holds every cluster and page meanwhile.
void ScopeArena::close_span(Lane& lane, const Span& span) {
  std::vector<Cluster*> clusters;
  for (std::uint64_t i = span.first_resident; i < span.end_resident; ++i) {
    Resident& block = resident(lane, i);
    if (block.state.load(std::memory_order_acquire) == Resident::State::kDead) continue;
    const std::uint64_t first = align_down(block.offset, scopes::kEscapePageBytes);
    const std::uint64_t last = align_up(block.offset + block.size_bytes, scopes::kEscapePageBytes);
    if (clusters.empty() || first >= clusters.back()->end) {
      auto* cluster = new Cluster;
      cluster->pool = pool_;
      cluster->chunk = span.chunk;
      cluster->begin = first;
      cluster->residents.store(1, std::memory_order_relaxed);
      clusters.push_back(cluster);
    }
    Cluster* cluster = clusters.back();
    cluster->end = std::max(cluster->end, last);
    block.cluster = cluster;
    ResidentPage::of(&block)->holders.fetch_add(1, std::memory_order_relaxed);
    cluster->residents.fetch_add(1, std::memory_order_relaxed);
    Resident::State expected = Resident::State::kLive;
    if (block.state.compare_exchange_strong(expected, Resident::State::kEscaped,
                                            std::memory_order_acq_rel)) {
      ++report_.escapes;
      report_.escaped_bytes += block.size_bytes;
    } else {
      ResidentPage::of(&block)->holders.fetch_sub(1, std::memory_order_relaxed);
      cluster->residents.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  if (clusters.empty()) return pool_->give_span(span);
  pool_->keep_clusters(span, clusters);
  for (Cluster* cluster : clusters)
    if (cluster->residents.fetch_sub(1, std::memory_order_acq_rel) == 1) pool_->release(cluster);
}

}  // namespace tenon
