// What the handles stand for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "handles.h"
#include "tenon/base/pointer_map.h"
#include "tenon/device/backend.h"
#include "tenon/heap/plan.h"
#include "tenon/lab/advice/torch_settings.h"
#include "tenon/memory/device_allocator.h"
#include "tenon/tenon.h"
#include "tenon/trace/recording_scope.h"
#include "tenon/trace/snapshot.h"

namespace tenon::c {

class AllocatorObject;

class BackendObject final : public Object {
 public:
  static constexpr Kind kKind = Kind::kBackend;
  explicit BackendObject(std::unique_ptr<Backend> owned)
      : Object(kKind), owned_(std::move(owned)), backend_(*owned_) {}
  // The process's own: never destroyed.
  explicit BackendObject(Backend& shared) : Object(kKind), backend_(shared) {}

  Backend& backend() { return backend_; }
  // Throws InUse, or std::invalid_argument for what is the process's own.
  void require_unused() const;

  void create_stream(std::uint32_t& out);
  void destroy_stream(std::uint32_t stream);
  // Throws std::invalid_argument when there is no such stream.
  Stream stream(std::uint32_t id) const;

  void add(AllocatorObject& allocator);
  void remove(AllocatorObject& allocator);

 private:
  const std::unique_ptr<Backend> owned_;
  Backend& backend_;
  mutable std::mutex mutex_;  // the rest
  std::set<std::uint32_t> streams_;
  std::set<AllocatorObject*> allocators_;
};

class AllocatorObject final : public Object {
 public:
  static constexpr Kind kKind = Kind::kAllocator;
  AllocatorObject(BackendObject& backend, const char* policy,
                  const tenon_allocator_options* options);
  ~AllocatorObject() override { backend_.remove(*this); }

  DeviceAllocator& allocator() { return *allocator_; }
  BackendObject& backend() { return backend_; }

  void* allocate(std::uint64_t size_bytes, std::uint32_t stream);
  void free(void* data);
  void record_stream(void* data, std::uint32_t stream);

  // The block leaves the books until the function that is returned frees it. Throws InvalidPointer.
  DataPtr export_block(void* data, std::uint64_t least_bytes);
  void exported_block_ended();

  void observers_changed(int by);
  void observer_calls_changed(int by) { observer_calls_ += by; }
  void require_unused() const;  // throws InUse
  bool has_used(std::uint32_t stream) const;

 private:
  struct Block {  // what DataPtr::release_context gave, and what is needed to make one again
    void* context = nullptr;
    DeleterFn deleter = nullptr;
    std::uint64_t size_bytes = 0;
  };
  DataPtr take(void* data, std::uint64_t least_bytes);

  BackendObject& backend_;
  Plan plan_;
  std::unique_ptr<DeviceAllocator> allocator_;
  mutable std::mutex mutex_;  // the rest
  PointerMap<Block> blocks_;
  std::uint64_t exported_ = 0;
  int observers_ = 0;
  std::atomic<int> observer_calls_ = 0;  // in progress
  std::set<std::uint32_t> streams_;  // that requests named, but for 0
};

class ObserverObject final : public Object, public Observer {
 public:
  static constexpr Kind kKind = Kind::kObserver;
  ObserverObject(AllocatorObject& allocator, tenon_event_function function, void* context);
  ~ObserverObject() override;
  void on_memory_event(const MemoryEventInfo& info) override;

 private:
  AllocatorObject& allocator_;
  const tenon_event_function function_;
  void* const context_;
};

class RecordingObject final : public Object {
 public:
  static constexpr Kind kKind = Kind::kRecording;
  explicit RecordingObject(const char* path) : Object(kKind), scope_(path) {}
  void finish() { scope_.finish(); }

 private:
  RecordingScope scope_;
};

class TracesObject final : public Object {
 public:
  static constexpr Kind kKind = Kind::kTraces;
  explicit TracesObject(const char* path);

  const std::string& path() const { return path_; }
  const Snapshot& snapshot() const { return snapshot_; }
  const Trace& trace(std::size_t index) const;  // throws std::invalid_argument
  // The PyTorch that was named; nothing: what the file tells.
  const std::optional<TorchVersion>& torch() const { return torch_; }
  void follow(TorchVersion version);
  void keep(std::size_t index);  // throws std::invalid_argument

 private:
  const std::string path_;
  Snapshot snapshot_;
  std::optional<TorchVersion> torch_;
};

}  // namespace tenon::c
