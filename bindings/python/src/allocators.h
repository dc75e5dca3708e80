// A policy over a device, as Python holds it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "gil.h"
#include "tenon/device/backend.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/heap/plan.h"
#include "tenon/memory/device_allocator.h"

namespace tenon::python {

// A device that allocators stand on. The host's is the process's one and never ends.
class PythonDevice {
 public:
  PythonDevice();                                    // the host
  explicit PythonDevice(const SimOptions& options);  // simulated

  Backend& backend() { return *backend_; }
  // Throws InvalidArgument for the host.
  SimBackend& simulation(const char* call);
  bool is_host() const { return sim_ == nullptr; }
  // Whether the host can read and write its bytes.
  bool readable() const { return backend_->limits().has_real_memory; }

  std::uint32_t create_stream();
  void destroy_stream(std::uint32_t id);
  // Throws InvalidArgument for a stream that the device does not have.
  Stream stream(std::uint32_t id) const;

 private:
  std::unique_ptr<SimBackend> sim_;
  Backend* backend_ = nullptr;
  mutable std::mutex mutex_;
  std::set<std::uint32_t> streams_ = {0};
};

// Ends after everything that Python still holds of it: arrays refer to the Python object around it,
// tensors to `core()`.
class PythonAllocator {
 public:
  // The allocator with what it stands on.
  struct Core {
    std::shared_ptr<PythonDevice> device;
    Plan plan;
    std::unique_ptr<DeviceAllocator> allocator;
  };

  PythonAllocator(std::shared_ptr<PythonDevice> device, const std::string& policy,
                  const std::string& conf, std::uint64_t limit_bytes, std::uint64_t page_bytes,
                  const std::string& plan_file);

  DeviceAllocator& allocator() { return *core_->allocator; }
  PythonDevice& device() { return *core_->device; }
  const std::shared_ptr<PythonDevice>& shared_device() const { return core_->device; }
  const std::shared_ptr<Core>& core() const { return core_; }
  bool readable() const { return readable_; }
  // The Python object that holds this one: what its arrays keep alive.
  nanobind::handle object() const { return object_; }
  void set_object(nanobind::handle object) { object_ = object; }

 private:
  nanobind::handle object_;
  const std::shared_ptr<Core> core_;
  const bool readable_;
};

// Makes an array of `size_bytes` with the memory that `allocate` gives, without the GIL where it is
// worth the two switches.
template <typename Allocate>
DataPtr allocate_for_python(std::size_t size_bytes, Allocate&& allocate) {
  constexpr std::size_t kWorthReleasing = std::size_t{1} << 20;
  if (size_bytes < kWorthReleasing) return allocate();
  const BrieflyWithoutGil release;
  return allocate();
}

}  // namespace tenon::python
