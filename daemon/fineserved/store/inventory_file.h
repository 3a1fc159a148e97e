#ifndef DAEMON_FINESERVED_STORE_INVENTORY_FILE_H_
#define DAEMON_FINESERVED_STORE_INVENTORY_FILE_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/inventory.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::store {

// Returns a sealed list of copies in `files` files
// (daemon/contract/abi/inventory.h). ResourceExhausted if the kernel refuses
// one.
absl::StatusOr<driver::Descriptor> WriteInventory(
    size_t files, const std::vector<abi::InventoryEntry>& entries);

// Returns the entries of a list that came with `files` files; each entry names
// one of these files. InvalidArgument if it is not such a list.
absl::StatusOr<std::vector<abi::InventoryEntry>> ReadInventory(int list,
                                                               size_t files);

}  // namespace fineserve::store

#endif  // DAEMON_FINESERVED_STORE_INVENTORY_FILE_H_
