#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "allocators.h"
#include "array.h"
#include "gil.h"
#include "lasting_allocator.h"
#include "memory.h"
#include "nested.h"
#include "recording.h"
#include "tenon/base/error.h"
#include "tenon/memory/scopes/with_scope.h"
#include "tenon/memory/tag.h"
#include "tenon/trace/recorder.h"
#include "tenon/trace/recording_scope.h"

namespace tenon::python {
namespace {

// An open scope. Its arena is the thread's current allocator, for tensors.
class OpenScope {
 public:
  explicit OpenScope(PythonAllocator& allocator)
      : core_(allocator.core()),
        scope_(parked(allocator)),
        lasting_(scope_.arena(), core_),
        guard_(allocator.allocator().device(), lasting_) {
    open_scopes.push_back(this);
  }
  ~OpenScope() { open_scopes.pop_back(); }
  OpenScope(const OpenScope&) = delete;
  OpenScope& operator=(const OpenScope&) = delete;

  ScopeArena& arena() { return scope_.arena(); }

 private:
  // Of this thread, the last begun last. What is left of a scope's room serves those inside.
  static inline thread_local std::vector<OpenScope*> open_scopes;
  static std::shared_ptr<ScopePool> parked(PythonAllocator& allocator) {
    for (OpenScope* around : open_scopes)
      if (around->core_ == allocator.core()) around->arena().park();
    return scope_pool_of(allocator.allocator());
  }

  const std::shared_ptr<PythonAllocator::Core> core_;  // goes last
  Scope scope_;
  LastingAllocator lasting_;
  AllocatorGuard guard_;
};

class PythonScope {
 public:
  explicit PythonScope(PythonAllocator& allocator)
      : allocator_(allocator), owner_(nb::borrow(allocator.object())) {}

  void enter() { open_.begin(allocator_); }
  void exit() {
    open_.end();
    report_ = scope_pool_of(allocator_.allocator())->last_report();
  }
  nb::object allocate(std::size_t size_bytes) {
    DataPtr data = place(size_bytes);
    return nb::steal(make_array(std::move(data), size_bytes, owner_, allocator_.readable()));
  }
  nb::object empty(const std::vector<std::int64_t>& shape, nb::handle dtype) {
    const ElementType& type = element_type(dtype);
    const std::size_t size_bytes = bytes_of(shape, type);
    DataPtr data = place(size_bytes);
    return nb::steal(
        make_array(std::move(data), size_bytes, owner_, allocator_.readable(), type, shape));
  }
  ScopeReport report() const { return open_ ? open_->arena().report() : report_; }
  nb::object owner() const { return owner_; }

 private:
  DataPtr place(std::size_t size_bytes) {
    if (!open_) throw InvalidArgument("the scope is not open: use it in a with statement");
    return open_->arena().allocate(size_bytes);
  }

  PythonAllocator& allocator_;
  const nb::object owner_;  // keeps it
  Nested<OpenScope> open_{"scope"};
  ScopeReport report_;
};

// with tenon.use(allocator): tensors come from it.
class PythonUse {
 public:
  explicit PythonUse(PythonAllocator& allocator)
      : allocator_(allocator), owner_(nb::borrow(allocator.object())) {}
  void enter() { open_.begin(allocator_); }
  void exit() { open_.end(); }

 private:
  struct Open {
    explicit Open(PythonAllocator& allocator)
        : lasting(allocator.allocator(), allocator.core()),
          guard(allocator.allocator().device(), lasting) {}
    LastingAllocator lasting;
    AllocatorGuard guard;
  };

  PythonAllocator& allocator_;
  const nb::object owner_;  // keeps it
  Nested<Open> open_{"use"};
};

// Strings of tags live for ever: recordings refer to them.
const char* interned(const std::string& text) {
  static std::mutex mutex;
  static std::deque<std::string>& kept = *new std::deque<std::string>;
  const std::lock_guard lock(mutex);
  for (const std::string& known : kept)
    if (known == text) return known.c_str();
  return kept.emplace_back(text).c_str();
}

class PythonTag {
 public:
  PythonTag(const std::string& phase, const std::string& call_site)
      : tag_{phase.empty() ? nullptr : interned(phase),
             call_site.empty() ? nullptr : interned(call_site)} {}
  void enter() { open_.begin(tag_); }
  void exit() { open_.end(); }

