// The requests that Tenon serves.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tenon/base/page_map.h"

namespace tenon {
class HostAllocator;
}

namespace tenon::preload {

// Requests of so many bytes and more are Tenon's.
inline constexpr std::size_t kLeastBytes = 64 << 10;

// Blocks of one HostAllocator over the machine's memory, each entered in a table by its address: two
// never begin in the same 64 KiB. What is not in the table is the allocator's below.
//
// Thread-safe; works before static constructors and after static destructors. Nothing throws: null
// means that Tenon does not serve the request, because it has no memory, or because it is Tenon
// itself that asks. Such a request is the allocator's below.
//
// Note [Zeroed places]: a large zeroed block gets fresh pages, so pages that its place kept would be
// of no use to it. A program that replaces one zeroed array by the next would hold those of both.
// So the pages of such a block go back when it is freed. A block that is not zeroed then takes page
// faults in that place. Where that happened, the place keeps its pages, until two zeroed blocks
// follow each other there.
//
// Note [Growing blocks]: a program that lengthens a block step by step would have it copied at each
// step. So a block that has grown before gets more room than it asks for, whose pages stay
// untouched. The pages of the old place go back as they are copied: the program never has both.
class LargeBlocks {
 public:
  // `alignment`: a power of two.
  static void* allocate(std::size_t size, std::size_t alignment) {
    return allocate(size, alignment, false);
  }
  static void* allocate_zeroed(std::size_t size);
  // False: not one of ours, and nothing happened.
  static bool free(void* data) {
    Record* const record = find(data);
    if (record == nullptr) [[likely]] return false;
    release(*record);
    return true;
  }
  // 0: not one of ours.
  static std::size_t size_of(const void* data) {
    const Record* const record = find(data);
    return record == nullptr ? 0 : record->size;
  }
  // Another size for one of ours within its room, if it stays worth that. False: it must move.
  static bool resize(void* data, std::size_t size);
  // Moves one of ours to where there is room for a larger size. Null: nothing happened.
  static void* grow(void* data, std::size_t size);

  // What Tenon keeps idle goes back to the system. False: it keeps nothing.
  static bool give_back();

  // Null when nothing was ever served.
  static HostAllocator* allocator() { return allocator_.load(std::memory_order_acquire); }

  // Makes the allocator: before the program's main, or at the first request.
  static HostAllocator* start();

 private:
  struct Record {
    std::atomic<void*> start{nullptr};  // what the program was given; null: free
    void* base = nullptr;               // what the allocator gave: before it, where alignment asks
    std::size_t size = 0;               // the room
    bool has_grown = false;             // Note [Growing blocks]
    // Note [Zeroed places].
    bool is_fresh = false;
    bool keeps_pages = false;
  };
  // Never destroyed.
  union Table {
    constexpr Table() : map() {}
    ~Table() {}
    PageMap<Record> map;
  };

  static Record* find(const void* data) {
    Record* const record = table_.map.get(data);
    if (record == nullptr) [[likely]] return nullptr;
    return record->start.load(std::memory_order_relaxed) == data ? record : nullptr;
  }
  static void* allocate(std::size_t size, std::size_t alignment, bool is_fresh);
  static void release(Record& record);
  static bool enter(void* start, void* base, std::size_t size, bool is_fresh);

  static Table table_;
  static std::atomic<HostAllocator*> allocator_;
};

}  // namespace tenon::preload
