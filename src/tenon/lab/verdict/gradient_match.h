// Which forward call a gradient belongs to.
#pragma once

#include <span>

#include "tenon/lab/verdict/categories.h"

namespace tenon {

// Sets BlockCategory::of_site of gradients. Backward frees what forward saved as it goes, so the
// activation that is freed next tells where it is; near there the call counts whose operator the
// node names, else one of the gradient's own size, else the place itself. O(events).
void match_gradients(const Trace& trace, std::span<const Lifetime> lives, const CallSites& sites,
                     Categories& categories);

}  // namespace tenon
