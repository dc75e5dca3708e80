// Recordings as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rows.h"
#include "tenon/lab/workload.h"
#include "tenon/trace/snapshot.h"

namespace tenon::python {

// A file that was read, or what a recorder recorded. Immutable; whatever shows part of it keeps it.
struct Recording {
  std::string path;  // what answers call it
  Snapshot snapshot;
};
using SharedRecording = std::shared_ptr<const Recording>;

// One device's part.
struct DeviceRecording {
  SharedRecording recording;
  std::size_t index = 0;

  const Trace& trace() const { return recording->snapshot.traces[index]; }
};

// A block's life: what events say of it, put together. "Never" and "not known" are -1.
struct BlockRow {
  std::uint64_t size_bytes = 0;
  std::uint64_t address = 0;
  std::int64_t allocated_us = 0;
  std::int64_t freed_us = -1;
  std::int64_t allocated_event = -1;
  std::int64_t free_requested_event = -1;
  std::int64_t freed_event = -1;
  std::uint32_t stream = 0;
  std::uint32_t site = 0;
};
static_assert(sizeof(BlockRow) == 64);

// A segment and a block of it as they stood when the snapshot was taken.
struct SegmentRow {
  std::uint64_t address = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t stream = 0;
  std::uint32_t device = 0;
  std::uint32_t site = 0;
  std::uint32_t first_block = 0;
  std::uint32_t blocks = 0;
  std::uint8_t small_pool = 0;
  std::uint8_t expandable = 0;
  std::uint8_t unused[6] = {};
};
static_assert(sizeof(SegmentRow) == 48);

struct SegmentBlockRow {
  std::uint64_t address = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t requested_bytes = 0;
  std::uint32_t site = 0;
  std::uint8_t state = 0;  // BlockState
  std::uint8_t unused[3] = {};
};
static_assert(sizeof(SegmentBlockRow) == 32);

// What the lab says: the very JSON and text that the command prints.
struct Answer {
  std::string json;
  std::function<std::string(std::size_t rows)> text;
  std::function<void(const std::string& path)> save;  // of a plan; else empty
};

// Reads a file of any format.
// `name`: what answers call it; empty: as its path.
SharedRecording load_recording(const std::string& path, nanobind::handle progress,
                               const std::string& name = {});

void bind_recording(nanobind::module_& module);
void bind_answers(nanobind::module_& module);

}  // namespace tenon::python
