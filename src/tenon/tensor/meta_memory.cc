#include "tenon/tensor/meta_memory.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace tenon {

// Storages by number, and their comings and goings in order.
struct MetaMemory::Books {
  struct Event {
    std::size_t storage;
    bool is_end;
  };

  std::mutex mutex;
  std::vector<SymInt> sizes;
  std::vector<Event> events;
};

namespace {

thread_local std::shared_ptr<MetaMemory::Books> counting;

// The context of a storage's block.
struct MetaEntry {
  std::shared_ptr<MetaMemory::Books> books;
  std::size_t storage;
};

void end(void* context) {
  const std::unique_ptr<MetaEntry> entry(static_cast<MetaEntry*>(context));
  const std::lock_guard lock(entry->books->mutex);
  entry->books->events.push_back({entry->storage, true});
}

}  // namespace

MetaMemory::MetaMemory() : books_(std::make_shared<Books>()), outer_(std::move(counting)) {
  counting = books_;
}
MetaMemory::~MetaMemory() { counting = outer_; }

SymInt MetaMemory::allocated() const {
  const std::lock_guard lock(books_->mutex);
  SymInt sum;
  for (const SymInt& size : books_->sizes) sum = sum + size;
  return sum;
}

SymInt MetaMemory::live() const {
  const std::lock_guard lock(books_->mutex);
  SymInt sum;
  for (const auto& [storage, is_end] : books_->events)
    sum = is_end ? sum - books_->sizes[storage] : sum + books_->sizes[storage];
  return sum;
}

std::int64_t MetaMemory::peak(const std::map<std::string, std::int64_t>& sizes) const {
  const std::lock_guard lock(books_->mutex);
  std::int64_t live = 0, peak = 0;
  for (const auto& [storage, is_end] : books_->events) {
    const std::int64_t bytes = books_->sizes[storage].evaluate(sizes);
    live += is_end ? -bytes : bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

DataPtr detail::meta_block(const SymInt& size_bytes, Device device) {
  if (counting == nullptr) return DataPtr(device);
  const std::lock_guard lock(counting->mutex);
  auto entry = std::make_unique<MetaEntry>(MetaEntry{counting, counting->sizes.size()});
  counting->sizes.push_back(size_bytes);
  counting->events.push_back({entry->storage, false});
  return DataPtr(nullptr, entry.release(), &end, device);
}

void detail::meta_block_resized(const DataPtr& block, const SymInt& size_bytes) {
  const auto* entry = block.cast_context<MetaEntry>(&end);
  if (entry == nullptr) return;
  const std::lock_guard lock(entry->books->mutex);
  entry->books->sizes[entry->storage] = size_bytes;
}

}  // namespace tenon
