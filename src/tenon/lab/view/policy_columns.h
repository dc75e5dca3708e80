// A policy's replay as columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tenon/lab/view/column.h"
#include "tenon/lab/view/policy_view.h"

namespace tenon {

// A policy's replay of which only figures are left: what is drawn has gone into columns.
struct PackedPolicy {
  PolicyView view;  // without held, places and spans
  std::uint64_t unit_bytes = 1;
  std::vector<Column> columns;
};

PackedPolicy pack_policy(PolicyView view, std::size_t index);

// Adds the columns of policy number `index`, with names that begin with "p<index>.": held_op,
// held_bytes, place (of each block: units from the display's start plus 1, 0: nowhere), span_from,
// span_to, span_start and span_size (units). Returns the unit in bytes: a power of two that
// divides all of these.
std::uint64_t add_policy_columns(const PolicyView& view, std::size_t index,
                                 std::vector<Column>& columns);

}  // namespace tenon
