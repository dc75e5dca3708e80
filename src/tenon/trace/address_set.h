// A set of addresses, in ranges.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace tenon {

// O(log ranges) for each range that a call meets.
class AddressSet {
 public:
  void add(std::uint64_t begin, std::uint64_t end) {
    remove(begin, end);
    if (begin < end) ends_[begin] = end;
  }
  void remove(std::uint64_t begin, std::uint64_t end) {
    auto at = ends_.lower_bound(begin);
    if (at != ends_.begin() && std::prev(at)->second > begin) --at;
    while (at != ends_.end() && at->first < end) {
      const auto [first, last] = *at;
      at = ends_.erase(at);
      if (first < begin) ends_[first] = begin;
      if (last > end) ends_[end] = last;
    }
  }
  bool contains(std::uint64_t address) const {
    const auto after = ends_.upper_bound(address);
    return after != ends_.begin() && address < std::prev(after)->second;
  }
  // Whether all of them are in it, in however many ranges.
  bool contains(std::uint64_t begin, std::uint64_t end) const {
    while (begin < end) {
      const auto after = ends_.upper_bound(begin);
      if (after == ends_.begin() || std::prev(after)->second <= begin) return false;
      begin = std::prev(after)->second;
    }
    return true;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // by beginning
};

}  // namespace tenon
