#include "tenon/device/host/host_backend.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/host/machine_memory.h"
#include "tenon/device/os/os_memory.h"

namespace tenon {
namespace {

constexpr std::uint64_t kHugePageBytes = 2 * kMiB;

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

bool means_lack_of_memory(int error) { return error == ENOMEM || error == ENOSPC; }

[[noreturn]] void fail(const std::string& call, int error) {
  std::string reason = std::strerror(error);
  if (error == EMFILE || error == ENFILE)
    reason += "; every page handle needs a file descriptor: raise the limit (ulimit -n) or use "
              "larger handles";
  raise<DeviceError>("{} on cpu:0: {}", call, reason);
}

}  // namespace

// Counts a driver call and charges the time until the end of its scope.
class HostBackend::TimedCall {
 public:
  TimedCall(HostBackend& backend, DriverCall call)
      : backend_(backend), start_ns_(backend.now_ns()) {
    backend_.count(call);
  }
  ~TimedCall() {
    const std::uint64_t elapsed_ns = backend_.now_ns() - start_ns_;
    backend_.ledger_.stall_ns += elapsed_ns;
    if (backend_.purpose_ == DriverPurpose::kMoving) backend_.ledger_.moving_stall_ns += elapsed_ns;
  }
  TimedCall(const TimedCall&) = delete;
  TimedCall& operator=(const TimedCall&) = delete;

  std::uint64_t start_ns() const { return start_ns_; }

