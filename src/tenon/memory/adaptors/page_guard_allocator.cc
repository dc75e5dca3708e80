#include "tenon/memory/adaptors/page_guard_allocator.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/device/os/os_memory.h"
#include "tenon/memory/adaptors/zones.h"

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
    OutOfMemoryDetails details;
    details.allocator = "page_guard";
    details.device = to_string(kHost);
    details.requested_bytes = size_bytes;
    details.advice = "every block takes two mappings; the system allows vm.max_map_count of them";
    throw OutOfMemory(std::move(details));
  }
  auto* const begin = static_cast<unsigned char*>(base);
  unsigned char* const data = begin + room - align_up(size_bytes, options_.alignment);
  std::memset(begin, kFrontZone, static_cast<std::size_t>(data - begin));
  std::memset(data + size_bytes, kBackZone,
              static_cast<std::size_t>(begin + room - data) - size_bytes);
  GuardReport story;
  story.data = data;
  story.size_bytes = size_bytes;
  story.made_by = current_tag();
  story.made_at = CallStack::capture(options_.stack_depth, 1);
  const auto key = reinterpret_cast<std::uintptr_t>(base);
  const std::lock_guard lock(mutex_);
  Block& block =
      blocks_[key] = Block{this, key, room + page, data, size_bytes, false, std::move(story)};
  return DataPtr(data, &block, &free_block, kHost);
}

void PageGuardAllocator::free_block(void* context) {
  auto& block = *static_cast<Block*>(context);
  block.owner->take_back(block);
}

void PageGuardAllocator::take_back(Block& block) {
  const std::lock_guard lock(mutex_);
  if (block.freed) {
    GuardReport report = block.story;
    report.kind = GuardReport::Kind::kDoubleFree;
    report.noticed_at = CallStack::capture(options_.stack_depth, 1);
    end_program(report);
  }
  require_whole_zones(block);
  block.freed = true;
  block.story.freed_by = current_tag();
  block.story.freed_at = CallStack::capture(options_.stack_depth, 1);
  os::unmap_file(reinterpret_cast<void*>(block.base), block.pages_bytes);  // forbidden from now on
  quarantine_.push_back(block.base);
  quarantined_bytes_ += block.pages_bytes;
  evict();
}

void PageGuardAllocator::require_whole_zones(const Block& block) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(block.base);
  const auto before = static_cast<std::size_t>(block.data - begin);
  const unsigned char* const end = block.data + block.size_bytes;
  const auto after =
      static_cast<std::size_t>(begin + block.pages_bytes - os::page_size() - end);
  const auto check = [&](const unsigned char* zone, std::size_t size, unsigned char expected,
                         GuardReport::Kind kind) {
    const auto damage = find_damage(zone, size, expected);
    if (!damage) return;
    GuardReport report = block.story;
    report.kind = kind;
    report.first_offset = zone - block.data + static_cast<std::int64_t>(damage->first);
    report.last_offset = zone - block.data + static_cast<std::int64_t>(damage->last);
    report.found = hexadecimal(zone, *damage);
    report.noticed_at = CallStack::capture(options_.stack_depth, 1);
    end_program(report);
  };
  check(begin, before, kFrontZone, GuardReport::Kind::kUnderflow);
  check(end, after, kBackZone, GuardReport::Kind::kOverflow);
}

void PageGuardAllocator::evict() {
  while (quarantined_bytes_ > options_.quarantine_bytes) {
    const auto oldest = blocks_.find(quarantine_.front());
    quarantine_.pop_front();
    quarantined_bytes_ -= oldest->second.pages_bytes;
    os::release(reinterpret_cast<void*>(oldest->first), oldest->second.pages_bytes);
    blocks_.erase(oldest);
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
  GuardReport report = block.story;
  report.faulted = true;
  report.first_offset = static_cast<const unsigned char*>(address) - block.data;
  report.kind = block.freed ? GuardReport::Kind::kUseAfterFree : GuardReport::Kind::kOverflow;
  report.noticed_at = CallStack::capture(options_.stack_depth, 1);
  return report.to_string();
}

}  // namespace tenon
