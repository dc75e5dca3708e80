#include "tenon/device/sleeping/sleeping_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <set>
#include <utility>

#include "tenon/base/align.h"
#include "tenon/device/shortage.h"

namespace tenon {
namespace {

struct Entry {
  SleepingBackend* backend = nullptr;
  int calls = 0;  // under way, of for_tag; the backend stays meanwhile
};

struct Backends {
  std::mutex mutex;
  std::condition_variable call_ended;
  std::vector<Entry> all;

  std::vector<Entry>::iterator find(const SleepingBackend* backend) {
    return std::find_if(all.begin(), all.end(),
                        [&](const Entry& entry) { return entry.backend == backend; });
  }
};

Backends& backends() {
  static auto* const the_backends = new Backends;
  return *the_backends;
}

std::vector<SleepingBackend*> backends_of(const std::string& tag) {
  Backends& known = backends();
  const std::lock_guard lock(known.mutex);
  std::vector<SleepingBackend*> wanted;
  std::set<std::string> tags;  // several backends may have one tag
  for (const Entry& entry : known.all) {
    tags.insert(entry.backend->tag());
    if (entry.backend->tag() == tag) wanted.push_back(entry.backend);
  }
  if (tags.empty()) tags.insert("none");
  if (wanted.empty())
    raise<InvalidArgument>("\"{}\": no memory has this tag; the tags are: {}", tag,
                           fmt::join(tags, ", "));
  return wanted;
}

// Keeps a backend of a list from ending; there is none where it has ended since.
class Call {
 public:
  explicit Call(SleepingBackend* backend) : backend_(backend) {
    Backends& known = backends();
    const std::lock_guard lock(known.mutex);
    const auto entry = known.find(backend);
    is_there_ = entry != known.all.end();
    if (is_there_) ++entry->calls;
  }
  ~Call() {
    if (!is_there_) return;
    Backends& known = backends();
    const std::lock_guard lock(known.mutex);
    --known.find(backend_)->calls;
    known.call_ended.notify_all();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool is_there() const { return is_there_; }

 private:
  SleepingBackend* const backend_;
  bool is_there_ = false;
};

// No lock is held during a call: a wake may request memory, and a callback that returns memory may
// create and destroy backends.
template <typename Change>
std::uint64_t for_tag(const std::string& tag, Change&& change) {
  std::uint64_t sum = 0;
  for (SleepingBackend* backend : backends_of(tag))
    if (const Call call(backend); call.is_there()) sum += change(*backend);
  return sum;
}

}  // namespace

SleepingBackend::SleepingBackend(Backend& driver, std::string tag)
    : ForwardingBackend(driver), tag_(std::move(tag)), limits_(driver.limits()) {
  if (tag_.empty()) throw InvalidArgument("sleeping memory needs a tag, such as \"weights\"");
  if (!limits_.has_virtual_memory)
    raise<InvalidArgument>(
        "\"{}\": {} has no virtual memory, so its memory cannot leave its addresses", tag_,
        to_string(driver.device()));
  limits_.alignment = std::max(limits_.alignment, limits_.page_granularity);
  limits_.can_export = false;
  limits_.idle_ns = 0;
  Backends& known = backends();
  const std::lock_guard lock(known.mutex);
  known.all.push_back({this});
}

SleepingBackend::~SleepingBackend() {
  {
    Backends& known = backends();
    std::unique_lock lock(known.mutex);
    known.call_ended.wait(lock, [&] { return known.find(this)->calls == 0; });
    known.all.erase(known.find(this));
  }
  // Memory that the driver refuses to release stays with the driver.
  for (const auto& entry : pages_) {
    const Pages& pages = entry.second;
    if (pages.driver.id == 0) continue;
    for (const std::uintptr_t address : pages.addresses)
      ignore_refusal([&] { driver_.unmap(address, pages.driver); });
    if (!pages.released) ignore_refusal([&] { driver_.release_pages(pages.driver); });
  }
  for (const auto& segment : segments_)
    ignore_refusal([&] {
      driver_.release_address({segment.first, pages_.at(segment.second).size_bytes});
    });
}

void SleepingBackend::refuse(const char* call) const {
  raise<DeviceError>(
      "{}: memory \"{}\" may sleep, and another process would keep its pages; take memory to share "
      "from the driver", call, tag_);
}

std::string SleepingBackend::description() const {
  return fmt::format("{}, memory \"{}\" may sleep", driver_.description(), tag_);
}

// --- Memory, and the table of it.

PageHandle SleepingBackend::enter(PageHandle of_the_driver) {
  Pages& pages = pages_[++last_pages_];
  pages.size_bytes = of_the_driver.size_bytes;
  pages.driver = of_the_driver;
  return {last_pages_, of_the_driver.size_bytes};
}

SleepingBackend::Pages& SleepingBackend::known(PageHandle pages, const char* call) {
  const auto found = pages_.find(pages.id);
  if (found == pages_.end())
    raise<DeviceError>("{}: memory \"{}\" has no pages {}", call, tag_, pages.id);
  return found->second;
}

std::optional<PageHandle> SleepingBackend::create_pages(std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const auto created = driver_.create_pages(size_bytes);
  if (!created) return std::nullopt;
  return enter(*created);
}

void SleepingBackend::release_pages(PageHandle handle) {
  const std::lock_guard lock(mutex_);
  Pages& pages = known(handle, "release_pages");
  if (pages.released)
    raise<DeviceError>("release_pages({}): released already", handle.id);
  if (pages.driver.id != 0) driver_.release_pages(pages.driver);
  pages.released = true;
  if (pages.addresses.empty()) pages_.erase(handle.id);
}

bool SleepingBackend::map(std::uintptr_t address, PageHandle handle) {
  std::unique_lock lock(mutex_);
  Pages& pages = known(handle, "map");
  const auto [entry, fresh] = mappings_.try_emplace(address, Mapping{handle.id, false});
  if (!fresh)
    raise<DeviceError>("map({:#x}): something is mapped there already", address);
  try {
    pages.addresses.push_back(address);
    if (pages.driver.id == 0) {
      const std::uint64_t size_bytes = pages.size_bytes;
      lock.unlock();
      report_sleep({SleepChange::What::kToHost, device(), tag_, {{address, size_bytes, 0}}});
      return true;
    }
    if (driver_.map(address, pages.driver)) return true;
  } catch (...) {
    std::erase(pages.addresses, address);
    mappings_.erase(entry);
    throw;
  }
  pages.addresses.pop_back();
  mappings_.erase(entry);
  return false;
}

// Calls the driver for each awake range.
bool SleepingBackend::set_access(std::uintptr_t address, std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const std::uintptr_t end = address + size_bytes;
  const auto first = mappings_.lower_bound(address);
  const auto last = mappings_.lower_bound(end);
  std::uintptr_t from = address;
  const auto open = [&](std::uintptr_t until) {
    return from >= until || driver_.set_access(from, until - from);
  };
  for (auto mapping = first; mapping != last; ++mapping) {
    if (!is_asleep(mapping->second)) continue;
    if (!open(mapping->first)) return false;
    from = mapping->first + pages_.at(mapping->second.pages).size_bytes;
  }
  if (!open(end)) return false;
  for (auto mapping = first; mapping != last; ++mapping)
    mappings_.at(mapping->first).accessible = true;
  return true;
}

void SleepingBackend::unmap(std::uintptr_t address, PageHandle handle) {
  std::unique_lock lock(mutex_);
  Pages& pages = known(handle, "unmap");
  const auto mapping = mappings_.find(address);
  if (mapping == mappings_.end() || mapping->second.pages != handle.id)
    raise<DeviceError>("unmap({:#x}): pages {} of \"{}\" are not mapped there", address, handle.id,
                       tag_);
  const bool asleep = pages.driver.id == 0;
  if (!asleep) driver_.unmap(address, pages.driver);
  const std::uint64_t size_bytes = pages.size_bytes;
  mappings_.erase(mapping);
  std::erase(pages.addresses, address);
  if (pages.released && pages.addresses.empty()) pages_.erase(handle.id);
  lock.unlock();
  if (asleep) report_sleep({SleepChange::What::kGone, device(), tag_, {{address, size_bytes, 0}}});
}

std::optional<Segment> SleepingBackend::allocate_segment(std::uint64_t size_bytes,
                                                         MemoryKind kind) {
  if (kind != MemoryKind::kDevice && kind != MemoryKind::kShared)
    raise<DeviceError>("allocate_segment: pinned and managed memory cannot sleep; "
                       "take it from the driver of \"{}\"", tag_);
  const auto range = reserve_address(round_up(size_bytes, limits_.page_granularity));
  if (!range) return std::nullopt;
  const auto pages = create_pages(range->size_bytes);
  bool mapped = false;
  const auto undo = [&] {
    if (mapped) ignore_refusal([&] { unmap(range->base, *pages); });
    if (pages) ignore_refusal([&] { release_pages(*pages); });
    ignore_refusal([&] { release_address(*range); });
  };
  try {
    mapped = pages && map(range->base, *pages);
    if (!mapped || !set_access(range->base, range->size_bytes)) return undo(), std::nullopt;
    const std::lock_guard lock(mutex_);
    segments_.emplace(range->base, pages->id);
  } catch (...) {
    undo();
    throw;
  }
  Segment segment;
  segment.base = reinterpret_cast<void*>(range->base);
  if (limits_.unified || device().type == DeviceType::kCpu) segment.host = segment.base;
  segment.size_bytes = range->size_bytes;
  segment.kind = kind;
  return segment;
}

void SleepingBackend::free_segment(const Segment& segment) {
  const auto base = reinterpret_cast<std::uintptr_t>(segment.base);
  PageHandle pages;
  {
    const std::lock_guard lock(mutex_);
    const auto found = segments_.find(base);
    if (found == segments_.end())
      raise<DeviceError>("free_segment({}): no segment of \"{}\"", segment.base, tag_);
    pages = {found->second, pages_.at(found->second).size_bytes};
    if (pages_.at(pages.id).driver.id != 0) driver_.synchronize();  // as freeing a segment does
    segments_.erase(found);
  }
  unmap(base, pages);
  release_pages(pages);
  release_address({base, pages.size_bytes});
}

// --- Sleep.

SleepingBackend::Mappings::const_iterator SleepingBackend::at_or_before(
    std::uintptr_t address) const {
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return after;
  const auto before = std::prev(after);
  return address - before->first < pages_.at(before->second.pages).size_bytes ? before : after;
}

bool SleepingBackend::touches_sleep(std::uintptr_t address, std::uint64_t size_bytes) const {
  const std::uintptr_t end = address + size_bytes;
  for (auto at = at_or_before(address); at != mappings_.end() && at->first < end; ++at)
    if (is_asleep(at->second)) return true;
  return false;
}

void SleepingBackend::check_awake(const void* address, std::uint64_t size_bytes,
                                  const char* call) const {
  if (touches_sleep(reinterpret_cast<std::uintptr_t>(address), size_bytes))
    raise<DeviceError>("{}({}): memory \"{}\" is asleep; wake it first", call, address, tag_);
}

std::vector<std::uint8_t> SleepingBackend::read(const Pages& pages) {
  for (const std::uintptr_t address : pages.addresses) {
    if (!mappings_.at(address).accessible) continue;
    std::vector<std::uint8_t> contents(pages.size_bytes);
    const Stream stream{device(), 0};
    driver_.copy(contents.data(), reinterpret_cast<void*>(address), contents.size(), stream);
    driver_.synchronize(stream);
    return contents;
  }
  return {};
}

// The first `count` of their addresses. False: out of memory, and none is mapped.
bool SleepingBackend::map_again(const Pages& pages, PageHandle fresh, std::size_t count) {
  std::size_t mapped = 0;
  const auto undo = [&] {
    while (mapped > 0)
      ignore_refusal([&] { driver_.unmap(pages.addresses[--mapped], fresh); });
  };
  try {
    while (mapped < count) {
      const std::uintptr_t address = pages.addresses[mapped];
      if (!driver_.map(address, fresh)) return undo(), false;
      ++mapped;
      if (mappings_.at(address).accessible && !driver_.set_access(address, pages.size_bytes))
        return undo(), false;
    }
  } catch (...) {
    undo();
    throw;
  }
  return true;
}

void SleepingBackend::put_to_sleep(Pages& pages, SleepLevel level) {
  std::vector<std::uint8_t> contents;
  if (level == SleepLevel::kToHost) contents = read(pages);
  std::size_t unmapped = 0;
  try {
    for (; unmapped < pages.addresses.size(); ++unmapped)
      driver_.unmap(pages.addresses[unmapped], pages.driver);
    if (!pages.released) driver_.release_pages(pages.driver);
  } catch (...) {
    ignore_refusal([&] { map_again(pages, pages.driver, unmapped); });
    throw;
  }
  pages.contents = std::move(contents);
  pages.driver = {};
}

// Memory behind the pages' addresses, with their contents. False: out of memory, and they sleep on.
bool SleepingBackend::back(Pages& pages) {
  const auto fresh = driver_.create_pages(pages.size_bytes);
  if (!fresh) return false;
  std::size_t mapped = 0;
  try {
    if (!map_again(pages, *fresh, pages.addresses.size())) {
      driver_.release_pages(*fresh);
      return false;
    }
    mapped = pages.addresses.size();
    if (!pages.contents.empty()) {
      const Stream stream{device(), 0};
      for (const std::uintptr_t address : pages.addresses) {
        if (!mappings_.at(address).accessible) continue;
        driver_.copy(reinterpret_cast<void*>(address), pages.contents.data(),
                     pages.contents.size(), stream);
        driver_.synchronize(stream);
        break;
      }
    }
  } catch (...) {
    while (mapped > 0)
      ignore_refusal([&] { driver_.unmap(pages.addresses[--mapped], *fresh); });
    ignore_refusal([&] { driver_.release_pages(*fresh); });
    throw;
  }
  pages.contents = {};
  pages.driver = *fresh;
  if (pages.released) driver_.release_pages(*fresh);
  return true;
}

// Calls `change` with all pages; it returns true for changed pages. Calls the listeners with these
// even if a later call of `change` throws.
template <typename Change>
std::uint64_t SleepingBackend::change_all(SleepChange::What what, Change&& change) {
  SleepChange all{what, device(), tag_, {}};
  std::uint64_t bytes = 0;
  const auto report = [&] {
    if (all.pieces.empty()) return;
    std::sort(all.pieces.begin(), all.pieces.end(),
              [](const auto& a, const auto& b) { return a.base < b.base; });
    std::vector<SleepChange::Piece> joined;
    for (const SleepChange::Piece& piece : all.pieces) {
      if (joined.empty() || piece.base != joined.back().base + joined.back().size_bytes) {
        joined.push_back(piece);
        continue;
      }
      joined.back().size_bytes += piece.size_bytes;
      joined.back().memory_bytes += piece.memory_bytes;
    }
    all.pieces = std::move(joined);
    report_sleep(all);
  };
  try {
    const std::lock_guard lock(mutex_);
    if (what != SleepChange::What::kWoke) driver_.synchronize();  // unmapping waits for no stream
    for (auto& [id, pages] : pages_) {
      if (!change(pages)) continue;
      bytes += pages.size_bytes;
      if (pages.addresses.empty()) all.pieces.push_back({0, 0, pages.size_bytes});
      for (std::size_t i = 0; i < pages.addresses.size(); ++i)
        all.pieces.push_back({pages.addresses[i], pages.size_bytes, i == 0 ? pages.size_bytes : 0});
    }
  } catch (...) {
    report();
    throw;
  }
  report();
  return bytes;
}

namespace {

SleepChange::What what_of(SleepLevel level) {
  return level == SleepLevel::kToHost ? SleepChange::What::kToHost : SleepChange::What::kDropped;
}

}  // namespace

std::uint64_t SleepingBackend::sleep(SleepLevel level) {
  if (level == SleepLevel::kToHost && !limits_.has_real_memory)
    raise<DeviceError>("sleep: {} has no contents to copy; sleep \"{}\" by kDrop",
                       to_string(device()), tag_);
  return change_all(what_of(level), [&](Pages& pages) {
    if (pages.driver.id == 0) return false;
    put_to_sleep(pages, level);
    return true;
  });
}

std::uint64_t SleepingBackend::sleep_segment(const void* address, SleepLevel level) {
  const Pages* wanted = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto mapping = at_or_before(at);
    if (mapping == mappings_.end() || mapping->first > at)
      raise<InvalidArgument>("sleep_segment({}): no memory of \"{}\"", address, tag_);
    wanted = &pages_.at(mapping->second.pages);
  }
  return change_all(what_of(level), [&](Pages& pages) {
    if (&pages != wanted || pages.driver.id == 0) return false;
    put_to_sleep(pages, level);
    return true;
  });
}

// Wakes until the driver refuses; *refused_bytes is then the size of the pages that it refused.
std::uint64_t SleepingBackend::wake_what_fits(std::uint64_t* refused_bytes) {
  *refused_bytes = 0;
  return change_all(SleepChange::What::kWoke, [&](Pages& pages) {
    if (pages.driver.id != 0 || *refused_bytes != 0) return false;
    if (back(pages)) return true;
    *refused_bytes = pages.size_bytes;
    return false;
  });
}

std::uint64_t SleepingBackend::wake() {
  std::uint64_t refused_bytes = 0;
  std::uint64_t woken = wake_what_fits(&refused_bytes);
  ShortageHandler* const above = shortage_handler();
  if (refused_bytes != 0 && above != nullptr && above->relieve(driver_))
    woken += wake_what_fits(&refused_bytes);
  if (refused_bytes == 0) return woken;
  OutOfMemoryDetails details;
  details.allocator = fmt::format("waking \"{}\"", tag_);
  details.device = to_string(device());
  details.requested_bytes = refused_bytes;
  details.limit_bytes = driver_.total_bytes();
  if (above != nullptr) details.idle = above->holders(driver_);
  details.advice = "what is awake stays awake; free memory and wake again";
  throw OutOfMemory(std::move(details));
}

void SleepingBackend::copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) {
  const std::lock_guard lock(mutex_);
  check_awake(dest, size_bytes, "copy");
  check_awake(src, size_bytes, "copy");
  driver_.copy(dest, src, size_bytes, stream);
}

