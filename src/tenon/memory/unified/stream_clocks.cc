#include "tenon/memory/unified/stream_clocks.h"

#include <algorithm>

#include "tenon/base/error.h"

namespace tenon::unified {

StreamClocks::~StreamClocks() {
  for_each([&](Clock& clock) {
    for (const Mark& mark : clock.marks)
      ignore_refusal([&] { backend_.destroy_event(mark.event); });
  });
}

StreamClocks::Clock& StreamClocks::add_clock(std::uint32_t stream) {
  if (stream >= clocks_.size()) clocks_.resize(stream + 1);
  clocks_[stream] = std::make_unique<Clock>();
  clocks_[stream]->stream = stream;
  count_.fetch_add(1, std::memory_order_relaxed);
  return *clocks_[stream];
}

StreamPoint StreamClocks::tick(std::uint32_t stream) {
  if (find(stream) == nullptr) for_each([](Clock& other) { expect_mark(other); });
  Clock& clock = clock_of(stream);
  const StreamPoint point = tick(clock);
  if (is_mark_due(clock) && count() > 1) try_mark(clock);
  return point;
}

void StreamClocks::mark(Clock& clock) {
  if (!has_streams_ || clock.marked == clock.now) return;
  clock.marks.push_back({backend_.record(stream_of(clock.stream)), clock.now});
  clock.marked = clock.now;
  expect_mark(clock);
  if (clock.marks.size() > kMaxMarks) {
    const Event oldest = clock.marks.front().event;
    clock.marks.pop_front();
    backend_.destroy_event(oldest);
  }
}

void StreamClocks::try_mark(Clock& clock) noexcept {
  try {
    mark(clock);
  } catch (...) {
    // Whoever needs the point will ask for an event again, and hears of the failure.
  }
}

// The points up to `tick` have finished, and so have the events that cover no others.
void StreamClocks::finish(Clock& clock, std::uint64_t tick) {
  clock.done = std::max(clock.done, tick);
  while (!clock.marks.empty() && clock.marks.front().tick <= clock.done) {
    const Event event = clock.marks.front().event;
    clock.marks.pop_front();
    backend_.destroy_event(event);
  }
}

void StreamClocks::poll() {
  for_each([&](Clock& clock) {
    while (!clock.marks.empty() && backend_.query(clock.marks.front().event))
      finish(clock, clock.marks.front().tick);
  });
}

// The earliest event after the point, recorded now if there is none. Null when the stream cannot
// record any more (it was destroyed): then the host has waited for the device and all is done.
const StreamClocks::Mark* StreamClocks::mark_covering(StreamPoint point) {
  Clock& clock = clock_of(point.stream);
  if (clock.marked < point.tick) {
    try {
      mark(clock);
    } catch (const DeviceError&) {
      wait_for_all();
      return nullptr;
    }
  }
  const auto found =
      std::find_if(clock.marks.begin(), clock.marks.end(),
                   [&](const Mark& mark) { return mark.tick >= point.tick; });
  return found == clock.marks.end() ? nullptr : &*found;
}

void StreamClocks::order_after(std::uint32_t stream, StreamPoint point) {
  Clock& clock = clock_of(stream);
  if (is_ordered(point, stream)) return;
  const Mark* mark = mark_covering(point);
  if (mark == nullptr) return;
  backend_.stream_wait(stream_of(stream), mark->event);
  std::vector<std::uint64_t>& waited = clock.waited;
  if (waited.size() <= point.stream) waited.resize(point.stream + 1);
  waited[point.stream] = std::max(waited[point.stream], mark->tick);
}

void StreamClocks::wait(StreamPoint point) {
  if (is_done(point)) return;
  const Mark* mark = mark_covering(point);
  if (mark == nullptr) return;
  backend_.wait(mark->event);
  finish(*clocks_[point.stream], mark->tick);
}

void StreamClocks::wait_for_all() {
  if (!has_streams_) return;
  backend_.synchronize();
  for_each([&](Clock& clock) { finish(clock, clock.now); });
}

}  // namespace tenon::unified
