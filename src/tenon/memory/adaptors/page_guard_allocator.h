// Host memory that stops the program at the very access that is wrong.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "tenon/memory/adaptors/guard_report.h"
#include "tenon/memory/allocator.h"

namespace tenon {

// How blocks are laid against the page that faults.
struct PageGuardOptions {
  std::size_t alignment = 16;  // of every block; an overrun by less may not reach the page behind
  std::uint64_t quarantine_bytes = 1 << 30;  // addresses of freed blocks that stay forbidden
  int stack_depth = 12;
};

// Every block has pages of its own and ends where they end. The page behind it is inaccessible, and
// so are all of them once it is freed (an idea of Electric Fence, Perens 1987).
//
//   | zone fb fb ... | data as asked for | < alignment: zone fd | page that faults |
//
// So reads and writes past the end, and any use of a freed block, end the program (SIGSEGV, as
// without the guard). Before that it reports to stderr: which block, which byte, where the block
// was made and freed, and where the access is. Writes into the zones, which no page can stop, are
// reported when the block is freed and end the program by SIGABRT. So does a second free while the
// block is in quarantine. A debugging tool: two pages and two mappings for each block, and some
// 30,000 blocks at most (vm.max_map_count). A pair takes a few microseconds, O(log blocks).
//
// The first of these allocators installs a SIGSEGV handler. After its report, and for any fault
// that is not about a block, it calls the handler that was there before. Failure: OutOfMemory.
// Thread-safe (one mutex).
class PageGuardAllocator final : public Allocator {
 public:
  explicit PageGuardAllocator(PageGuardOptions options = {});
  // Gives all addresses back, those of live blocks too.
  ~PageGuardAllocator() override;

  DataPtr allocate(std::size_t size_bytes) override;
  std::size_t alignment() const override { return options_.alignment; }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    default_copy_data(dest, src, size_bytes);
  }

  // What is known of an address that faulted; empty when it is no block's. For the handler: takes
  // the mutex only if it is free.
  std::string explain(const void* address);

 private:
  struct Block {
    PageGuardAllocator* owner = nullptr;
    std::uintptr_t base = 0;       // of its pages; the forbidden one is the last
    std::uint64_t pages_bytes = 0;
    unsigned char* data = nullptr;
    bool freed = false;
    GuardReport known;             // its size, where it was made and freed
    Block* freed_next = nullptr;   // in quarantine
  };

  static void free_block(void* context);
  void take_back(Block& block);
  void require_whole(const Block& block, GuardReport::Kind kind, std::int64_t offset,
                     std::size_t size, unsigned char expected) const;
  void evict();

  const PageGuardOptions options_;
  std::mutex mutex_;
  std::map<std::uintptr_t, Block> blocks_;  // by base; live ones and those in quarantine
  Block* oldest_ = nullptr;                 // of those in quarantine
  Block* newest_ = nullptr;
  std::uint64_t quarantined_bytes_ = 0;
};

}  // namespace tenon
