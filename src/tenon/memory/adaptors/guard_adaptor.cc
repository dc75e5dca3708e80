#include "tenon/memory/adaptors/guard_adaptor.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/memory/adaptors/zones.h"

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
  std::memset(front, kFrontZone, options_.zone_bytes);
  std::memset(data + size_bytes, kBackZone, options_.zone_bytes);
  auto block = std::make_unique<Guarded>();
  block->data = data;
  block->made_by = current_tag();
  block->made_at = CallStack::capture(options_.stack_depth, 2);  // without serve
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
      found.push_back(report_on(GuardReport::Kind::kDoubleFree, guarded));
      static_cast<void>(block.release());  // the quarantine owns it
    } else {
      inspect(guarded, found);
      guarded.freed_by = current_tag();
      guarded.freed_at = CallStack::capture(options_.stack_depth, 2);
      guarded.freed = true;
      std::memset(guarded.data, kPoison, guarded.size_bytes);
      live_.erase(&guarded);
      quarantined_bytes_ += guarded.size_bytes;
      quarantine_.push_back(std::move(block));
    }
  }
  report(found);
  evict_and_free(options_.quarantine_bytes);
}

GuardReport GuardedBlocks::report_on(GuardReport::Kind kind, const Guarded& block) const {
  GuardReport report;
  report.kind = kind;
  report.data = block.data;
  report.size_bytes = block.size_bytes;
  report.made_by = block.made_by;
  report.freed_by = block.freed_by;
  report.made_at = block.made_at;
  report.freed_at = block.freed_at;
  report.noticed_at = CallStack::capture(options_.stack_depth, 1);
  return report;
}

// Adds what is wrong with the block and was not reported before.
void GuardedBlocks::inspect(Guarded& block, Reports& reports) const {
  const auto* data = static_cast<const unsigned char*>(block.data);
  const auto size = static_cast<std::int64_t>(block.size_bytes);
  const auto zone = static_cast<std::int64_t>(options_.zone_bytes);
  const auto add = [&](GuardReport::Kind kind, std::int64_t from, const Damage& damage) {
    GuardReport report = report_on(kind, block);
    report.first_offset = from + static_cast<std::int64_t>(damage.first);
    report.last_offset = from + static_cast<std::int64_t>(damage.last);
    report.found = hexadecimal(data + from, damage);
    reports.push_back(std::move(report));
  };
  if (!block.zones_reported) {
    const auto front = find_damage(data - zone, options_.zone_bytes, kFrontZone);
    const auto back = find_damage(data + size, options_.zone_bytes, kBackZone);
    if (front) add(GuardReport::Kind::kUnderflow, -zone, *front);
    if (back) add(GuardReport::Kind::kOverflow, size, *back);
    block.zones_reported = front || back;
  }
  if (block.freed && !block.poison_reported) {
    const auto damage = find_damage(data, block.size_bytes, kPoison);
    if (damage) add(GuardReport::Kind::kUseAfterFree, 0, *damage);
    block.poison_reported = damage.has_value();
  }
}

void GuardedBlocks::report(const Reports& reports) {
  if (reports.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    reports_ += reports.size();
  }
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
      const auto& freed = static_cast<const Guarded&>(**it);
      found.push_back(report_on(GuardReport::Kind::kDoubleFree, freed));
      break;
    }
  }
  report(found);
}

auto GuardedBlocks::evict(std::uint64_t keep_bytes, Reports& reports)
    -> std::vector<std::unique_ptr<AdaptorBlock>> {
  std::vector<std::unique_ptr<AdaptorBlock>> evicted;
  const std::lock_guard lock(mutex_);
  while (!quarantine_.empty() && (quarantined_bytes_ > keep_bytes || keep_bytes == 0)) {
    auto& block = static_cast<Guarded&>(*quarantine_.front());
    inspect(block, reports);
    quarantined_bytes_ -= block.size_bytes;
    evicted.push_back(std::move(quarantine_.front()));
    quarantine_.pop_front();
  }
  return evicted;
}

void GuardedBlocks::evict_and_free(std::uint64_t keep_bytes) {
  Reports found;
  std::vector<std::unique_ptr<AdaptorBlock>> evicted = evict(keep_bytes, found);
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
    for (auto& block : evicted) departed_.push_back(std::move(block));
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

std::uint64_t GuardedBlocks::reports() const {
  const std::lock_guard lock(mutex_);
  return reports_;
}

std::uint64_t GuardedBlocks::quarantined_bytes() const {
  const std::lock_guard lock(mutex_);
  return quarantined_bytes_;
}

}  // namespace tenon
