#ifndef DAEMON_CONTRACT_ABI_INVENTORY_H_
#define DAEMON_CONTRACT_ABI_INVENTORY_H_

// An inventory lists the allocations of a process that the daemon's store has
// copied, and where the copies are. The daemon creates its memory and seals it
// against writers. The process reads the inventory to find its bytes, and hands
// it to the next daemon together with the store's files (design note 0039).
// libc only.

#include <cstdint>

namespace fineserve::abi {

inline constexpr uint64_t kInventoryMagic = 0x3156494e5653'4631;
// Limit on the store's files that one process's copies are spread over.
inline constexpr uint32_t kMostStoreFiles = 8;

struct InventoryHeader {
  uint64_t magic;
  uint32_t files;
  uint32_t count;  // of entries, which follow
};

struct InventoryEntry {
  uint32_t number;  // of the allocation, by the process
  uint32_t file;    // among those that come with the inventory
  uint64_t offset;
  uint64_t bytes;
  uint64_t print[2];  // fingerprint, low and high half
};
static_assert(sizeof(InventoryHeader) == 16 && sizeof(InventoryEntry) == 40);

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_INVENTORY_H_
