// What RMM calls by other names: resources and their adaptors. device_buffer and device_uvector are
// in memory/device_buffer.h.
#pragma once

#include "tenon/memory/adaptors/aligned_adaptor.h"
#include "tenon/memory/adaptors/fallback_adaptor.h"
#include "tenon/memory/adaptors/limit_adaptor.h"
#include "tenon/memory/adaptors/logging_adaptor.h"
#include "tenon/memory/adaptors/pressure_adaptor.h"
#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/memory/adaptors/thread_safe_adaptor.h"
#include "tenon/memory/adaptors/tracking_adaptor.h"
#include "tenon/memory/device_buffer.h"
#include "tenon/memory/gpu/pinned_allocator.h"
#include "tenon/memory/placement/arena_allocator.h"
#include "tenon/memory/placement/pool_allocator.h"
#include "tenon/memory/placement/size_class_pool.h"
#include "tenon/memory/system/system_allocator.h"

// Names alone. A resource is made over a Backend or an upstream as its class here says; blocks are
// DataPtrs, or bare pointers by raw_allocate_on and raw_deallocate. binning_memory_resource has no
// counterpart: caching and arena have size classes of their own. Each stream of the pool has chunks
// of its own and takes none from others, and a device_buffer over it stays on its stream.
namespace rmm {

using cuda_stream_view = tenon::Stream;
using out_of_memory = tenon::OutOfMemory;
using tenon::device_buffer;
using tenon::device_uvector;

namespace mr {

using device_memory_resource = tenon::DeviceAllocator;
using cuda_memory_resource = tenon::SystemAllocator;
using pinned_host_memory_resource = tenon::PinnedAllocator;
using pool_memory_resource = tenon::PoolAllocator;
using arena_memory_resource = tenon::ArenaAllocator;
using fixed_size_memory_resource = tenon::SizeClassPool;
using limiting_resource_adaptor = tenon::LimitAdaptor<tenon::DeviceAllocator>;
using logging_resource_adaptor = tenon::LoggingAdaptor<tenon::DeviceAllocator>;
using statistics_resource_adaptor = tenon::StatisticsAdaptor<tenon::DeviceAllocator>;
using tracking_resource_adaptor = tenon::TrackingAdaptor<tenon::DeviceAllocator>;
using thread_safe_resource_adaptor = tenon::ThreadSafeAdaptor<tenon::DeviceAllocator>;
using aligned_resource_adaptor = tenon::AlignedAdaptor<tenon::DeviceAllocator>;
using failure_callback_resource_adaptor = tenon::PressureAdaptor<tenon::DeviceAllocator>;
using failure_alternate_resource_adaptor = tenon::FallbackAdaptor<tenon::DeviceAllocator>;

}  // namespace mr
}  // namespace rmm
