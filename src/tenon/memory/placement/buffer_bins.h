// One stream's free buffers by size class, so many of each at most.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/reserve.h"
#include "tenon/base/slab.h"
#include "tenon/memory/data_ptr.h"
#include "tenon/memory/size_classes.h"

namespace tenon::arena {

inline constexpr std::uint64_t kClassUnitBytes = 256;
inline constexpr int kClassBits = 3;
using BufferClasses = SizeClasses<kClassUnitBytes, kClassBits>;
inline constexpr int kClasses = BufferClasses::of(kMaxRequestBytes) + 1;

// A buffer that belongs to a pool, in use or not. Where its memory came from stays with it. One
// cache line.
struct alignas(64) PooledBuffer {
  void* owner = nullptr;
  void* data = nullptr;
  void* upstream_context = nullptr;  // what upstream_deleter is given
  union {
    DeleterFn upstream_deleter = nullptr;
    PooledBuffer* link;              // of an allocator's buffers, which have no deleter
  };
  union {
    PooledBuffer* next = nullptr;    // free: the one below it in its bin
    std::uint64_t requested;         // in use
  };
  std::uint64_t size_bytes = 0;
  std::uint32_t serial = 0;          // how many buffers its stream had made before
  std::uint32_t stream = 0;
  std::uint32_t place = 0;           // in all()
  std::uint16_t size_class = 0;
  bool in_use : 1 = false;
  bool is_surplus : 1 = false;       // free, and in no bin
  bool used_elsewhere : 1 = false;   // record_stream named another stream
};
static_assert(sizeof(PooledBuffer) == 64);

// The buffers of one stream: a stack of free ones for every size class, none deeper than
// `max_per_size`. take and put: O(1), no branch on size. Not thread-safe.
class BufferBins {
 public:
  explicit BufferBins(std::uint32_t max_per_size) {
    for (Bin& bin : bins_) bin.room = max_per_size;
  }

  // The buffer of this class that was freed last; null when there is none.
  PooledBuffer* take(int size_class) {
    Bin& bin = bins_[static_cast<std::size_t>(size_class)];
    PooledBuffer* buffer = bin.top;
    if (buffer == nullptr) [[unlikely]] return nullptr;
    bin.top = buffer->next;
    ++bin.room;
    buffer->in_use = true;
    return buffer;
  }

  // False when the bin is full: the buffer is to go back to where it came from.
  bool has_room_for(const PooledBuffer* buffer) const {
    return bins_[buffer->size_class].room != 0;
  }
  // Requires: the bin has room for it.
  void put(PooledBuffer* buffer) {
    buffer->in_use = false;
    Bin& bin = bins_[buffer->size_class];
    --bin.room;
    buffer->next = bin.top;
    bin.top = buffer;
  }
  // Takes a free buffer out of its bin, wherever in it. O(buffers in the bin).
  void unlink(PooledBuffer* buffer) {
    Bin& bin = bins_[buffer->size_class];
    PooledBuffer** at = &bin.top;
    while (*at != buffer) at = &(*at)->next;
    *at = buffer->next;
    ++bin.room;
  }

  // A new buffer, in use, over memory that it takes from `memory`.
  PooledBuffer* create(void* owner, std::uint32_t stream, int size_class, DataPtr memory) {
    reserve_more(all_);
    PooledBuffer* buffer = records_.create();
    buffer->owner = owner;
    buffer->data = memory.get();
    buffer->serial = made_++;
    buffer->size_class = static_cast<std::uint16_t>(size_class);
    buffer->size_bytes = BufferClasses::bytes(size_class);
    buffer->stream = stream;
    buffer->in_use = true;
    buffer->place = static_cast<std::uint32_t>(all_.size());
    buffer->upstream_deleter = memory.get_deleter();
    buffer->upstream_context = memory.release_context();
    all_.push_back(buffer);
    return buffer;
  }

  // Forgets the buffer and returns its memory, which the caller frees. Requires: it is in no bin.
  DataPtr destroy(PooledBuffer* buffer) {
    all_.back()->place = buffer->place;
    all_[buffer->place] = all_.back();
    all_.pop_back();
    DataPtr memory(buffer->data, buffer->upstream_context, buffer->upstream_deleter, Device());
    records_.destroy(buffer);
    return memory;
  }

  // Empties every bin; the memory of its buffers, onto the end of `memory` for the caller to let
  // go.
  void drain(std::vector<DataPtr>& memory) {
    for (Bin& bin : bins_)
      while (PooledBuffer* buffer = bin.top) {
        bin.top = buffer->next;
        ++bin.room;
        memory.push_back(destroy(buffer));
      }
  }

  const std::vector<PooledBuffer*>& all() const { return all_; }

 private:
  struct Bin {
    PooledBuffer* top = nullptr;
    std::uint32_t room = 0;    // for so many more
  };

  std::uint32_t made_ = 0;
  std::array<Bin, kClasses> bins_;
  Slab<PooledBuffer> records_;
  std::vector<PooledBuffer*> all_;
};

}  // namespace tenon::arena
