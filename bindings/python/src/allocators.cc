#include "allocators.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "array.h"
#include "gil.h"
#include "memory.h"
#include "tenon/base/error.h"
#include "tenon/lab/planning/plan_file.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/file_bytes.h"

namespace tenon::python {
namespace {

Plan read_plan(const std::string& policy, const std::string& file) {
  if (file.empty()) {
    if (find_policy(policy).needs_plan)
      throw InvalidArgument("policy \"" + policy +
                            "\": give plan=FILE, as recording.plan().save(FILE) writes it");
    return Plan();
  }
  return parse_plan(FileBytes(file).view(), file);
}

// self.allocate(size): the shortest way, for the calls that cost.
nb::object allocate(PythonAllocator& owner, std::size_t size_bytes, std::uint32_t stream) {
  DeviceAllocator& allocator = owner.allocator();
  DataPtr data = allocate_for_python(size_bytes, [&] {
    return stream == 0 ? allocator.allocate(size_bytes)
                       : allocator.allocate_on(size_bytes, owner.device().stream(stream));
  });
  return nb::steal(make_array(std::move(data), size_bytes, owner.object(), owner.readable()));
}

nb::object empty(PythonAllocator& owner, const std::vector<std::int64_t>& shape, nb::handle dtype,
                 std::uint32_t stream, bool zero) {
  const ElementType& type = element_type(dtype);
  const std::size_t size_bytes = bytes_of(shape, type);
  if (zero && !owner.readable())
    throw InvalidArgument(
        "zeros: this device has no bytes to write: real_memory=True gives it some");
  const Stream on = owner.device().stream(stream);
  DataPtr data = allocate_for_python(size_bytes, [&] {
    DataPtr made = owner.allocator().allocate_on(size_bytes, on);
    if (zero && made != nullptr) std::memset(made.get(), 0, size_bytes);
    return made;
  });
  return nb::steal(
      make_array(std::move(data), size_bytes, owner.object(), owner.readable(), type, shape));
}

nb::dict stats(PythonAllocator& owner) {
  nb::dict result;
  for (const auto& [name, value] : owner.allocator().stats().named())
    result[nb::str(name.c_str())] = nb::int_(value);
  return result;
}

nb::list snapshot(PythonAllocator& owner) {
  static constexpr const char* kStates[] = {"active_allocated", "active_pending_free", "inactive"};
  nb::list segments;
  for (const SegmentInfo& segment : owner.allocator().snapshot()) {
    nb::list blocks;
    for (const BlockInfo& block : segment.blocks) {
      nb::dict one;
      one["address"] = nb::int_(block.address);
      one["size"] = nb::int_(block.size_bytes);
      one["requested_size"] = nb::int_(block.requested_bytes);
      one["state"] = kStates[static_cast<std::size_t>(block.state)];
      blocks.append(one);
    }
    nb::dict one;
    one["address"] = nb::int_(segment.address);
    one["total_size"] = nb::int_(segment.size_bytes);
    one["stream"] = nb::int_(segment.stream.id);
    one["segment_type"] = segment.small_pool ? "small" : "large";
    one["is_expandable"] = segment.expandable;
    one["blocks"] = blocks;
    segments.append(one);
  }
  return segments;
}

}  // namespace

PythonAllocator::PythonAllocator(std::shared_ptr<PythonDevice> device, const std::string& policy,
                                 const std::string& conf, std::uint64_t limit_bytes,
                                 std::uint64_t page_bytes, const std::string& plan_file)
    : core_(std::make_shared<Core>()), readable_(device->readable()) {
  core_->device = std::move(device);
  core_->plan = read_plan(policy, plan_file);
  core_->allocator = make_policy(policy, core_->device->backend(),
                                 {.conf = conf,
                                  .limit_bytes = limit_bytes,
                                  .plan = plan_file.empty() ? nullptr : &core_->plan,
                                  .page_bytes = page_bytes});
}

// Nanoseconds of processor time of an allocation and its free in C++, for bench.py.
static double pair_ns(PythonAllocator& owner, std::size_t size_bytes, int pairs) {
  DeviceAllocator& allocator = owner.allocator();
  const auto cpu_ns = [] {
    timespec now = {};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
  };
  const double start = cpu_ns();
  for (int i = 0; i < pairs; ++i) allocator.allocate(size_bytes).clear();
  return (cpu_ns() - start) / std::max(1, pairs);
}

void bind_allocators(nb::module_& module) {
  nb::class_<PythonAllocator>(module, "Allocator", nb::is_weak_referenceable())
      .def(
          "__init__",
          [](nb::pointer_and_handle<PythonAllocator> self, std::shared_ptr<PythonDevice> device,
             const std::string& policy, const std::string& conf, std::uint64_t limit_bytes,
             std::uint64_t page_bytes, const std::string& plan_file) {
            ::new (static_cast<void*>(self.p)) PythonAllocator(std::move(device), policy, conf,
                                                               limit_bytes, page_bytes, plan_file);
            self.p->set_object(self.h);
          },
          nb::arg("device"), nb::arg("policy"), nb::arg("conf"), nb::arg("limit_bytes"),
          nb::arg("page_bytes"), nb::arg("plan_file"))
      .def_prop_ro("policy", [](PythonAllocator& a) { return a.allocator().name(); })
      .def_prop_ro("device", &PythonAllocator::shared_device)
      .def("allocate", &allocate, nb::arg("nbytes"), nb::arg("stream") = 0,
           nb::sig("def allocate(self, nbytes: int, stream: int = 0) -> Array"), "A row of bytes.")
      .def("empty_of", &empty, nb::arg("shape"), nb::arg("dtype").none(), nb::arg("stream"),
           nb::arg("zero"))
      .def(
          "record_stream",
          [](PythonAllocator& a, nb::handle array, std::uint32_t stream) {
            a.allocator().record_stream(block_of(array), a.device().stream(stream));
          },
          nb::arg("array"), nb::arg("stream"),
          "The array is also used by work queued on `stream`: once freed it waits for that too.")
      .def("stats", &stats, "Figures by the names of torch.cuda.memory_stats.")
      .def("snapshot", &snapshot, "Segments and their blocks, in PyTorch's names.")
      .def(
          "empty_cache", [](PythonAllocator& a) { a.allocator().empty_cache(); },
          nb::call_guard<BrieflyWithoutGil>(),
          "Gives cached, unused memory back to the driver.")
      .def(
          "reset_peak_stats", [](PythonAllocator& a) { a.allocator().reset_peak_stats(); },
          "Peaks become the current values.")
      .def_prop_ro("reserved_bytes",
                   [](PythonAllocator& a) { return a.allocator().reserved_bytes(); })
      .def_prop_ro("largest_free_bytes",
                   [](PythonAllocator& a) { return a.allocator().largest_free_bytes(); })
      .def(
          "check_invariants", [](PythonAllocator& a) { a.allocator().check_invariants(); },
          nb::call_guard<BrieflyWithoutGil>(),
          "Raises InternalError when the allocator's state is not whole.");
  module.def("pair_ns", &pair_ns, nb::arg("allocator"), nb::arg("size_bytes"), nb::arg("pairs"));
}

}  // namespace tenon::python
