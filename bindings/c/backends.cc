// Backends and their streams.
#include <fmt/format.h>

#include <map>

#include "callback_backend.h"
#include "objects.h"
#include "status.h"
#include "structures.h"
#include "tenon/device/cuda/cuda_backend.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/device/sim/sim_backend.h"

namespace tenon::c {

void BackendObject::require_unused() const {
  const std::lock_guard lock(mutex_);
  if (owned_ == nullptr)
    throw std::invalid_argument("this backend is the process's own and stays");
  if (!allocators_.empty())
    throw InUse(fmt::format("{} allocators stand on it: destroy them first", allocators_.size()));
}

void BackendObject::create_stream(std::uint32_t& out) {
  const std::lock_guard lock(mutex_);
  const Stream stream = backend_.create_stream();
  streams_.insert(stream.id);
  out = stream.id;
}

void BackendObject::destroy_stream(std::uint32_t id) {
  const std::lock_guard lock(mutex_);
  if (!streams_.contains(id))
    throw std::invalid_argument(
        fmt::format("stream {} does not exist, or was not made by tenon_stream_create", id));
  for (const AllocatorObject* allocator : allocators_)
    if (allocator->has_used(id))
      throw InUse(fmt::format("an allocator was asked for memory on stream {}, or told of it by "
                              "tenon_record_stream: destroy that allocator first",
                              id));
  backend_.destroy_stream({backend_.device(), id});
  streams_.erase(id);
}

Stream BackendObject::stream(std::uint32_t id) const {
  if (id != 0) {
    const std::lock_guard lock(mutex_);
    if (!streams_.contains(id))
      throw std::invalid_argument(
          fmt::format("stream {} does not exist, or was not made by tenon_stream_create", id));
  }
  return {backend_.device(), id};
}

void BackendObject::add(AllocatorObject& allocator) {
  const std::lock_guard lock(mutex_);
  allocators_.insert(&allocator);
}

void BackendObject::remove(AllocatorObject& allocator) {
  const std::lock_guard lock(mutex_);
  allocators_.erase(&allocator);
}

namespace {

// The process's own backends have one handle each.
std::uint64_t shared_handle(Backend& backend) {
  static std::mutex mutex;
  static auto& handles = *new std::map<Backend*, std::uint64_t>;
  const std::lock_guard lock(mutex);
  const auto known = handles.find(&backend);
  if (known != handles.end()) return known->second;
  return handles[&backend] = Handles::add(std::make_unique<BackendObject>(backend));
}

BackendObject& find_backend(tenon_backend backend) { return Handles::find<BackendObject>(backend); }

}  // namespace
}  // namespace tenon::c

using namespace tenon;
using namespace tenon::c;

tenon_status tenon_backend_host(tenon_backend* out) {
  return guarded("tenon_backend_host",
                 [&] { require(out, "out") = shared_handle(host_backend()); });
}

tenon_status tenon_backend_cuda(int index, tenon_backend* out) {
  return guarded("tenon_backend_cuda",
                 [&] { require(out, "out") = shared_handle(cuda_backend(index)); });
}

tenon_status tenon_backend_simulated(const tenon_simulated_device* device, tenon_backend* out) {
  return guarded("tenon_backend_simulated", [&] {
    require(out, "out");
    const auto given = complete(require(device, "device"), "device");
    if (given.capacity_bytes == 0)
      throw std::invalid_argument("device.capacity_bytes is 0: set it to the device's memory");
    SimOptions options;
    options.capacity_bytes = given.capacity_bytes;
    options.lag_ns = given.lag_ns;
    options.real_memory = given.real_memory != 0;
    *out = Handles::add(std::make_unique<BackendObject>(std::make_unique<SimBackend>(options)));
  });
}

tenon_status tenon_backend_custom(const tenon_device_functions* functions, tenon_backend* out) {
  return guarded("tenon_backend_custom", [&] {
    require(out, "out");
    const auto device = complete(require(functions, "functions"), "functions");
    *out = Handles::add(std::make_unique<BackendObject>(std::make_unique<CallbackBackend>(device)));
  });
}

tenon_status tenon_backend_custom_with_streams(const tenon_device_functions* functions,
                                               const tenon_stream_functions* streams,
                                               tenon_backend* out) {
  return guarded("tenon_backend_custom_with_streams", [&] {
    require(out, "out");
    const auto device = complete(require(functions, "functions"), "functions");
    const auto events = complete(require(streams, "streams"), "streams");
    *out = Handles::add(
        std::make_unique<BackendObject>(std::make_unique<CallbackBackend>(device, &events)));
  });
}

tenon_status tenon_backend_destroy(tenon_backend backend) {
  return guarded("tenon_backend_destroy", [&] {
    find_backend(backend).require_unused();
    Handles::take<BackendObject>(backend);
  });
}

tenon_status tenon_backend_memory(tenon_backend backend, uint64_t* total_bytes,
                                  uint64_t* free_bytes) {
  return guarded("tenon_backend_memory", [&] {
    require(total_bytes, "total_bytes");
    require(free_bytes, "free_bytes");
    const BackendMemory memory = find_backend(backend).backend().memory();
    *total_bytes = memory.total_bytes;
    *free_bytes = memory.free_bytes;
  });
}

tenon_status tenon_stream_create(tenon_backend backend, uint32_t* out) {
  return guarded("tenon_stream_create",
                 [&] { find_backend(backend).create_stream(require(out, "out")); });
}

tenon_status tenon_stream_destroy(tenon_backend backend, uint32_t stream) {
  return guarded("tenon_stream_destroy", [&] { find_backend(backend).destroy_stream(stream); });
}

tenon_status tenon_stream_synchronize(tenon_backend backend, uint32_t stream) {
  return guarded("tenon_stream_synchronize", [&] {
    BackendObject& object = find_backend(backend);
    object.backend().synchronize(object.stream(stream));
  });
}

tenon_status tenon_copy(tenon_backend backend, void* dest, const void* src, uint64_t size_bytes,
                        uint32_t stream) {
  return guarded("tenon_copy", [&] {
    BackendObject& object = find_backend(backend);
    const Stream on = object.stream(stream);
    if (size_bytes == 0) return;
    object.backend().copy(&require(static_cast<char*>(dest), "dest"),
                          &require(static_cast<const char*>(src), "src"), size_bytes, on);
  });
}

tenon_status tenon_fill(tenon_backend backend, void* dest, uint8_t value, uint64_t size_bytes,
                        uint32_t stream) {
  return guarded("tenon_fill", [&] {
    BackendObject& object = find_backend(backend);
    const Stream on = object.stream(stream);
    if (size_bytes == 0) return;
    object.backend().fill(&require(static_cast<char*>(dest), "dest"), value, size_bytes, on);
  });
}
