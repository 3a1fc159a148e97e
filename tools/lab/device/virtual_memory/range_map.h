#ifndef TOOLS_LAB_DEVICE_VIRTUAL_MEMORY_RANGE_MAP_H_
#define TOOLS_LAB_DEVICE_VIRTUAL_MEMORY_RANGE_MAP_H_

// Searches in maps of ranges, which are ordered by first address and do not
// overlap. A map's value is the number of bytes, or has a member `bytes`.

#include <cstdint>
#include <iterator>

namespace fineserve::emucuda {

// Returns the last range that starts at or before `address`, or end().
template <typename Map>
auto AtOrBefore(Map& ranges, uint64_t address) {
  const auto next = ranges.upper_bound(address);
  return next == ranges.begin() ? ranges.end() : std::prev(next);
}

inline uint64_t BytesOf(uint64_t bytes) { return bytes; }
template <typename Range>
uint64_t BytesOf(const Range& range) {
  return range.bytes;
}

// Returns the range that contains `address`, or end().
template <typename Map>
auto Around(Map& ranges, uint64_t address) {
  const auto found = AtOrBefore(ranges, address);
  return found != ranges.end() &&
                 address - found->first < BytesOf(found->second)
             ? found
             : ranges.end();
}

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_VIRTUAL_MEMORY_RANGE_MAP_H_