 private:
  const Tag tag_;
  Nested<TagGuard> open_{"tag"};
};

RecorderOptions recorder_options(std::size_t events, int stack_depth,
                                 std::uint64_t stack_min_bytes) {
  RecorderOptions options;
  options.capacity_events = events;
  options.stack_depth = stack_depth;
  options.stack_min_bytes = stack_min_bytes;
  return options;
}

// Watches all allocators of this module from start() to stop().
class PythonRecorder {
 public:
  PythonRecorder(const std::string& name, std::size_t events, int stack_depth,
                 std::uint64_t stack_min_bytes)
      : name_(name), recorder_(name, recorder_options(events, stack_depth, stack_min_bytes)) {}
  ~PythonRecorder() {
    if (watching_) ObserverList::remove_from_all(&recorder_);
  }
  void start() {
    if (watching_) throw std::runtime_error("the recorder is recording already");
    ObserverList::add_to_all(&recorder_);
    watching_ = true;
  }
  void stop() {
    if (!watching_) throw std::runtime_error("the recorder is not recording");
    watching_ = false;
    const BrieflyWithoutGil release;  // waits for calls in progress on other threads
    ObserverList::remove_from_all(&recorder_);
  }
  // What was recorded so far.
  std::shared_ptr<const Recording> recording() {
    const BrieflyWithoutGil release;
    auto made = std::make_shared<Recording>();
    made->path = name_;
    made->snapshot.traces = recorder_.peek();
    if (!made->snapshot.traces.empty()) made->snapshot.sites = made->snapshot.traces[0].sites;
    for (const Trace& trace : made->snapshot.traces)
      made->snapshot.figures.trace_entries.push_back(trace.events.size() + trace.marks.size());
    return made;
  }

 private:
  const std::string name_;
  Recorder recorder_;
  bool watching_ = false;
};

template <typename T>
void bind_with(nb::class_<T>& bound) {
  bound
      .def("__enter__",
           [](T& self) {
             self.enter();
             return nb::find(self);
           })
      .def(
          "__exit__", [](T& self, nb::handle, nb::handle, nb::handle) { self.exit(); },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none());
}

}  // namespace

void bind_scopes(nb::module_& module) {
  nb::class_<PythonScope> scope(module, "Scope");
  scope.def(nb::init<PythonAllocator&>(), nb::arg("allocator"))
      .def("allocate", &PythonScope::allocate, nb::arg("nbytes"))
      .def("empty_of", &PythonScope::empty, nb::arg("shape"), nb::arg("dtype").none())
      .def_prop_ro("allocator", &PythonScope::owner)
      .def("report", [](const PythonScope& self) {
        const ScopeReport report = self.report();
        nb::dict result;
        result["allocations"] = report.allocations;
        result["bytes"] = report.bytes;
        result["high_water_bytes"] = report.high_water_bytes;
        result["escapes"] = report.escapes;
        result["escaped_bytes"] = report.escaped_bytes;
        return result;
      });
  bind_with(scope);

  nb::class_<PythonUse> use(module, "Use");
  use.def(nb::init<PythonAllocator&>(), nb::arg("allocator"));
  bind_with(use);

  nb::class_<PythonTag> tag(module, "Tag");
  tag.def(nb::init<const std::string&, const std::string&>(), nb::arg("phase"),
          nb::arg("call_site"));
  bind_with(tag);

  nb::class_<PythonRecorder>(module, "Recorder")
      .def(nb::init<const std::string&, std::size_t, int, std::uint64_t>(), nb::arg("name"),
           nb::arg("events"), nb::arg("stack_depth"), nb::arg("stack_min_bytes"))
      .def("start", &PythonRecorder::start)
      .def("stop", &PythonRecorder::stop)
      .def("recording", &PythonRecorder::recording);
}

}  // namespace tenon::python