 private:
  HostBackend& backend_;
  std::uint64_t start_ns_;
};

HostBackend::HostBackend(HostOptions options)
    : options_(std::move(options)),
      limit_bytes_(options_.limit_bytes != 0 ? options_.limit_bytes
                                             : machine_memory().total_bytes),
      table_(kHugePageBytes, true),
      streams_(device(), 0) {
  limits_.alignment = os::page_size();
  limits_.page_granularity = kHugePageBytes;
  limits_.recommended_working_set_bytes = limit_bytes_;
  limits_.unified = true;
  limits_.has_virtual_memory = true;
  limits_.can_map_twice = true;
  limits_.has_real_memory = true;
  limits_.can_export = true;
  limits_.has_streams = false;
  limits_.idle_ns = options_.decay_ns;
}

HostBackend::~HostBackend() {
  purge_above(0);
  table_.for_each_region([](std::uintptr_t base, std::uint64_t size_bytes) {
    os::release(pointer(base), size_bytes);
  });
  table_.for_each_pages([](std::uint64_t file) { ::close(static_cast<int>(file)); });
}

HostBackend& host_backend() {
  static HostBackend* const backend = new HostBackend();
  return *backend;
}

// --- Giving back.

std::uint64_t HostBackend::trim() {
  const std::lock_guard guard(mutex_);
  const std::uint64_t cached = cache_.size_bytes();
  purge_above(0);
  return cached;
}

bool HostBackend::release_idle() {
  const std::lock_guard guard(mutex_);
  const std::uint64_t now = now_ns();
  purge_until(now - std::min(now, options_.decay_ns));
  return cache_.size_bytes() != 0;
}

void HostBackend::purge(void* base, std::uint64_t size_bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  const std::uintptr_t first = align_up(begin, kHugePageBytes);
  const std::uintptr_t last = align_down(begin + size_bytes, kHugePageBytes);
  if (first >= last) return;
  const std::lock_guard guard(mutex_);
  table_.require_accessible("purge", base, size_bytes);
  os::forget(pointer(first), last - first);
}

std::uint64_t HostBackend::cached_bytes() const {
  const std::lock_guard guard(mutex_);
  return cache_.size_bytes();
}

std::uint64_t HostBackend::held_bytes() const {
  const std::lock_guard guard(mutex_);
  return held_bytes_;
}

// --- What it is.

std::string HostBackend::description() const {
  return fmt::format("the host, {}, pages of {}, huge pages {}", format_byte_size(limit_bytes_),
                     format_byte_size(limits_.alignment),
                     options_.huge_pages ? "asked for" : "off");
}

BackendMemory HostBackend::memory() const {
  const std::uint64_t machine_free = machine_memory().free_bytes;
  const std::lock_guard guard(mutex_);
  const std::uint64_t room = limit_bytes_ - std::min(limit_bytes_, held_bytes_);
  return {limit_bytes_, std::min(room, machine_free)};
}

// --- Segments.

std::optional<Segment> HostBackend::allocate_segment(std::uint64_t size_bytes, MemoryKind kind) {
  const std::lock_guard guard(mutex_);
  const TimedCall call(*this, DriverCall::kAllocate);
  table_.require_segment_size(size_bytes);
  if (size_bytes > kMaxRequestBytes) return std::nullopt;
  purge_until(call.start_ns() - std::min(call.start_ns(), options_.decay_ns));
  const std::uint64_t wanted = align_up(size_bytes, os::page_size());
  cache_.reserve(segments_ + 1);
  auto range = cache_.take(wanted);
  if (!range) {
    if (!make_room(wanted)) return std::nullopt;
    const bool huge = wanted >= kHugePageBytes;
    const std::uint64_t alignment = huge ? kHugePageBytes : os::page_size();
    void* base = os::allocate(wanted, alignment);
    if (base == nullptr) {  // the system lacks addresses, as under ulimit -v: the cache has some
      purge_above(0);
      base = os::allocate(wanted, alignment);
    }
    if (base == nullptr) return std::nullopt;
    if (huge && options_.huge_pages) os::ask_for_huge_pages(base, wanted);
    range = SegmentCache::Range{base, wanted};
    held_bytes_ += wanted;
  }
  try {
    const std::uint64_t id =
        table_.add_segment(reinterpret_cast<std::uintptr_t>(range->base), range->size_bytes);
    ++segments_;
    return Segment{range->base, range->base, range->size_bytes, id, kind};
  } catch (const std::bad_alloc&) {
    cache_.put(*range, call.start_ns());
    throw;
  }
}

void HostBackend::free_segment(const Segment& segment) {
  const std::lock_guard guard(mutex_);
  const TimedCall call(*this, DriverCall::kFree);
  table_.require_segment(segment);
  table_.remove_segment(segment);
  --segments_;
  cache_.put({segment.base, segment.size_bytes}, call.start_ns());
  purge_above(options_.cache_bytes);
  purge_until(call.start_ns() - std::min(call.start_ns(), options_.decay_ns));
}

// --- Virtual memory.

std::optional<AddressRange> HostBackend::reserve_address(std::uint64_t size_bytes) {
  const std::lock_guard guard(mutex_);
  const TimedCall call(*this, DriverCall::kReserveAddress);
  table_.require_range_size(size_bytes);
  if (size_bytes > kMaxRequestBytes) return std::nullopt;
  void* base = os::reserve(size_bytes, kHugePageBytes);
  if (base == nullptr) {  // as above
    purge_above(0);
    base = os::reserve(size_bytes, kHugePageBytes);
  }
  if (base == nullptr) return std::nullopt;
  const AddressRange range{reinterpret_cast<std::uintptr_t>(base), size_bytes};
  table_.add_range(range);
  return range;
}

void HostBackend::release_address(AddressRange range) {
  const std::lock_guard guard(mutex_);
  const TimedCall call(*this, DriverCall::kReleaseAddress);
  table_.require_empty_range(range);
  os::release(pointer(range.base), range.size_bytes);
  table_.remove_range(range);
}

std::optional<PageHandle> HostBackend::create_pages(std::uint64_t size_bytes) {
  const std::lock_guard guard(mutex_);
  const TimedCall call(*this, DriverCall::kCreate);
  table_.require_pages_size(size_bytes);
  if (size_bytes > kMaxRequestBytes || !make_room(size_bytes)) return std::nullopt;
  const int file = os::create_file("tenon-host", size_bytes);
  if (file < 0) {
    if (means_lack_of_memory(errno)) return std::nullopt;
    fail(fmt::format("create_pages({})", size_bytes), errno);
  }
  held_bytes_ += size_bytes;
  return table_.add_pages(size_bytes, static_cast<std::uint64_t>(file));
}

void HostBackend::release_pages(PageHandle pages) {
  const std::lock_guard guard(mutex_);
  const TimedCall call(*this, DriverCall::kRelease);
  give_back(table_.release_pages(pages));
}

bool HostBackend::map(std::uintptr_t address, PageHandle pages) {
  const std::lock_guard guard(mutex_);
  const TimedCall call(*this, DriverCall::kMap);
  table_.require_can_map(address, pages);
  const int file = static_cast<int>(table_.backing("map", pages));
  if (!os::map_file(pointer(address), pages.size_bytes, file, 0)) {
    if (means_lack_of_memory(errno)) return false;
    fail(fmt::format("map({:#x}, handle {})", address, pages.id), errno);
  }
  if (options_.huge_pages) os::ask_for_huge_pages(pointer(address), pages.size_bytes);
  table_.add_mapping(address, pages);
  return true;
}

bool HostBackend::set_access(std::uintptr_t address, std::uint64_t size_bytes) {
  const std::lock_guard guard(mutex_);
  const TimedCall call(*this, DriverCall::kSetAccess);
  table_.handles_in(address, size_bytes);
  if (!os::make_accessible(pointer(address), size_bytes)) {
    if (means_lack_of_memory(errno)) return false;
    fail(fmt::format("set_access({:#x}, {})", address, size_bytes), errno);
  }
  table_.set_accessible(address, size_bytes);
  return true;
}

void HostBackend::unmap(std::uintptr_t address, PageHandle pages) {
  const std::lock_guard guard(mutex_);
  const TimedCall call(*this, DriverCall::kUnmap);
  table_.require_mapped(address, pages);
  if (!os::unmap_file(pointer(address), pages.size_bytes))
    fail(fmt::format("unmap({:#x}, handle {})", address, pages.id), errno);
  give_back(table_.remove_mapping(address));
}

// --- Between processes.

std::int64_t HostBackend::export_pages(PageHandle pages) {
  const std::lock_guard guard(mutex_);
  const int file = static_cast<int>(table_.backing("export_pages", pages));
  const int copy = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) fail(fmt::format("export_pages(handle {})", pages.id), errno);
  return copy;
}

