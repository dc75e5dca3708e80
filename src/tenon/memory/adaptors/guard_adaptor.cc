#include "tenon/memory/adaptors/guard_adaptor.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tenon/base/align.h"

namespace tenon {

GuardedBlocks::GuardedBlocks(GuardOptions options) : options_(std::move(options)) {
  if (options_.zone_bytes > kMaxRequestBytes / 4)
    raise<InvalidArgument>("zones of {} bytes are too large", options_.zone_bytes);
}

void GuardedBlocks::require_reachable(const Backend& backend) {
  const BackendLimits& limits = backend.limits();
  const bool reachable =
      limits.has_real_memory && (limits.unified || backend.device().type == DeviceType::kCpu);
  if (!reachable)
    raise<InvalidArgument>(
        "the guard adaptor writes to its zones, but the host cannot reach the memory of {}",
        to_string(backend.device()));
}

GuardedBlocks::~GuardedBlocks() {
  try {
    empty_quarantine();
  } catch (const DeviceError&) {
    // A destructor cannot report what the driver refuses.
  }
}

auto GuardedBlocks::enclose(void* padded, std::size_t size_bytes) -> std::unique_ptr<Guarded> {
  auto* front = static_cast<unsigned char*>(padded);
  unsigned char* data = front + options_.zone_bytes;
  std::memset(front, guard::kFrontZone, options_.zone_bytes);
  std::memset(data + size_bytes, guard::kBackZone, options_.zone_bytes);
  auto block = std::make_unique<Guarded>();
  block->data = data;
  block->size_bytes = size_bytes;
  block->known = guard::block_made(data, size_bytes, options_.stack_depth);
  return block;
}

void GuardedBlocks::watch(Guarded& block) {
  const std::lock_guard lock(mutex_);
  live_.insert(&block);
}

void GuardedBlocks::hold_back(std::unique_ptr<AdaptorBlock> block) {
  auto& guarded = static_cast<Guarded&>(*block);
  Reports found;
  {
    const std::lock_guard lock(mutex_);
    if (guarded.freed) {
      found.push_back(guard::noticed(GuardReport::Kind::kDoubleFree, guarded.known,
                                     options_.stack_depth));
      static_cast<void>(block.release());  // the quarantine owns it
    } else {
      inspect(guarded, found);
      guard::note_freed(guarded.known, options_.stack_depth);
      guarded.freed = true;
      std::memset(guarded.data, guard::kPoison, guarded.size_bytes);
      live_.erase(&guarded);
      quarantined_bytes_ += guarded.size_bytes;
      quarantine_.splice(quarantine_.end(), guarded.place);
      quarantine_.back() = std::move(block);
    }
  }
  report(found);
  evict(options_.quarantine_bytes);
}

// Adds what is wrong with the block and was not reported before.
void GuardedBlocks::inspect(Guarded& block, Reports& reports) const {
  const auto add = [&](GuardReport::Kind kind, std::int64_t offset, std::size_t size,
                       unsigned char expected) {
    auto found = guard::damage(kind, block.known, offset, size, expected, options_.stack_depth);
    if (found) reports.push_back(*std::move(found));
    return found.has_value();
  };
  using enum GuardReport::Kind;
  const auto zone = static_cast<std::int64_t>(options_.zone_bytes);
  const auto size = static_cast<std::int64_t>(block.size_bytes);
  if (!block.zones_reported) {
    block.zones_reported = add(kUnderflow, -zone, options_.zone_bytes, guard::kFrontZone);
    block.zones_reported |= add(kOverflow, size, options_.zone_bytes, guard::kBackZone);
  }
  if (block.freed && !block.poison_reported)
    block.poison_reported = add(kUseAfterFree, 0, block.size_bytes, guard::kPoison);
}

void GuardedBlocks::report(const Reports& reports) {
  if (reports.empty()) return;
  reports_ += reports.size();
  for (const GuardReport& one : reports) {
    if (options_.on_damage)
      options_.on_damage(one);
    else
      std::fprintf(stderr, "%s", one.to_string().c_str());
  }
  if (options_.abort_on_damage) std::abort();
}

void GuardedBlocks::explain_refusal(const void* data) {
  Reports found;
  {
    const std::lock_guard lock(mutex_);
    const auto is_it = [&](const auto& block) { return block->data == data; };
    for (const auto* blocks : {&quarantine_, &departed_}) {
      const auto it = std::find_if(blocks->rbegin(), blocks->rend(), is_it);
      if (it == blocks->rend()) continue;
      found.push_back(guard::noticed(GuardReport::Kind::kDoubleFree,
                                     static_cast<const Guarded&>(**it).known,
                                     options_.stack_depth));
      break;
    }
  }
  report(found);
}

void GuardedBlocks::evict(std::uint64_t keep_bytes) {
  Reports found;
  Blocks evicted;
  {
    const std::lock_guard lock(mutex_);
    while (!quarantine_.empty() && (quarantined_bytes_ > keep_bytes || keep_bytes == 0)) {
      inspect(static_cast<Guarded&>(*quarantine_.front()), found);
      quarantined_bytes_ -= quarantine_.front()->size_bytes;
      evicted.splice(evicted.end(), quarantine_, quarantine_.begin());
    }
  }
  std::exception_ptr refused;
  for (auto& block : evicted) {
    try {
      block->inner.clear();
    } catch (const DeviceError&) {
      refused = std::current_exception();
    }
  }
  {
    const std::lock_guard lock(mutex_);
    departed_.splice(departed_.end(), evicted);
    while (departed_.size() > kDeparted) departed_.pop_front();
  }
  report(found);
  if (refused) std::rethrow_exception(refused);
}

std::vector<GuardReport> GuardedBlocks::check() {
  Reports found;
  {
    const std::lock_guard lock(mutex_);
    for (Guarded* block : live_) inspect(*block, found);
    for (const auto& block : quarantine_) inspect(static_cast<Guarded&>(*block), found);
  }
  report(found);
  return found;
}

}  // namespace tenon
