// The completion of every stream, and the events that unified records before a wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "tenon/memory/front/completion.h"

namespace tenon::unified {

// One Completion for each stream that allocates or that a buffer's uses name. Where other streams
// may take over what one leaves, it records an event every kTicketsPerMark tickets besides: so they
// need not wait for all that it has to do until they ask.
//
// Thread safety: an entry is under the lock of its stream's lane, and what takes an Entry needs no
// other; everything else requires all lanes' locks.
class Completions {
 public:
  static constexpr std::uint64_t kTicketsPerMark = 64;
  static constexpr std::size_t kMostEvents = 8;

  struct alignas(64) Entry : Completion {
    Entry(Backend& backend, Stream stream) : Completion(backend, stream, kMostEvents) {}

    bool is_mark_due() const {
      return now() >= mark_due_ && now() >= recorded() + kTicketsPerMark;
    }
    // No other stream would take anything over at present.
    void put_off_mark() { mark_due_ = now() + kTicketsPerMark; }
    // Another stream might from now on.
    void expect_mark() { mark_due_ = 0; }
    // A failure may wait until a caller needs the event.
    void try_mark() noexcept {
      try_record();
      put_off_mark();
    }

   private:
    std::uint64_t mark_due_ = 0;
  };

  explicit Completions(Backend& backend) : backend_(backend) {}

  // The stream's entry, which stays where it is.
  Entry& of(std::uint32_t stream) {
    if (stream >= entries_.size() || entries_[stream] == nullptr) return add(stream);
    return *entries_[stream];
  }
  // A ticket of a stream that may be new, with an event if one is due.
  Ticket ticket(std::uint32_t stream);

  bool is_complete(Ticket ticket) const {
    return ticket.number == 0 || entries_[ticket.stream]->is_complete(ticket.number);
  }
  bool is_ordered(Ticket ticket, std::uint32_t later) const {
    return ticket.number == 0 || ticket.stream == later ||
           entries_[ticket.stream]->is_ordered(ticket.number, later);
  }
  void order_before(std::uint32_t later, Ticket ticket) {
    if (!is_ordered(ticket, later))
      of(ticket.stream).order_before({backend_.device(), later}, ticket.number);
  }
  void wait(Ticket ticket) {
    if (!is_complete(ticket)) of(ticket.stream).wait(ticket.number);
  }
  // Asks the driver about the events of every stream.
  void poll();
  // The host waits for the device.
  void wait_for_all();
  // How many streams there are.
  int count() const { return count_.load(std::memory_order_relaxed); }

 private:
  [[gnu::cold]] Entry& add(std::uint32_t stream);

  Backend& backend_;
  std::vector<std::unique_ptr<Entry>> entries_;  // by stream id
  std::atomic<int> count_{0};
};

}  // namespace tenon::unified
