// Where a program called empty_cache() while PyTorch recorded it: the recording has no entry for
// the call, only for the segments that went back to the driver.
#pragma once

#include "tenon/trace/site_table.h"
#include "tenon/trace/trace.h"

namespace tenon {

// Adds a mark (MarkKind::kEmptyCache) behind each run of segments or pages that the program gave
// back, unless one is there. PyTorch also gives them back by itself: when the device is too full
// for a request, and for garbage_collection_threshold. Then the memory for the request, or its
// failure, follows with the same call stack. Without stacks, memory that follows is the program's
// next request only if the device had held more at another time. A call that found nothing to give
// back leaves no trace. `sites`: the table of the marks' sites. O(marks).
void mark_emptied_caches(Trace& trace, const SiteTable& sites);

}  // namespace tenon