void SleepingBackend::fill(void* dest, std::uint8_t value, std::uint64_t size_bytes,
                           Stream stream) {
  const std::lock_guard lock(mutex_);
  check_awake(dest, size_bytes, "fill");
  driver_.fill(dest, value, size_bytes, stream);
}

void SleepingBackend::purge(void* data, std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  if (!touches_sleep(reinterpret_cast<std::uintptr_t>(data), size_bytes))
    driver_.purge(data, size_bytes);
}

std::uint64_t SleepingBackend::bytes(bool asleep) const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [id, pages] : pages_)
    if ((pages.driver.id == 0) == asleep) sum += pages.size_bytes;
  return sum;
}

std::uint64_t SleepingBackend::sleeping_bytes() const { return bytes(true); }
std::uint64_t SleepingBackend::awake_bytes() const { return bytes(false); }

std::uint64_t SleepingBackend::host_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [id, pages] : pages_) sum += pages.contents.size();
  return sum;
}

std::uint64_t sleep(const std::string& tag, SleepLevel level) {
  return for_tag(tag, [&](SleepingBackend& backend) { return backend.sleep(level); });
}

std::uint64_t wake(const std::string& tag) {
  return for_tag(tag, [](SleepingBackend& backend) { return backend.wake(); });
}

}  // namespace tenon
