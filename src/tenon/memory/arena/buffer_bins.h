// Free buffers by stream and size class, so many of each at most.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/base/slab.h"
#include "tenon/memory/arena/size_classes.h"
#include "tenon/memory/data_ptr.h"

namespace tenon::arena {

// A buffer that belongs to a pool, in use or not. Where its memory came from stays with it. One
// cache line.
struct alignas(64) PooledBuffer {
  void* owner = nullptr;
  void* data = nullptr;
  void* upstream_context = nullptr;  // what upstream_deleter is given
  DeleterFn upstream_deleter = nullptr;
  union {
    PooledBuffer* next = nullptr;    // free: the one below it in its bin
    std::uint64_t requested_bytes;   // in use
  };
  std::uint64_t serial = 0;          // how many buffers its stream had made before
  std::uint32_t size_class = 0;
  std::uint32_t stream = 0;
  std::uint32_t place = 0;           // in all()
  bool in_use = false;
  bool used_elsewhere = false;       // record_stream named another stream

  std::uint64_t size_bytes() const { return size_class_bytes(size_class); }
};
static_assert(sizeof(PooledBuffer) == 64);

// The buffers of one pool: a stack of free ones for every stream and size class, none deeper than
// `max_per_size`. take and put: O(1), no branch on size. Not thread-safe.
class BufferBins {
 public:
  explicit BufferBins(std::uint32_t max_per_size) : max_per_size_(max_per_size) {}

  // The buffer of this class that was freed last on the stream; null when there is none.
  PooledBuffer* take(std::uint32_t stream, std::uint32_t size_class) {
    if (stream >= streams_.size() || size_class >= streams_[stream].bins.size()) [[unlikely]]
      return nullptr;
    Bin& bin = streams_[stream].bins[size_class];
    PooledBuffer* buffer = bin.top;
    if (buffer == nullptr) [[unlikely]] return nullptr;
    bin.top = buffer->next;
    --bin.depth;
    buffer->in_use = true;
    return buffer;
  }

  // False when the bin is full: the buffer is to go back to where it came from.
  bool put(PooledBuffer* buffer) {
    buffer->in_use = false;
    Bin& bin = streams_[buffer->stream].bins[buffer->size_class];
    if (bin.depth >= max_per_size_) [[unlikely]] return false;
    ++bin.depth;
    buffer->next = bin.top;
    bin.top = buffer;
    return true;
  }

  // A new buffer, in use, over memory that it takes from `memory`.
  PooledBuffer* create(void* owner, std::uint32_t stream, std::uint32_t size_class,
                       DataPtr memory) {
    if (streams_.size() <= stream) streams_.resize(stream + 1);
    if (streams_[stream].bins.size() <= size_class) streams_[stream].bins.resize(size_class + 1);
    all_.reserve(all_.size() + 1);
    PooledBuffer* buffer = records_.create();
    buffer->owner = owner;
    buffer->data = memory.get();
    buffer->serial = streams_[stream].made++;
    buffer->size_class = size_class;
    buffer->stream = stream;
    buffer->in_use = true;
    buffer->place = static_cast<std::uint32_t>(all_.size());
    buffer->upstream_deleter = memory.get_deleter();
    buffer->upstream_context = memory.release_context();
    all_.push_back(buffer);
    return buffer;
  }

  // Forgets the buffer and returns its memory, which the caller lets go. Requires: it is in no bin.
  DataPtr destroy(PooledBuffer* buffer) {
    all_.back()->place = buffer->place;
    all_[buffer->place] = all_.back();
    all_.pop_back();
    DataPtr memory(buffer->data, buffer->upstream_context, buffer->upstream_deleter, Device());
    records_.destroy(buffer);
    return memory;
  }

  // Empties every bin; the memory of its buffers, for the caller to let go.
  std::vector<DataPtr> drain() {
    std::vector<DataPtr> memory;
    for (Stream& stream : streams_)
      for (Bin& bin : stream.bins)
        while (PooledBuffer* buffer = bin.top) {
          bin.top = buffer->next;
          --bin.depth;
          memory.push_back(destroy(buffer));
        }
    return memory;
  }

  const std::vector<PooledBuffer*>& all() const { return all_; }
  std::uint32_t max_per_size() const { return max_per_size_; }

 private:
  struct Bin {
    PooledBuffer* top = nullptr;
    std::uint32_t depth = 0;
  };
  struct Stream {
    std::vector<Bin> bins;  // by size class
    std::uint64_t made = 0;
  };

  const std::uint32_t max_per_size_;
  std::vector<Stream> streams_;  // by id
  Slab<PooledBuffer> records_;
  std::vector<PooledBuffer*> all_;
};

}  // namespace tenon::arena
