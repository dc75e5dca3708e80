#include "tenon/memory/front/completion.h"

#include <algorithm>

#include "tenon/base/error.h"
#include "tenon/base/reserve.h"

namespace tenon {

Completion::Completion(Backend& backend, Stream stream, std::size_t most_events)
    : backend_(backend),
      stream_(stream),
      most_events_(most_events),
      complete_(backend.limits().has_streams ? 0 : UINT64_MAX) {}

Completion::~Completion() {
  for (const Recorded& recorded : events_)
    ignore_refusal([&] { backend_.destroy_event(recorded.event); });
}

void Completion::record() {
  const std::uint64_t number = now();
  if (number <= complete_ || number <= recorded_) return;
  reserve_more(events_, 1 + reserved_);
  events_.push_back({number, backend_.record(stream_)});
  recorded_ = number;
  if (events_.size() > most_events_) forget(1);
}

bool Completion::try_record() noexcept {
  if (reserved_ > 0) --reserved_;
  try {
    record();
    return true;
  } catch (...) {
    return false;
  }
}

void Completion::reserve_event() {
  reserve_more(events_, 1 + reserved_);
  ++reserved_;
}

// Destroys the first events, which are not queried any more. An event that the driver refuses to
// destroy stays.
void Completion::forget(std::size_t count) {
  std::size_t gone = 0;
  ignore_refusal([&] {
    for (; gone < count; ++gone) backend_.destroy_event(events_[gone].event);
  });
  events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(gone));
}

void Completion::set_complete(std::uint64_t number) {
  complete_ = std::max(complete_, number);
  const auto end = std::find_if(events_.begin(), events_.end(), [&](const Recorded& recorded) {
    return recorded.number > complete_;
  });
  if (end != events_.begin()) forget(static_cast<std::size_t>(end - events_.begin()));
}

void Completion::poll() {
  std::size_t done = 0;
  while (done < events_.size() && backend_.query(events_[done].event)) ++done;
  if (done > 0) set_complete(events_[done - 1].number);
}

std::uint64_t Completion::settled() {
  poll();
  if (now() > std::max(complete_, recorded_)) {
    record_or_wait();
    poll();
  }
  return complete_;
}

void Completion::record_or_wait() {
  try {
    record();
  } catch (const DeviceError&) {
    const std::uint64_t all = now();
    backend_.synchronize();
    set_complete(all);
  }
}

void Completion::synchronize() {
  try {
    backend_.synchronize(stream_);
  } catch (const DeviceError&) {
    backend_.synchronize();
  }
}

const Completion::Recorded* Completion::event_for(std::uint64_t number) {
  if (recorded_ < number) record_or_wait();
  if (is_complete(number)) return nullptr;
  const auto found = std::find_if(events_.begin(), events_.end(), [&](const Recorded& recorded) {
    return recorded.number >= number;
  });
  return found == events_.end() ? nullptr : &*found;
}

void Completion::wait(std::uint64_t number) {
  if (is_complete(number)) return;
  const Recorded* recorded = event_for(number);
  if (recorded == nullptr) return;
  const std::uint64_t reached = recorded->number;
  backend_.wait(recorded->event);
  set_complete(reached);
}

void Completion::order_before(Stream later, std::uint64_t number) {
  if (is_ordered(number, later.id)) return;
  if (ordered_.size() <= later.id) ordered_.resize(later.id + 1);
  const Recorded* recorded = event_for(number);
  if (recorded == nullptr) return;
  backend_.stream_wait(later, recorded->event);
  ordered_[later.id] = recorded->number;
}

void Completion::order_now(Backend& backend, Stream earlier, Stream later) {
  const Event event = backend.record(earlier);
  try {
    backend.stream_wait(later, event);
  } catch (...) {
    ignore_refusal([&] { backend.destroy_event(event); });
    throw;
  }
  backend.destroy_event(event);
}

}  // namespace tenon
