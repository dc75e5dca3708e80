#include "tenon/memory/unified/completions.h"

namespace tenon::unified {

Completions::Entry& Completions::add(std::uint32_t stream) {
  if (stream >= entries_.size()) entries_.resize(stream + 1);
  entries_[stream] = std::make_unique<Entry>(backend_, Stream{backend_.device(), stream});
  count_.fetch_add(1, std::memory_order_relaxed);
  return *entries_[stream];
}

Ticket Completions::ticket(std::uint32_t stream) {
  if (stream >= entries_.size() || entries_[stream] == nullptr) {
    add(stream);
    for (const auto& other : entries_)
      if (other != nullptr) other->expect_mark();
  }
  Entry& entry = *entries_[stream];
  const Ticket ticket = entry.ticket();
  if (entry.is_mark_due() && count() > 1) entry.try_mark();
  return ticket;
}

void Completions::poll() {
  for (const auto& entry : entries_)
    if (entry != nullptr) entry->poll();
}

void Completions::wait_for_all() {
  if (!backend_.limits().has_streams) return;
  backend_.synchronize();
  for (const auto& entry : entries_)
    if (entry != nullptr) entry->set_complete(entry->now());
}

}  // namespace tenon::unified
