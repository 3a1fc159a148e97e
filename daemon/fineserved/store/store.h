#ifndef DAEMON_FINESERVED_STORE_STORE_H_
#define DAEMON_FINESERVED_STORE_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/abi/inventory.h"
#include "daemon/contract/metrics/snapshot.h"
#include "daemon/fineserved/store/carrier.h"
#include "daemon/fineserved/store/contents.h"
#include "daemon/fineserved/store/fill_queue.h"
#include "daemon/fineserved/store/pinned_range.h"
#include "daemon/fineserved/store/store_file.h"
#include "daemon/fineserved/store/transfer.h"
#include "kernels/driver/driver.h"
#include "kernels/driver/driver_handles.h"
#include "kernels/fingerprint_kernel.h"

namespace fineserve::store {

// The result of Keep: what the process holds while it is out, and afterwards.
struct Kept {
  uint64_t copied_bytes = 0;              // the others were there
  driver::Descriptor inventory;           // daemon/contract/abi/inventory.h
  std::vector<driver::Descriptor> files;  // that the inventory names
};

// A daemon's copies with which engines have left, for the other daemons of this
// machine: the files, and a list of the copies. The entries' numbers say which
// copies were adopted and not read yet.
struct Offer {
  driver::Descriptor inventory;
  std::vector<driver::Descriptor> files;
};

// Another daemon of the machine.
struct OtherDaemon {
  Offer offer;  // without an inventory: there is none
  std::unique_ptr<Link> link;
};

// The host memory in which one daemon keeps evicted contents by fingerprint. A
// content that this daemon, or another daemon of the machine, already has is
// not copied again, whichever process left it there (design note 0039).
// Confined to one thread; calls take as long as their copies. The processes
// that are out also hold the descriptors of its files, so that the contents
// outlive this daemon.
class Store {
 public:
  Store(const driver::Driver& driver, driver::CUdevice device);
  ~Store();

  // Returns the other daemons, before copies are made; by default there are
  // none.
  using AskOthers = std::function<std::vector<OtherDaemon>()>;
  void SetOthers(AskOthers ask) { ask_others_ = std::move(ask); }

  // Sets how many bytes the store may hold; 0 means what the host has left.
  void SetLimit(uint64_t bytes) { limit_ = bytes; }

  // Takes the GPU memory that the store needs while some is free, because the
  // store is used when none is left. The other calls take it, too.
  absl::Status Prepare();

  // Copies the contents that the store does not have yet. The memory's owner
  // must not write to the memory until it has said whether it has left (Commit
  // or Cancel). After an error nothing has changed.
  absl::StatusOr<Kept> Keep(HolderId holder, std::vector<Handed> memory);
  // Begins to fill memory that a process has made for its copies; it may be
  // called again for further memory. FinishFill returns when all of that memory
  // has been filled and checked, or the first error. DataLoss if a copy is no
  // longer what was copied: then the process must not continue with it. Commit,
  // Return and Forget end what was begun.
  void Fill(HolderId holder, uint32_t order, std::vector<Handed> memory);
  // `total` is how many allocations were handed over with that order; otherwise
  // it fails.
  absl::Status FinishFill(HolderId holder, uint32_t order, uint32_t total);
  // Copies a part of another daemon's copy to another GPU's memory
  // (Carrier::Carry). Unavailable unless Prepare got its memory.
  absl::Status Carry(const Transfer& whole, uint64_t offset, uint64_t bytes);
  // Does the work that is due between other calls. Returns in how many ms to
  // call it again; -1 if there is nothing to do.
  int Tend();
  // Compares the fingerprints of the first and the second memory, the third and
  // the fourth, and so on. FailedPrecondition unless each pair is equal. None
  // of the memory may be written until it returns.
  absl::Status Compare(const std::vector<Handed>& memory);
  // Called when the connection that handed over the memory is gone.
  void DropFill(HolderId holder, uint32_t order);
  void Commit(HolderId holder);
  void Cancel(HolderId holder);
  void Return(HolderId holder);
  void Forget(HolderId holder);

  // Takes over what a process holds of a former daemon's store. A copy whose
  // bytes do not match their fingerprint is not offered to others.
  absl::Status Adopt(HolderId holder, bool is_out, driver::Descriptor inventory,
                     std::vector<driver::Descriptor> files);

  metrics::StoreFigures figures() const;
  // Returns the offer; call it after other calls. Null if there is nothing to
  // offer, or it cannot be offered.
  std::shared_ptr<const Offer> offer();

