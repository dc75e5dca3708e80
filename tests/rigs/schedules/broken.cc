#include "rigs/schedules/broken.h"

#include <fmt/format.h>

#include <array>

#include "tenon/base/error.h"
#include "tenon/device/forwarding_backend.h"
#include "tenon/memory/adaptors/adaptor.h"

namespace tenon {
namespace {

struct Names {
  Breakage breakage;
  const char* name;
  const char* key;
};

constexpr std::array<Names, 6> kNames = {{
    {Breakage::kNone, "as it is", "none"},
    {Breakage::kOneStream, "one stream for all", "one-stream"},
    {Breakage::kLostRecordStream, "lost record_stream", "lost-record-stream"},
    {Breakage::kEarlyEvents, "events taken for complete", "early-events"},
    {Breakage::kLostStreamWait, "lost stream waits", "lost-stream-wait"},
    {Breakage::kLostHostWait, "lost host waits", "lost-host-wait"},
}};

// Says what gets lost, and counts it.
class Loss {
 public:
  Loss(Breakage breakage, std::uint64_t* count) : breakage_(breakage), count_(count) {}
  bool of(Breakage which) {
    if (which != breakage_) return false;
    ++*count_;
    return true;
  }

 private:
  Breakage breakage_;
  std::uint64_t* count_;
};

class BrokenDriver final : public ForwardingBackend {
 public:
  BrokenDriver(Backend& driver, Loss loss) : ForwardingBackend(driver), loss_(loss) {}

  bool query(Event event) override {
    return driver_.query(event) || loss_.of(Breakage::kEarlyEvents);
  }
  void stream_wait(Stream stream, Event event) override {
    if (!loss_.of(Breakage::kLostStreamWait)) driver_.stream_wait(stream, event);
  }
  void wait(Event event) override {
    if (!loss_.of(Breakage::kLostHostWait)) driver_.wait(event);
  }
  void synchronize(Stream stream) override {
    if (!loss_.of(Breakage::kLostHostWait)) driver_.synchronize(stream);
  }
  void synchronize() override {
    if (!loss_.of(Breakage::kLostHostWait)) driver_.synchronize();
  }

 private:
  Loss loss_;
};

class BrokenAllocator final : public Adaptor<DeviceAllocator> {
 public:
  BrokenAllocator(DeviceAllocator& upstream, Loss loss) : Adaptor(upstream), loss_(loss) {}

  void record_stream(const DataPtr& data, Stream stream) override {
    if (!loss_.of(Breakage::kLostRecordStream)) Adaptor::record_stream(data, stream);
  }

 protected:
  std::string adaptor_name() const override { return "broken"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    const bool mistaken = stream.id != 0 && loss_.of(Breakage::kOneStream);
    const Stream taken = mistaken ? Stream{device(), 0} : stream;
    return wrap(from_upstream(size_bytes, taken), size_bytes, stream);
  }

 private:
  Loss loss_;
};

}  // namespace

const std::vector<Breakage>& breakages() {
  static const std::vector<Breakage> kAll = {Breakage::kOneStream, Breakage::kLostRecordStream,
                                             Breakage::kEarlyEvents, Breakage::kLostStreamWait,
                                             Breakage::kLostHostWait};
  return kAll;
}

const char* name_of(Breakage breakage) {
  return kNames[static_cast<std::size_t>(breakage)].name;
}

const char* key_of(Breakage breakage) { return kNames[static_cast<std::size_t>(breakage)].key; }

Breakage find_breakage(std::string_view key) {
  std::string known;
  for (const Names& names : kNames) {
    if (names.key == key) return names.breakage;
    known += (known.empty() ? "" : ", ") + std::string(names.key);
  }
  throw InvalidArgument(fmt::format("\"{}\" is no breakage: they are {}", key, known));
}

std::unique_ptr<Backend> broken_driver(Backend& driver, Breakage breakage, std::uint64_t* lost) {
  return std::make_unique<BrokenDriver>(driver, Loss(breakage, lost));
}

std::unique_ptr<DeviceAllocator> broken_allocator(DeviceAllocator& allocator, Breakage breakage,
                                                  std::uint64_t* lost) {
  return std::make_unique<BrokenAllocator>(allocator, Loss(breakage, lost));
}

}  // namespace tenon