PageHandle HostBackend::import_pages(std::int64_t token, std::uint64_t size_bytes) {
  const std::lock_guard guard(mutex_);
  table_.require_pages_size(size_bytes);
  const std::string call = fmt::format("import_pages({}, {})", token, size_bytes);
  const int file = ::fcntl(static_cast<int>(token), F_DUPFD_CLOEXEC, 0);
  if (file < 0) fail(call, errno);
  struct stat status = {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<std::uint64_t>(status.st_size) != size_bytes) {
    ::close(file);
    raise<DeviceError>("{} on cpu:0: the descriptor is no page handle of that size; it "
                       "has {} bytes", call, status.st_size);
  }
  held_bytes_ += size_bytes;
  return table_.add_pages(size_bytes, static_cast<std::uint64_t>(file));
}

// --- Contents.

void HostBackend::copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) {
  require_contents("copy to", dest, size_bytes, stream);
  require_contents("copy from", src, size_bytes, stream);
  if (size_bytes != 0) std::memmove(dest, src, size_bytes);
}

void HostBackend::fill(void* dest, std::uint8_t value, std::uint64_t size_bytes, Stream stream) {
  require_contents("fill", dest, size_bytes, stream);
  if (size_bytes != 0) std::memset(dest, value, size_bytes);
}

// --- Streams and events.

Stream HostBackend::create_stream() {
  const std::lock_guard guard(mutex_);
  return streams_.create_stream();
}

void HostBackend::destroy_stream(Stream stream) {
  const std::lock_guard guard(mutex_);
  streams_.destroy_stream(stream);
}

Event HostBackend::record(Stream stream) {
  const std::lock_guard guard(mutex_);
  count(DriverCall::kEventRecord);
  return streams_.record(stream);
}

bool HostBackend::query(Event event) {
  const std::lock_guard guard(mutex_);
  count(DriverCall::kEventQuery);
  return streams_.finish_ns("query", event) == 0;
}

void HostBackend::wait(Event event) {
  const std::lock_guard guard(mutex_);
  count(DriverCall::kHostWait);
  streams_.finish_ns("wait", event);
}

void HostBackend::stream_wait(Stream stream, Event event) {
  const std::lock_guard guard(mutex_);
  count(DriverCall::kStreamWait);
  streams_.stream_wait(stream, event);
}

void HostBackend::destroy_event(Event event) {
  const std::lock_guard guard(mutex_);
  streams_.destroy_event(event);
}

void HostBackend::synchronize(Stream stream) {
  const std::lock_guard guard(mutex_);
  count(DriverCall::kHostWait);
  streams_.finish_ns("synchronize", stream);
}

void HostBackend::synchronize() {
  const std::lock_guard guard(mutex_);
  count(DriverCall::kHostWait);
}

// --- Accounts.

DriverLedger HostBackend::ledger() const {
  const std::lock_guard guard(mutex_);
  return ledger_;
}

void HostBackend::set_purpose(DriverPurpose purpose) {
  const std::lock_guard guard(mutex_);
  purpose_ = purpose;
}

// --- Helpers.

std::uint64_t HostBackend::now_ns() const {
  if (options_.clock) return options_.clock();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// Within the limit, at the price of the cache if need be.
bool HostBackend::make_room(std::uint64_t size_bytes) {
  if (size_bytes > limit_bytes_) return false;
  const std::uint64_t allowed = limit_bytes_ - size_bytes;
  if (held_bytes_ > allowed) purge_above(cache_.size_bytes() - std::min(cache_.size_bytes(),
                                                                        held_bytes_ - allowed));
  return held_bytes_ <= allowed;
}

void HostBackend::purge_until(std::uint64_t time_ns) {
  while (const auto range = cache_.take_older_than(time_ns)) give_back(*range);
}

void HostBackend::purge_above(std::uint64_t cached_bytes) {
  while (cache_.size_bytes() > cached_bytes) give_back(*cache_.take_older_than(UINT64_MAX));
}

void HostBackend::give_back(SegmentCache::Range range) {
  os::release(range.base, range.size_bytes);
  held_bytes_ -= range.size_bytes;
}

void HostBackend::give_back(const std::optional<AddressTable::Dropped>& dropped) {
  if (!dropped) return;
  ::close(static_cast<int>(dropped->backing));
  held_bytes_ -= dropped->size_bytes;
}

void HostBackend::require_contents(const char* call, const void* address, std::uint64_t size_bytes,
                                   Stream stream) const {
  const std::lock_guard guard(mutex_);
  streams_.finish_ns(call, stream);
  if (size_bytes == 0) return;
  if (address == nullptr)
    raise<DeviceError>("{}(null, {} bytes) on cpu:0: there is no memory", call, size_bytes);
  table_.require_accessible(call, address, size_bytes);
}

}  // namespace tenon
