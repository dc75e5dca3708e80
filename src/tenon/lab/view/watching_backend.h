// A backend that notes which memory its allocator holds, and where.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "tenon/device/forwarding_backend.h"
#include "tenon/device/sim/sim_backend.h"

namespace tenon {

// Memory that came to stand behind a range of addresses, or left it.
struct BackingChange {
  std::uint32_t op = 0;  // the operation of the workload that caused it
  bool begins = false;
  bool page = false;     // mapped pages; otherwise a whole segment
  std::uint64_t address = 0;
  std::uint64_t size_bytes = 0;
};

// Physical bytes held after a driver call.
struct HeldStep {
  std::uint32_t op = 0;
  std::uint64_t bytes = 0;
};

// Passes every call on to a simulated device and keeps a diary. A page that is mapped at several
// addresses counts as standing where it was mapped last, or where a block was placed since (an
// allocator may take up an old mapping without any driver call): note_block tells.
// Not thread-safe: for one replay.
class WatchingBackend final : public ForwardingBackend {
 public:
  explicit WatchingBackend(SimBackend& device) : ForwardingBackend(device), device_(device) {}

  // What follows happens in this operation.
  void set_op(std::uint32_t op) { op_ = op; }
  // Nothing more is noted: the replay is over and blocks are dropped.
  void stop() { watching_ = false; }
  // A block was placed at these addresses.
  void note_block(std::uint64_t address, std::uint64_t size_bytes);

  const std::vector<BackingChange>& backing() const { return backing_; }
  const std::vector<HeldStep>& held() const { return held_; }

  std::optional<Segment> allocate_segment(std::uint64_t size_bytes, MemoryKind kind) override;
  void free_segment(const Segment& segment) override;
  std::optional<PageHandle> create_pages(std::uint64_t size_bytes) override;
  void release_pages(PageHandle pages) override;
  bool map(std::uintptr_t address, PageHandle pages) override;
  void unmap(std::uintptr_t address, PageHandle pages) override;

 private:
  struct Mapping {
    std::uint64_t size_bytes = 0;
    std::uint64_t handle = 0;
  };
  void note_held();
  void note_backing(bool begins, bool page, std::uint64_t address, std::uint64_t size_bytes);

  SimBackend& device_;
  bool watching_ = true;
  std::uint32_t op_ = 0;
  std::vector<BackingChange> backing_;
  std::vector<HeldStep> held_;
  std::map<std::uint64_t, Mapping> mappings_;                        // by address
  std::unordered_map<std::uint64_t, std::uint64_t> place_of_handle_;  // where it stands now
};

}  // namespace tenon