 private:
  struct Job;
  struct Filling;
  // Duplicates of the descriptors by which a process locks its copies.
  struct Claims {
    std::vector<driver::Descriptor> held;
    std::vector<driver::Descriptor> pending;
  };
  // Allocations whose contents are not in the store.
  using Missing = std::map<ContentKey, std::vector<size_t>, KeyLess>;
  absl::Status Begin();
  absl::StatusOr<std::vector<kernels::Fingerprint>> Fingerprints(
      const std::vector<kernels::ByteRange>& ranges);
  absl::Status BeginFill(HolderId holder, std::vector<Handed> memory,
                         Filling* filling);
  void Enqueue(Piece whole, const CopyPlace& place, Handed memory,
               Filling* filling);
  absl::Status Check(HolderId holder, const Filling& filling);
  // Returns the indices of the allocations that differ from their copies.
  absl::StatusOr<std::vector<size_t>> Differing(const Filling& filling);
  void DropFilling(HolderId holder);
  absl::Status Rest();
  char* Pinned(const CopyPlace& place);
  absl::Status MatchOrCopy(Job* job);
  absl::StatusOr<bool> Use(Job* job, size_t i, CopyId copy);
  absl::Status MatchOthers(Job* job);
  absl::Status MatchOffer(const Offer& offer, Job* job);
  bool IsBetter(uint32_t file, const std::optional<CopyId>& copy) const;
  absl::Status MakeRoom(uint64_t bytes, const std::vector<CopyId>& keep);
  absl::Status CopyNew(Job* job);
  absl::Status CopyMissing(const Missing& missing, Job* job);
  absl::StatusOr<bool> IsSame(driver::CUdeviceptr memory, CopyId copy);
  bool HasItsFingerprint(CopyId copy) const;
  absl::StatusOr<Kept> ClaimCopies(const Job& job);
  uint32_t FileOf(int file);
  std::optional<CopyId> AdoptCopy(const abi::InventoryEntry& entry,
                                  bool is_checked);
  uint64_t Limit() const;
  // Frees copies. A copy that another daemon or a process still needs stays;
  // its last user frees it.
  void Free(const Contents::Freed& freed);
  static void Unclaim(std::vector<driver::Descriptor>* claims);
  // Takes ownership of the files whose owner has ended.
  void OwnFiles();
  // Frees, in files that this daemon owns, what no daemon and no process needs.
  void FreeUnlocked();
  // Closes other daemons' files that contain no copy known here.
  void CloseUnused();
  absl::Status TakeOver(HolderId holder, bool is_out,
                        const driver::Descriptor& inventory,
                        std::vector<driver::Descriptor> files);
  absl::StatusOr<std::shared_ptr<const Offer>> MakeOffer() const;

  const driver::Driver driver_;
  const driver::CUdevice device_;
  uint64_t limit_ = 0;
  // These exist from the first Keep or Fill on; the last is destroyed first.
  std::optional<driver::Context> context_;
  std::optional<kernels::FingerprintKernel> kernel_;
  std::vector<StoreFile> files_;
  std::set<uint32_t> owned_;          // of these
  std::optional<uint32_t> own_file_;  // that new copies go to
  Contents contents_;
  std::map<HolderId, Claims> claims_;
  AskOthers ask_others_ = [] { return std::vector<OtherDaemon>(); };
  std::shared_ptr<const Offer> offer_;
  bool is_offer_old_ = false;
  // Keyed by file and offset. The ranges are destroyed before their files.
  std::map<std::pair<uint32_t, uint64_t>, PinnedRange> pinned_;
  driver::CUstream stream_ = nullptr;
  driver::CUdeviceptr digests_ = 0;  // room for all of a process's
  const RealClock clock_;
  std::optional<FillQueue> queue_;  // once there is a stream
  Carrier carrier_;
  // Time of the last search for copies that the carrier may release.
  uint64_t carried_looked_ns_ = 0;
  bool prepared_ = false;
  bool warned_ = false;  // that memory cannot be registered
  std::map<HolderId, Filling> fillings_;
  std::set<CopyId> unchecked_;  // adopted; their bytes were not read yet
  uint64_t copied_bytes_ = 0;
  uint64_t found_bytes_ = 0;
};

}  // namespace fineserve::store

#endif  // DAEMON_FINESERVED_STORE_STORE_H_
