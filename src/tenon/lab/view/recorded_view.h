// What the recorded program's own allocator did: where its blocks and its memory lay.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tenon/lab/view/policy_view.h"
#include "tenon/trace/snapshot.h"

namespace tenon {

// The recording as if it were a policy, named "recorded". Memory held before the recording began is
// worked out backwards: from the segments at its end, the recorded changes undone. Nothing for a
// recording without addresses or without segments. Changes that contradict what is held (a ring
// buffer that lost some) count as far as they can be true. `op_of_event`: operations before each
// event, and one more for the end. O(changes log changes).
std::optional<PolicyView> recorded_view(const Trace& trace,
                                        const std::vector<SnapshotSegment>& segments,
                                        const std::vector<std::uint32_t>& op_of_event);

}  // namespace tenon
