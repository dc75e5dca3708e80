#include "tenon/device/sim/sim_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/sim/address_space.h"
#include "tenon/device/sim/failures.h"
#include "tenon/device/sim/order_checker.h"
#include "tenon/device/stream_table.h"

namespace tenon {
namespace {

std::uint64_t to_ns(double us) { return static_cast<std::uint64_t>(std::llround(us * 1e3)); }

BackendLimits limits_of(const SimOptions& options) {
  BackendLimits limits;
  limits.alignment = options.alignment;
  limits.page_granularity = options.page_granularity;
  limits.recommended_working_set_bytes = options.recommended_working_set_bytes != 0
                                             ? options.recommended_working_set_bytes
                                             : options.capacity_bytes;
  limits.unified = options.unified;
  limits.has_virtual_memory = true;
  limits.can_map_twice = options.can_map_twice;
  limits.has_real_memory = options.real_memory;
  return limits;
}

}  // namespace

SimBackend::SimBackend(const SimOptions& options)
    : options_(options),
      costs_(options.costs != nullptr ? *options.costs : h200_costs()),
      device_{DeviceType::kSim, options.device_index},
      limits_(limits_of(options)),
      space_(std::make_unique<SimAddressSpace>(options)),
      streams_(std::make_unique<StreamTable>(device_, options.lag_ns)),
      failures_(std::make_unique<SimFailures>(options.seed)),
      checker_(options.check_order ? std::make_unique<OrderChecker>() : nullptr) {}

SimBackend::~SimBackend() = default;

// --- The simulation's own controls.

void SimBackend::advance_to(std::uint64_t program_time_ns) {
  const std::lock_guard guard(lock_);
  program_ns_ = std::max(program_ns_, program_time_ns);
}

std::uint64_t SimBackend::now_ns() const {
  const std::lock_guard guard(lock_);
  return program_ns_ + stalled_ns_;
}

void SimBackend::queue_work(Stream stream) {
  const std::lock_guard guard(lock_);
  streams_->queue_work(stream, program_ns_ + stalled_ns_);
}

std::uint64_t SimBackend::used_bytes() const {
  const std::lock_guard guard(lock_);
  return space_->used_bytes();
}

std::uint64_t SimBackend::peak_used_bytes() const {
  const std::lock_guard guard(lock_);
  return space_->peak_used_bytes();
}

void SimBackend::reset_peak() {
  const std::lock_guard guard(lock_);
  space_->reset_peak();
}

void SimBackend::reset_ledger() {
  const std::lock_guard guard(lock_);
  ledger_ = {};
}

void SimBackend::set_capacity(std::uint64_t capacity_bytes) {
  const std::lock_guard guard(lock_);
  space_->set_capacity(capacity_bytes);
}

void SimBackend::fail_call(DriverCall call, std::uint64_t nth) {
  const std::lock_guard guard(lock_);
  failures_->fail_call(call, nth);
}

void SimBackend::set_failure_rate(double probability) {
  const std::lock_guard guard(lock_);
  failures_->set_rate(probability);
}

void SimBackend::clear_failures() {
  const std::lock_guard guard(lock_);
  failures_->clear();
}

void SimBackend::access(Stream stream, const void* address, std::uint64_t size_bytes,
                        std::uint64_t owner_id) {
  const std::lock_guard guard(lock_);
  require_checker("access");
  streams_->queue_work(stream, program_ns_ + stalled_ns_);
  checker_->access(stream, reinterpret_cast<std::uintptr_t>(address), size_bytes, owner_id);
}

std::vector<std::string> SimBackend::order_violations() const {
  const std::lock_guard guard(lock_);
  require_checker("order_violations");
  return checker_->violations();
}

// --- What it is.

std::string SimBackend::description() const {
  const std::lock_guard guard(lock_);
  return fmt::format("simulated device, {}, {} memory, streams lag {:g} ms",
                     format_byte_size(space_->capacity_bytes()),
                     options_.real_memory ? "real" : "no real",
                     static_cast<double>(options_.lag_ns) / 1e6);
}

BackendMemory SimBackend::memory() const {
  const std::lock_guard guard(lock_);
  const std::uint64_t capacity = space_->capacity_bytes();
  return {capacity, capacity - std::min(capacity, space_->used_bytes())};
}

// --- Segments.

std::optional<Segment> SimBackend::allocate_segment(std::uint64_t size_bytes, MemoryKind kind) {
  const std::lock_guard guard(lock_);
  if (call_lacks_memory(DriverCall::kAllocate)) return std::nullopt;
  auto segment = space_->allocate_segment(size_bytes, kind);
  if (!segment) return std::nullopt;
  charge(CostModel::cost_ns(costs_.allocate, segment->size_bytes));
  if (checker_) checker_->segment_allocated(*segment);
  return segment;
}

void SimBackend::free_segment(const Segment& segment) {
  const std::lock_guard guard(lock_);
  call_lacks_memory(DriverCall::kFree);
  space_->require_segment(segment);
  stall_until(streams_->device_finish_ns());
  space_->free_segment(segment);
  charge(CostModel::cost_ns(costs_.free, segment.size_bytes));
  if (checker_) checker_->segment_freed(segment);
}

// --- Virtual memory.

std::optional<AddressRange> SimBackend::reserve_address(std::uint64_t size_bytes) {
  const std::lock_guard guard(lock_);
  if (call_lacks_memory(DriverCall::kReserveAddress)) return std::nullopt;
  const auto range = space_->reserve_address(size_bytes);
  if (range) charge(to_ns(costs_.reserve_address_us));
  return range;
}

void SimBackend::release_address(AddressRange range) {
  const std::lock_guard guard(lock_);
  call_lacks_memory(DriverCall::kReleaseAddress);
  space_->release_address(range);
}

std::optional<PageHandle> SimBackend::create_pages(std::uint64_t size_bytes) {
  const std::lock_guard guard(lock_);
  if (call_lacks_memory(DriverCall::kCreate)) return std::nullopt;
  const auto pages = space_->create_pages(size_bytes);
  if (pages) charge(CostModel::cost_ns(costs_.create, size_bytes));
  return pages;
}

void SimBackend::release_pages(PageHandle pages) {
  const std::lock_guard guard(lock_);
  call_lacks_memory(DriverCall::kRelease);
  space_->release_pages(pages);
  charge(CostModel::cost_ns(costs_.release, pages.size_bytes));
}

bool SimBackend::map(std::uintptr_t address, PageHandle pages) {
  const std::lock_guard guard(lock_);
  if (call_lacks_memory(DriverCall::kMap)) return false;
  if (!space_->map(address, pages)) return false;
  charge(CostModel::cost_ns(costs_.map, pages.size_bytes));
  if (checker_) checker_->mapped(address, pages);
  return true;
}

bool SimBackend::set_access(std::uintptr_t address, std::uint64_t size_bytes) {
  const std::lock_guard guard(lock_);
  if (call_lacks_memory(DriverCall::kSetAccess)) return false;
  const auto handle_sizes = space_->set_access(address, size_bytes);
  if (!handle_sizes) return false;
  std::uint64_t cost_ns = 0;
  for (const std::uint64_t handle_bytes : *handle_sizes)
    cost_ns += CostModel::cost_ns(costs_.set_access_per_handle, handle_bytes);
  charge(cost_ns);
  if (checker_) checker_->access_set(address, size_bytes);
  return true;
}

void SimBackend::unmap(std::uintptr_t address, PageHandle pages) {
  const std::lock_guard guard(lock_);
  call_lacks_memory(DriverCall::kUnmap);
  space_->unmap(address, pages);
  charge(CostModel::cost_ns(costs_.unmap_per_handle, pages.size_bytes));
  if (checker_) checker_->unmapped(address);
}

// --- Contents.

void SimBackend::copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) {
  {
    const std::lock_guard guard(lock_);
    require_stream("copy", stream);
    if (size_bytes == 0) return;
    const bool dest_is_ours = space_->require_accessible("copy to", dest, size_bytes);
    const bool src_is_ours = space_->require_accessible("copy from", src, size_bytes);
    if (!dest_is_ours && !src_is_ours)
      raise<DeviceError>("copy({}, {}, {} bytes): neither address belongs to {}", dest, src,
                         size_bytes, to_string(device_));
  }
  if (options_.real_memory) std::memmove(dest, src, size_bytes);
}

