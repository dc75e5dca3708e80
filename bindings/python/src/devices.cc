#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "allocators.h"
#include "gil.h"
#include "memory.h"
#include "tenon/base/error.h"
#include "tenon/device/host/host_backend.h"

namespace tenon::python {

namespace nb = nanobind;

PythonDevice::PythonDevice() : backend_(&host_backend()) {}

PythonDevice::PythonDevice(const SimOptions& options)
    : sim_(std::make_unique<SimBackend>(options)), backend_(sim_.get()) {}

SimBackend& PythonDevice::simulation(const char* call) {
  if (sim_ == nullptr)
    throw InvalidArgument(fmt::format("{}: only a simulated device has this", call));
  return *sim_;
}

std::uint32_t PythonDevice::create_stream() {
  const Stream made = backend_->create_stream();
  const std::lock_guard lock(mutex_);
  streams_.insert(made.id);
  return made.id;
}

void PythonDevice::destroy_stream(std::uint32_t id) {
  if (id == 0) throw InvalidArgument("the default stream cannot be destroyed");
  const Stream gone = stream(id);
  backend_->destroy_stream(gone);
  const std::lock_guard lock(mutex_);
  streams_.erase(id);
}

Stream PythonDevice::stream(std::uint32_t id) const {
  if (id != 0) {
    const std::lock_guard lock(mutex_);
    if (!streams_.contains(id))
      throw InvalidArgument(fmt::format("{} has no stream {}: create_stream() makes one",
                                        to_string(backend_->device()), id));
  }
  return {backend_->device(), id};
}

void bind_devices(nb::module_& module) {
  nb::class_<PythonDevice>(
      module, "Device",
      "Memory that allocators stand on: `host_device()` or `sim_device(...)`.\n\n"
      "What a simulated one has besides (its clock, its driver's costs) raises "
      "ValueError for the host.")
      .def_prop_ro(
          "name", [](PythonDevice& d) { return to_string(d.backend().device()); },
          "Like \"cpu:0\" or \"sim:0\".")
      .def_prop_ro(
          "description", [](PythonDevice& d) { return d.backend().description(); },
          "What it is, in a line.")
      .def_prop_ro("readable", &PythonDevice::readable,
                   "Whether its bytes can be read and written here.")
      .def_prop_ro(
          "total_bytes", [](PythonDevice& d) { return d.backend().memory().total_bytes; },
          "Its memory.")
      .def_prop_ro(
          "free_bytes", [](PythonDevice& d) { return d.backend().memory().free_bytes; },
          "What is not held from it.")
      .def("create_stream", &PythonDevice::create_stream,
           "A new stream's number; 0 is the default.")
      .def("destroy_stream", &PythonDevice::destroy_stream, nb::arg("stream"), "Ends a stream.")
      .def(
          "synchronize", [](PythonDevice& d) { d.backend().synchronize(); },
          nb::call_guard<WithoutGil>(), "Waits for all work.")
      .def(
          "advance_to",
          [](PythonDevice& d, std::uint64_t time_ns) {
            d.simulation("advance_to").advance_to(time_ns);
          },
          nb::arg("time_ns"), "Moves a simulated device's clock on.")
      .def(
          "queue_work",
          [](PythonDevice& d, std::uint32_t stream) {
            d.simulation("queue_work").queue_work(d.stream(stream));
          },
          nb::arg("stream") = 0, "A simulated device: the host queues work on the stream now.")
      .def_prop_ro(
          "now_ns", [](PythonDevice& d) { return d.simulation("now_ns").now_ns(); },
          "A simulated device's clock.")
      .def_prop_ro(
          "used_bytes", [](PythonDevice& d) { return d.simulation("used_bytes").used_bytes(); },
          "Held from a simulated device.")
      .def_prop_ro(
          "peak_used_bytes",
          [](PythonDevice& d) { return d.simulation("peak_used_bytes").peak_used_bytes(); },
          "Most ever held from a simulated device.")
      .def_prop_ro(
          "driver_calls", [](PythonDevice& d) { return d.backend().ledger().memory_calls(); },
          "Driver calls that change memory, so far.")
      .def_prop_ro(
          "driver_stall_ns", [](PythonDevice& d) { return d.backend().ledger().stall_ns; },
          "Time in driver calls and in waits for the device, so far.");
  module.def("host_device", [] { return std::make_shared<PythonDevice>(); });
  module.def(
      "sim_device",
      [](std::uint64_t capacity_bytes, std::uint64_t lag_ns, bool real_memory, int index) {
        SimOptions options;
        if (capacity_bytes != 0) options.capacity_bytes = capacity_bytes;
        options.lag_ns = lag_ns;
        options.real_memory = real_memory;
        options.device_index = static_cast<std::int16_t>(index);
        return std::make_shared<PythonDevice>(options);
      },
      nb::arg("capacity_bytes"), nb::arg("lag_ns"), nb::arg("real_memory"), nb::arg("index"));
}

}  // namespace tenon::python
