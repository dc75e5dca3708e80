#include "tenon/memory/per_stream/fallback.h"

namespace tenon {

void add_stats(AllocatorStats& total, const AllocatorStats& share) {
  using Family = PoolStats AllocatorStats::*;
  for (const Family family :
       {&AllocatorStats::allocation, &AllocatorStats::segment, &AllocatorStats::active,
        &AllocatorStats::inactive_split, &AllocatorStats::allocated_bytes,
        &AllocatorStats::reserved_bytes, &AllocatorStats::active_bytes,
        &AllocatorStats::inactive_split_bytes, &AllocatorStats::requested_bytes})
    for (std::size_t pool = 0; pool < (total.*family).size(); ++pool) {
      Stat& sum = (total.*family)[pool];
      const Stat& more = (share.*family)[pool];
      sum.current += more.current;
      sum.peak += more.peak;
      sum.allocated += more.allocated;
    }
  total.num_alloc_retries += share.num_alloc_retries;
  total.num_ooms += share.num_ooms;
  total.num_device_alloc += share.num_device_alloc;
  total.num_device_free += share.num_device_free;
  total.num_sync_all_streams += share.num_sync_all_streams;
}

}  // namespace tenon
