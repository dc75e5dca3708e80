// The allocations of a program that computes on tensors, without the tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/interruption.h"
#include "tenon/trace/trace_builder.h"

namespace tenon::synthesis {

class Program;

// A block in a Program's trace; freed with its last reference, as a tensor's storage is.
class Storage {
 public:
  Storage(Program& program, std::uint64_t key, std::uint32_t stream)
      : program_(program), key_(key), stream_(stream) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // The stream works on it too: then its free completes when that stream is done.
  void record_use(std::uint32_t stream) { used_elsewhere_ = used_elsewhere_ || stream != stream_; }

 private:
  Program& program_;
  const std::uint64_t key_;
  const std::uint32_t stream_;
  bool used_elsewhere_ = false;
};
using StoragePtr = std::shared_ptr<Storage>;

// Frees what is held, first to last. A vector's destructor frees first to last with libstdc++ and
// last to first with libc++, and frees are events of the trace.
template <typename Held>
void free_in_order(std::vector<Held>& all) {
  for (Held& held : all) held = {};
  all.clear();
}

// Writes a trace while model code runs: allocations, frees, time and phases. A kernel takes the
// host a fixed time to launch and the device a time by its bytes and operations; the clock goes by
// whichever is longer, as in a program whose queue of launched work is full. Integers only, so that
// the trace is the same on every machine.
//
// Must outlive its storages. Not thread-safe. Storages and phases end in destructors, which cannot
// throw: where memory for that has run out, the next allocate() or finish() throws std::bad_alloc.
class Program {
 public:
  // A device that is `slowdown` times slower than the fastest.
  Program(std::string name, std::uint64_t slowdown,
          std::function<void(std::uint32_t done, std::uint32_t all)> on_step = nullptr)
      : builder_(std::move(name)), slowdown_(slowdown), on_step_(std::move(on_step)) {}

  // Null for zero bytes. What is allocated is counted for the current stream.
  StoragePtr allocate(std::uint64_t size_bytes);
  // A kernel on the current stream that moves `bytes` and computes `operations`.
  void run(std::uint64_t bytes, std::uint64_t operations = 0);
  // The host does something else.
  void pass(std::uint64_t time_ns) { now_ns_ += time_ns; }

  std::uint32_t stream() const { return stream_; }
  void set_stream(std::uint32_t stream) { stream_ = stream; }

  void begin_phase(std::string_view name) { mark(MarkKind::kPhaseBegin, name); }
  void end_phase(std::string_view name) noexcept;

  std::size_t events() const { return builder_.events(); }
  std::uint64_t live_bytes() const { return live_bytes_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }

  // A step has ended. Throws Interrupted where the program was asked to stop.
  void end_step(std::uint32_t done, std::uint32_t all) const {
    stop_if_asked();
    if (on_step_) on_step_(done, all);
  }

  // Ends the trace: what is freed afterwards stays live in it.
  Trace finish();

 private:
  friend class Storage;
  void drop(std::uint64_t key, bool used_elsewhere) noexcept;
  void require_memory() const;
  void complete(std::uint64_t key);
  void complete_due();
  void mark(MarkKind kind, std::string_view name);
  std::int64_t time_us() const { return static_cast<std::int64_t>(now_ns_ / 1000); }

  TraceBuilder builder_;
  SiteTable sites_;
  const std::uint64_t slowdown_;
  const std::function<void(std::uint32_t done, std::uint32_t all)> on_step_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t next_key_ = 0;
  std::uint32_t stream_ = 0;
  std::map<std::uint64_t, std::uint64_t> sizes_;    // of live blocks, by key
  std::multimap<std::uint64_t, std::uint64_t> due_;  // keys whose free completes, by time
  std::uint64_t live_bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;
  bool finished_ = false;
  bool out_of_memory_ = false;
};

// A scope in which a program works on another stream.
class OnStream {
 public:
  OnStream(Program& program, std::uint32_t stream) : program_(program), before_(program.stream()) {
    program.set_stream(stream);
  }
  ~OnStream() { program_.set_stream(before_); }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  Program& program_;
  const std::uint32_t before_;
};

// A phase of the program, from here to the end of the scope.
class Phase {
 public:
  Phase(Program& program, std::string name) : program_(program), name_(std::move(name)) {
    program_.begin_phase(name_);
  }
  ~Phase() { program_.end_phase(name_); }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  Program& program_;
  const std::string name_;
};

}  // namespace tenon::synthesis
