// A policy's replay as columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tenon/lab/view/column.h"
#include "tenon/lab/view/policy_view.h"

namespace tenon {

// Adds the columns of policy number `index`, with names that begin with "p<index>.": held_op,
// held_bytes, place (of each block: units from the display's start plus 1, 0: nowhere), span_from,
// span_to, span_start and span_size (units). Returns the unit in bytes: a power of two that
// divides all of these.
std::uint64_t add_policy_columns(const PolicyView& view, std::size_t index,
                                 std::vector<Column>& columns);

}  // namespace tenon
