// Tenon's numbers for the driver's streams and events.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tenon/device/backend.h"
#include "tenon/device/cuda/cuda_driver.h"

namespace tenon {

// Stream 0 is the legacy default stream (the driver's null). Others are created here, or adopted: a
// stream that another library made, such as PyTorch's, under the number that it got first.
//
// The driver's events are kept for reuse; a Tenon event's generation tells its uses apart.
//
// Note [Events of a capturing stream]. Work queued on a stream that captures a graph does not run,
// and an event recorded there becomes part of the graph and can be neither queried nor awaited. So
// record() only notes the wish; the event is truly recorded once the capture is over (at the next
// look), and until then counts as not completed: late is safe.
//
// Note [Borrowed streams]. A stream of others may be destroyed by its owner at any time, and what a
// driver does with a destroyed stream's handle is undefined. So a borrowed stream is handed to the
// driver only while a caller names it (StreamInHand): then it lives. An event that is wanted at
// another time is recorded when the stream is next named, which is late, and so safe; a wait
// before that waits for the whole device, which includes the work of destroyed streams. A new
// stream may get a destroyed one's handle; the driver's number for it (cuStreamGetId) tells them
// apart, and the new one takes over the old one's number after a wait for the device, or gets a
// number of its own while something captures. Drivers before CUDA 12 have no cuStreamGetId: there
// the new stream is taken for the old one.
//
// Not thread-safe; the backend's lock. Requires: a CudaScope. Unknown streams and events are
// refused with DeviceError.
class CudaStreams {
 public:
  CudaStreams(const CudaDriver& driver, Device device) : driver_(driver), device_(device) {}

  cu::Stream handle(const char* call, Stream stream) const;
  Stream create();
  // Its queued work still runs to its end. An adopted one stays with its owner.
  void destroy(Stream stream);
  // The number of a stream made elsewhere; the same for the same stream. Throws InvalidArgument for
  // CU_STREAM_PER_THREAD, which is another stream in every thread. Its owner keeps it until
  // destroy().
  Stream adopt(cu::Stream handle);
  // The same for a stream that its owner may destroy: Note [Borrowed streams]. Requires: it is in
  // hand.
  Stream borrow(cu::Stream handle);
  // The stream that the calling thread's caller names; null: none.
  static cu::Stream& in_hand() {
    thread_local cu::Stream handle = nullptr;
    return handle;
  }
  // Whether the driver may be asked about the stream now.
  bool is_reachable(Stream stream) const { return is_reachable(streams_[stream.id]); }
  bool is_capturing(cu::Stream handle) const;
  // Whether any stream that is known here captures, or one that is not known may: then nothing may
  // wait for the whole device.
  bool any_capturing() const;
  // Captures may be under way from now on (+1), or one of them is over (-1).
  void expect_captures(int change) { captures_expected_ += change; }

  Event record(Stream stream);
  bool query(Event event);
  // For a wait without the lock. Null: there is nothing to wait for. Throws DeviceError while its
  // stream captures. Requires: not only_device_tells.
  cu::Event recorded(const char* call, Event event);
  void destroy(Event event);
  // Whether nothing but a wait for the device can tell that the event is over.
  bool only_device_tells(Event event);
  // The events of which that is true. After a wait for the device that began later than this call,
  // set_complete() gets them.
  std::vector<Event> complete_on_device() const;
  void set_complete(const std::vector<Event>& events);

  // Everything goes back to the driver, as far as it takes it: for a destructor.
  void release_all();

 private:
  struct StreamState {
    cu::Stream handle = nullptr;
    bool exists = true;
    bool adopted = false;
    bool borrowed = false;           // Note [Borrowed streams]
    bool replaced = false;           // another stream has its handle
    unsigned long long driver_id = 0;
  };
  // What an event is still to be recorded for.
  enum class Awaits : std::uint8_t {
    kNothing,      // it is recorded
    kStream,       // its stream is busy with a capture, or not in hand: see the Notes
    kNothingMore,  // what it stands for is over
  };
  struct EventState {
    cu::Event handle = nullptr;
    Stream stream;
    std::uint32_t generation = 0;
    bool exists = false;
    Awaits awaits = Awaits::kNothing;
  };

  std::size_t require(const char* call, Stream stream) const;
  EventState& require(const char* call, Event event);
  Event named(std::uint32_t slot) const {
    return Event{(std::uint64_t{events_[slot].generation} << 32) | slot};
  }
  Stream add(cu::Stream handle, bool borrowed);
  static bool is_reachable(const StreamState& stream) {
    return stream.exists && !stream.replaced && (!stream.borrowed || stream.handle == in_hand());
  }
  bool settle(EventState& event);

  const CudaDriver& driver_;
  const Device device_;
  std::vector<StreamState> streams_ = std::vector<StreamState>(1);  // the default stream
  std::unordered_map<cu::Stream, std::uint32_t> numbers_;           // of others' streams
  int captures_expected_ = 0;
  std::vector<EventState> events_;
  std::vector<std::uint32_t> free_events_;
};

}  // namespace tenon
