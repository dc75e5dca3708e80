// Rows of plain memory for NumPy: the buffer protocol over what C++ keeps, without a copy.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace tenon::python {

// Equal records one behind the other, read-only. `owner` keeps them where they are, and an exported
// buffer keeps the Rows.
struct Rows {
  std::shared_ptr<const void> owner;
  const void* data = nullptr;
  std::size_t count = 0;
  std::size_t item_bytes = 0;
};

// The elements of a vector that `owner` owns.
template <typename T>
Rows rows_of(std::shared_ptr<const void> owner, const std::vector<T>& items) {
  return {std::move(owner), items.data(), items.size(), sizeof(T)};
}

// A vector's own rows.
template <typename T>
Rows rows_of(std::vector<T> items) {
  auto owned = std::make_shared<const std::vector<T>>(std::move(items));
  const std::vector<T>& kept = *owned;
  return rows_of(std::move(owned), kept);
}

void bind_rows(nanobind::module_& module);

}  // namespace tenon::python
