#ifndef DAEMON_FINESERVED_STORE_CARRIER_H_
#define DAEMON_FINESERVED_STORE_CARRIER_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/fineserved/store/pinned_range.h"
#include "daemon/fineserved/store/store_file.h"
#include "daemon/fineserved/store/transfer.h"
#include "kernels/driver/driver.h"

namespace fineserve::store {

// Copies from other daemons' stores to other GPUs, over this GPU's link to the
// host and from this GPU to the other one (design note 0039). A copy that it
// has carried once stays registered while another daemon or an engine needs it,
// because the engine may leave and come back again. The context must be current
// in each call and in the destructor.
class Carrier {
 public:
  Carrier(const driver::Driver& driver, driver::CUdevice device)
      : driver_(driver), device_(device) {}

  // Copies [offset, offset + bytes) of a transfer, and returns when the copy is
  // no longer under way. After Aborted, it may still be. After any other error
  // it is not, and a part may have been written. FailedPrecondition: no direct
  // link connects the two GPUs, so this would not be faster.
  absl::Status Carry(const Transfer& whole, uint64_t offset, uint64_t bytes,
                     driver::CUstream stream);

  bool is_empty() const { return copies_.empty(); }
  // Releases copies that no other daemon and no engine needs. Call it now and
  // then, because the driver holds their memory until then. True if some were
  // released, so that there may be others.
  bool LetGoUnneeded();
  void Clear() { copies_.clear(); }

 private:
  struct Copy {
    std::shared_ptr<StoreFile> file;
    FileRange range;
    std::map<std::pair<uint64_t, uint64_t>, PinnedRange> pinned = {};
  };
  absl::StatusOr<Copy*> Find(const Transfer& whole);
  absl::Status CopyPart(Copy* copy, const FileRange& part,
                        driver::CUdeviceptr to, driver::CUstream stream);
  bool Reaches(driver::CUmemGenericAllocationHandle memory) const;

  const driver::Driver driver_;
  const driver::CUdevice device_;
  // Keyed by the file's inode and the copy's offset in the file.
  std::map<std::pair<ino_t, uint64_t>, Copy> copies_;
};

}  // namespace fineserve::store

#endif  // DAEMON_FINESERVED_STORE_CARRIER_H_
