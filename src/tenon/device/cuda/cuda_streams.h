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
// Not thread-safe; the backend's lock. Requires: a CudaScope. Unknown streams and events are
// refused with DeviceError.
class CudaStreams {
 public:
  CudaStreams(const CudaDriver& driver, Device device) : driver_(driver), device_(device) {}

  cu::Stream handle(const char* call, Stream stream) const;
  Stream create();
  // Its queued work still runs to its end. An adopted one stays with its owner.
  void destroy(Stream stream);
  // The number of a stream made elsewhere; the same for the same handle. Throws InvalidArgument for
  // CU_STREAM_PER_THREAD, which is another stream in every thread.
  Stream adopt(cu::Stream handle);
  bool is_capturing(cu::Stream handle) const;
  // Whether any stream that is known here captures: then nothing may wait for the whole device.
  bool any_capturing() const;

  Event record(Stream stream);
  bool query(Event event);
  // For a wait without the lock. Throws DeviceError while its stream captures.
  cu::Event recorded(const char* call, Event event);
  void destroy(Event event);

  // Everything goes back to the driver, as far as it takes it: for a destructor.
  void release_all();

 private:
  struct StreamState {
    cu::Stream handle = nullptr;
    bool exists = true;
    bool adopted = false;
  };
  struct EventState {
    cu::Event handle = nullptr;
    Stream stream;
    std::uint32_t generation = 0;
    bool exists = false;
    bool awaits_capture_end = false;  // Note [Events of a capturing stream]
  };

  std::size_t require(const char* call, Stream stream) const;
  EventState& require(const char* call, Event event);
  bool settle_capture(EventState& event);

  const CudaDriver& driver_;
  const Device device_;
  std::vector<StreamState> streams_ = std::vector<StreamState>(1);  // the default stream
  std::unordered_map<cu::Stream, std::uint32_t> numbers_;           // of adopted streams
  std::vector<EventState> events_;
  std::vector<std::uint32_t> free_events_;
};

}  // namespace tenon
