#ifndef DAEMON_POOL_SLAB_IDS_H_
#define DAEMON_POOL_SLAB_IDS_H_

#include <cstdint>
#include <vector>

namespace fineserve::slab {

// Indices are separate types, so that one cannot be mistaken for another.
enum class SlabId : uint32_t {};    // 0 … slab_count - 1
enum class EngineId : uint32_t {};  // from 1, never reused within an epoch
enum class LeaseId : uint32_t {};   // from 1, never reused within an epoch

inline constexpr EngineId kNoEngine{0};

template <typename Id>
constexpr uint32_t Number(Id id) {
  return static_cast<uint32_t>(id);
}

// Slabs 0 … count - 1.
inline std::vector<SlabId> FirstSlabs(uint32_t count) {
  std::vector<SlabId> slabs;
  for (uint32_t i = 0; i < count; ++i) slabs.push_back(SlabId{i});
  return slabs;
}

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_SLAB_IDS_H_
