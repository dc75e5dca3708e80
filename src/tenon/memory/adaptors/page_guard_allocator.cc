#include "tenon/memory/adaptors/page_guard_allocator.h"

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/device/os/os_memory.h"

namespace tenon {
namespace {

// --- The handler, and whom it asks.

struct sigaction previous_action;

struct Instances {
  std::mutex mutex;
  std::vector<PageGuardAllocator*> all;
};
Instances& instances() {
  static Instances* const kInstances = new Instances;  // for faults until the very end
  return *kInstances;
}

// Not written for a healthy program: it allocates and formats. The program is about to end.
void on_fault(int signal, siginfo_t* info, void*) {
  {
    const std::unique_lock lock(instances().mutex, std::try_to_lock);
    if (lock.owns_lock())
      for (PageGuardAllocator* one : instances().all) {
        const std::string text = one->explain(info->si_addr);
        if (text.empty()) continue;
        std::fputs(text.c_str(), stderr);
        break;
      }
  }
  // The instruction faults again, and the earlier handler sees it.
  ::sigaction(signal, &previous_action, nullptr);
}

void install_handler() {
  static const bool kInstalled = [] {
    struct sigaction action = {};
    action.sa_sigaction = &on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    return ::sigaction(SIGSEGV, &action, &previous_action) == 0;
  }();
  static_cast<void>(kInstalled);
}

[[noreturn]] void end_program(const GuardReport& report) {
  std::fputs(report.to_string().c_str(), stderr);
  std::abort();
}

}  // namespace

PageGuardAllocator::PageGuardAllocator(PageGuardOptions options) : options_(options) {
  if (!is_power_of_two(options.alignment) || options.alignment > os::page_size())
    raise<InvalidArgument>(
        "page guard: an alignment of {} is no power of two up to the page size ({})",
        options.alignment, os::page_size());
  install_handler();
  const std::lock_guard lock(instances().mutex);
  instances().all.push_back(this);
}

PageGuardAllocator::~PageGuardAllocator() {
  {
    const std::lock_guard lock(instances().mutex);
    std::erase(instances().all, this);
  }
  for (const auto& [base, block] : blocks_)
    os::release(reinterpret_cast<void*>(base), block.pages_bytes);
}

DataPtr PageGuardAllocator::allocate(std::size_t size_bytes) {
  constexpr Device kHost{DeviceType::kCpu, 0};
  check_size(size_bytes);
  if (size_bytes == 0) return DataPtr(kHost);
  const std::uint64_t page = os::page_size();
  const std::uint64_t room = align_up(align_up(size_bytes, options_.alignment), page);
  void* const base = os::reserve(room + page, page);
  if (base == nullptr || !os::make_accessible(base, room)) {
    if (base != nullptr) os::release(base, room + page);
    refuse_memory("page_guard", kHost, size_bytes,
                  "every block takes two mappings; the system allows vm.max_map_count of them");
  }
  auto* const begin = static_cast<unsigned char*>(base);
  unsigned char* const data = begin + room - align_up(size_bytes, options_.alignment);
  std::memset(begin, guard::kFrontZone, static_cast<std::size_t>(data - begin));
  std::memset(data + size_bytes, guard::kBackZone,
              static_cast<std::size_t>(begin + room - data) - size_bytes);
  GuardReport known = guard::block_made(data, size_bytes, options_.stack_depth);
  const auto key = reinterpret_cast<std::uintptr_t>(base);
  const std::lock_guard lock(mutex_);
  Block& block = blocks_[key] =
      Block{this, key, room + page, data, false, std::move(known), nullptr};
  return DataPtr(data, &block, &free_block, kHost);
}

void PageGuardAllocator::free_block(void* context) {
  auto& block = *static_cast<Block*>(context);
  block.owner->take_back(block);
}

void PageGuardAllocator::take_back(Block& block) {
  const std::lock_guard lock(mutex_);
  using enum GuardReport::Kind;
  if (block.freed) end_program(guard::noticed(kDoubleFree, block.known, options_.stack_depth));
  const auto room = static_cast<std::int64_t>(block.pages_bytes - os::page_size());
  const std::int64_t before =
      block.data - reinterpret_cast<const unsigned char*>(block.base);
  const auto size = static_cast<std::int64_t>(block.known.size_bytes);
  require_whole(block, kUnderflow, -before, static_cast<std::size_t>(before), guard::kFrontZone);
  require_whole(block, kOverflow, size, static_cast<std::size_t>(room - before - size),
                guard::kBackZone);
  block.freed = true;
  guard::note_freed(block.known, options_.stack_depth);
  os::unmap_file(reinterpret_cast<void*>(block.base), block.pages_bytes);  // forbidden from now on
  (oldest_ == nullptr ? oldest_ : newest_->freed_next) = &block;
  newest_ = &block;
  quarantined_bytes_ += block.pages_bytes;
  evict();
}

void PageGuardAllocator::require_whole(const Block& block, GuardReport::Kind kind,
                                       std::int64_t offset, std::size_t size,
                                       unsigned char expected) const {
  if (auto found = guard::damage(kind, block.known, offset, size, expected, options_.stack_depth))
    end_program(*found);
}

void PageGuardAllocator::evict() {
  while (quarantined_bytes_ > options_.quarantine_bytes) {
    const Block& oldest = *std::exchange(oldest_, oldest_->freed_next);
    quarantined_bytes_ -= oldest.pages_bytes;
    os::release(reinterpret_cast<void*>(oldest.base), oldest.pages_bytes);
    blocks_.erase(oldest.base);
  }
}

std::string PageGuardAllocator::explain(const void* address) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return {};
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return {};
  const Block& block = std::prev(next)->second;
  if (at >= block.base + block.pages_bytes) return {};
  GuardReport report =
      guard::noticed(block.freed ? GuardReport::Kind::kUseAfterFree : GuardReport::Kind::kOverflow,
                     block.known, options_.stack_depth);
  report.faulted = true;
  report.first_offset = static_cast<const unsigned char*>(address) - block.data;
  return report.to_string();
}

}  // namespace tenon
