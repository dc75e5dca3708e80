// Segments and blocks as they lay at a moment of a recording. Thread-safe: pure functions of their
// arguments. The only error is lack of memory (std::bad_alloc).
#pragma once

#include <cstddef>
#include <vector>

#include "tenon/lab/explain/lifetimes.h"
#include "tenon/memory/gpu/pytorch_rules.h"
#include "tenon/trace/snapshot.h"

namespace tenon {

// The segments of one device, by address, tiled by blocks. `end` are the snapshot's own segments
// (of all devices), which say exactly what was there when it was taken. For an earlier moment, the
// segments are those left after the marks from number `marks` on are undone. The blocks are those
// live after `events` events, of the sizes that PyTorch's rules give under these settings. Blocks
// that lie in no segment are left out. O((events + marks) log segments).
std::vector<SnapshotSegment> memory_map(const Trace& trace, const std::vector<Lifetime>& lives,
                                        const std::vector<SnapshotSegment>& end,
                                        std::size_t events, std::size_t marks,
                                        const CachingSettings& settings);

// The number of the first mark that comes after so many events.
std::size_t marks_before(const Trace& trace, std::size_t events);

// One device's segments as the snapshot has them, in order of address.
std::vector<SnapshotSegment> segments_of(const std::vector<SnapshotSegment>& all,
                                         std::uint32_t device);

}  // namespace tenon