void SimBackend::fill(void* dest, std::uint8_t value, std::uint64_t size_bytes, Stream stream) {
  {
    const std::lock_guard guard(lock_);
    require_stream("fill", stream);
    if (size_bytes == 0) return;
    if (!space_->require_accessible("fill", dest, size_bytes))
      raise<DeviceError>("fill({}, {} bytes): the address does not belong to {}", dest, size_bytes,
                         to_string(device_));
  }
  if (options_.real_memory) std::memset(dest, value, size_bytes);
}

// --- Streams and events.

Stream SimBackend::create_stream() {
  const std::lock_guard guard(lock_);
  return streams_->create_stream();
}

void SimBackend::destroy_stream(Stream stream) {
  const std::lock_guard guard(lock_);
  streams_->destroy_stream(stream);
}

Event SimBackend::record(Stream stream) {
  const std::lock_guard guard(lock_);
  call_lacks_memory(DriverCall::kEventRecord);
  const Event event = streams_->record(stream);
  charge(to_ns(costs_.event_record_us));
  if (checker_) checker_->recorded(stream, event);
  return event;
}

bool SimBackend::query(Event event) {
  const std::lock_guard guard(lock_);
  call_lacks_memory(DriverCall::kEventQuery);
  const std::uint64_t finish_ns = streams_->finish_ns("query", event);
  charge(to_ns(costs_.event_query_us));
  const bool finished = finish_ns <= program_ns_ + stalled_ns_;
  if (checker_ && finished) checker_->host_knows(event);
  return finished;
}

