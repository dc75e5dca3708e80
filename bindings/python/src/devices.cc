#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <fmt/format.h>

#include "allocators.h"
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
  nb::class_<PythonDevice>(module, "Device")
      .def_prop_ro("name",
                   [](PythonDevice& d) { return to_string(d.backend().device()); })
      .def_prop_ro("description", [](PythonDevice& d) { return d.backend().description(); })
      .def_prop_ro("readable", &PythonDevice::readable)
      .def_prop_ro("total_bytes", [](PythonDevice& d) { return d.backend().memory().total_bytes; })
      .def_prop_ro("free_bytes", [](PythonDevice& d) { return d.backend().memory().free_bytes; })
      .def("create_stream", &PythonDevice::create_stream)
      .def("destroy_stream", &PythonDevice::destroy_stream, nb::arg("stream"))
      .def("synchronize",
           [](PythonDevice& d) { d.backend().synchronize(); },
           nb::call_guard<nb::gil_scoped_release>())
      .def("advance_to",
           [](PythonDevice& d, std::uint64_t time_ns) {
             d.simulation("advance_to").advance_to(time_ns);
           },
           nb::arg("time_ns"))
      .def("queue_work",
           [](PythonDevice& d, std::uint32_t stream) {
             d.simulation("queue_work").queue_work(d.stream(stream));
           },
           nb::arg("stream") = 0)
      .def_prop_ro("now_ns", [](PythonDevice& d) { return d.simulation("now_ns").now_ns(); })
      .def_prop_ro("used_bytes",
                   [](PythonDevice& d) { return d.simulation("used_bytes").used_bytes(); })
      .def_prop_ro("peak_used_bytes",
                   [](PythonDevice& d) { return d.simulation("peak_used_bytes").peak_used_bytes(); })
      .def_prop_ro("driver_calls",
                   [](PythonDevice& d) { return d.backend().ledger().memory_calls(); })
      .def_prop_ro("driver_stall_ns",
                   [](PythonDevice& d) { return d.backend().ledger().stall_ns; });
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
