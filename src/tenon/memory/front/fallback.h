// An allocator behind another one, for what that one cannot serve.
#pragma once

#include <memory>
#include <utility>

#include "tenon/memory/device_allocator.h"

namespace tenon {

// Holds the allocator behind and passes its events on, so that an observer of the one in front
// sees every block. Its failures are the front's to report and are not passed on.
class Fallback final : private Observer {
 public:
  Fallback(std::unique_ptr<DeviceAllocator> allocator, ObserverList& front)
      : allocator_(std::move(allocator)), front_(front) {
    end_idle_cache_of(*allocator_);  // the front's empties it
    allocator_->observers().share_lock(front);
    allocator_->observers().add(this);
  }
  ~Fallback() override { allocator_->observers().remove(this); }
  Fallback(const Fallback&) = delete;
  Fallback& operator=(const Fallback&) = delete;

  DeviceAllocator& allocator() const { return *allocator_; }

 private:
  void on_memory_event(const MemoryEventInfo& info) override {
    if (info.event == MemoryEvent::kAllocationFailed) return;
    front_.report(info.event, info.data, info.size_bytes, info.stream);
  }

  std::unique_ptr<DeviceAllocator> allocator_;
  ObserverList& front_;
};

}  // namespace tenon