void SimBackend::wait(Event event) {
  const std::lock_guard guard(lock_);
  call_lacks_memory(DriverCall::kHostWait);
  stall_until(streams_->finish_ns("wait", event));
  if (checker_) checker_->host_knows(event);
}

void SimBackend::stream_wait(Stream stream, Event event) {
  const std::lock_guard guard(lock_);
  call_lacks_memory(DriverCall::kStreamWait);
  streams_->stream_wait(stream, event);
  charge(to_ns(costs_.stream_wait_event_us));
  if (checker_) checker_->stream_waited(stream, event);
}

void SimBackend::destroy_event(Event event) {
  const std::lock_guard guard(lock_);
  streams_->destroy_event(event);
  if (checker_) checker_->event_destroyed(event);
}

void SimBackend::synchronize(Stream stream) {
  const std::lock_guard guard(lock_);
  call_lacks_memory(DriverCall::kHostWait);
  stall_until(streams_->finish_ns("synchronize", stream));
  if (checker_) checker_->host_knows(stream);
}

void SimBackend::synchronize() {
  const std::lock_guard guard(lock_);
  call_lacks_memory(DriverCall::kHostWait);
  stall_until(streams_->device_finish_ns());
  if (checker_) checker_->host_knows_everything();
}

// --- Accounts.

DriverLedger SimBackend::ledger() const {
  const std::lock_guard guard(lock_);
  return ledger_;
}

void SimBackend::set_purpose(DriverPurpose purpose) {
  const std::lock_guard guard(lock_);
  purpose_ = purpose;
}

bool SimBackend::call_lacks_memory(DriverCall call) {
  ++ledger_.calls[static_cast<std::size_t>(call)];
  if (!failures_->strikes(call)) return false;
  if (SimFailures::can_lack_memory(call)) return true;
  raise<DeviceError>("{} on {}: failed as the test asked (call {})", driver_call_name(call),
                     to_string(device_), ledger_.count(call));
}

void SimBackend::charge(std::uint64_t elapsed_ns) {
  stalled_ns_ += elapsed_ns;
  ledger_.stall_ns += elapsed_ns;
  if (purpose_ == DriverPurpose::kMoving) ledger_.moving_stall_ns += elapsed_ns;
}

void SimBackend::stall_until(std::uint64_t time_ns) {
  const std::uint64_t now = program_ns_ + stalled_ns_;
  if (time_ns > now) charge(time_ns - now);
}

void SimBackend::require_stream(const char* call, Stream stream) const {
  streams_->finish_ns(call, stream);
}

void SimBackend::require_checker(const char* call) const {
  if (checker_ == nullptr)
    raise<InvalidArgument>("{} on {}: create it with SimOptions::check_order", call,
                           to_string(device_));
}

}  // namespace tenon
