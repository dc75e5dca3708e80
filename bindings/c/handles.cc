#include "handles.h"

#include <fmt/format.h>

#include <new>

#include "status.h"
#include "tenon/base/hash.h"

namespace tenon::c {

constinit std::atomic<Handles::Slot*> Handles::chunks_[Handles::kChunks]{};
constinit std::mutex Handles::mutex_;
constinit std::uint64_t Handles::count_ = 0;

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kBackend: return "backend";
    case Kind::kAllocator: return "allocator";
    case Kind::kObserver: return "observer";
    case Kind::kRecording: return "recording";
    case Kind::kTraces: return "file of traces";
  }
  return "object";
}

std::uint64_t Handles::handle_of(std::uint32_t serial, Kind kind) {
  const std::uint64_t word = mix64(std::uint64_t{serial} * 8 + static_cast<std::uint64_t>(kind));
  return word << 32 | serial;
}

Handles::Slot* Handles::slot_of(std::uint64_t handle, Kind kind) {
  const auto serial = static_cast<std::uint32_t>(handle);
  if (serial / kChunk >= kChunks || handle_of(serial, kind) != handle) return nullptr;
  Slot* const chunk = chunks_[serial / kChunk].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : &chunk[serial % kChunk];
}

std::uint64_t Handles::add(std::unique_ptr<Object> object) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t serial = count_ + 1;  // 0 is no handle
  if (serial / kChunk >= kChunks) throw std::bad_alloc();
  std::atomic<Slot*>& chunk = chunks_[serial / kChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr)
    chunk.store(new Slot[kChunk](), std::memory_order_release);
  count_ = serial;
  const std::uint64_t handle = handle_of(static_cast<std::uint32_t>(serial), object->kind());
  chunk.load(std::memory_order_relaxed)[serial % kChunk].store(object.release(),
                                                               std::memory_order_release);
  return handle;
}

Object& Handles::find_object(std::uint64_t handle, Kind kind) {
  Slot* const slot = slot_of(handle, kind);
  Object* const object = slot == nullptr ? nullptr : slot->load(std::memory_order_acquire);
  if (object == nullptr)
    throw InvalidHandle(fmt::format(
        "{} is no {}: it is of another kind, was destroyed, or was never given out", handle,
        kind_name(kind)));
  return *object;
}

std::unique_ptr<Object> Handles::take_object(std::uint64_t handle, Kind kind) {
  find_object(handle, kind);  // throws
  return std::unique_ptr<Object>(slot_of(handle, kind)->exchange(nullptr));
}

}  // namespace tenon::c
