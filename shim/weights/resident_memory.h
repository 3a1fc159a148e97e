#ifndef SHIM_WEIGHTS_RESIDENT_MEMORY_H_
#define SHIM_WEIGHTS_RESIDENT_MEMORY_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/move_messages.h"
#include "daemon/contract/abi/process_start.h"
#include "daemon/contract/abi/share_messages.h"
#include "kernels/driver/entry_points.h"
#include "shim/host/plain_mutex.h"
#include "shim/host/real_driver.h"
#include "shim/link/scoreboard_writer.h"
#include "shim/map/range_table.h"

namespace fineserve::shim {

// The resident allocations of this process: large ones that are not KV, each
// backed by one exportable handle at an address of its own, so that its memory
// can leave the GPU and come back under that address (design note 0039).
//
//   Allocate ─► here ─Evict─► out ─Activate─► here …
//                 └──────Free──────┘
//
// The caller that evicts or activates has closed the gate and waited for the
// contexts' work (Rest). If anything fails, contents are where they were: a
// copy that fails unmaps nothing; memory that cannot be made or filled leaves
// all of it out, and its copies as they are. An allocation that was handed to
// another process or device (Pin) never leaves. One that other processes have
// open by CUDA's legacy IPC (Lend) leaves if each of them has closed it, has
// ended, or touches it no longer until it has asked for it again (NoteRest).
//
// Parameters are the exception to one handle for each allocation's life (design
// note 0048). The program says which allocations hold nothing else, and that it
// writes none of them (Freeze). Then this process may drop its own copy of one
// and map another process's, read-only, at the same addresses; or others may
// read its copy. It does not do both with one allocation, so that one of the
// two always has its own.
//
//   frozen ─BeginDrop─ Take, Pair ─► paired ─Swap─► dropped
//      ▲                                               │
//      └───────────Swap─── own, equal ◄─PrepareRestore─┘
//
// Swap needs a closed gate, as an eviction does; the rest is done while the
// program works.
//
// Thread-safe; a mutex spans an eviction and an activation, so a Free waits for
// them. Constant-initialised, trivially destroyed. Not for a forked child.
class ResidentMemory {
 public:
  static constexpr size_t kCapacity = abi::kMostAllocations;
  // Smaller ones stay the driver's: a handle is a multiple of its granularity.
  static constexpr uint64_t kLeastBytes = uint64_t{2} << 20;

  using Sum = ResidentSum;

  // Copies to or from host memory: allocations by their numbers, which are
  // never used twice.
  class Carrier {
   public:
    // `memory` is a descriptor of its memory, which the caller closes.
    virtual bool Hand(uint32_t number, uint64_t bytes, int memory) = 0;
    // Returns once all that was handed is copied.
    virtual bool Finish() = 0;

   protected:
    ~Carrier() = default;
  };
  class Copier : public Carrier {
   public:
    // Where the copy is: in which of the files that Activate gets.
    virtual bool Locate(uint32_t number, uint32_t* file, uint64_t* offset) = 0;

   protected:
    ~Copier() = default;
  };

  constexpr ResidentMemory() = default;

  // Makes an allocation of the current context's device. False, with nothing
  // held, if that cannot be: the driver must then answer.
  bool Allocate(const Driver& real, uint64_t bytes, Redirection* out);
  // Frees it, after its context's work if `waits`. After an error it is still
  // the program's.
  driver::CUresult Free(const Driver& real, const Redirection& range,
                        bool waits);
  // From now on it stays on the GPU. False if it is out.
  bool Pin(driver::CUdeviceptr base);
  // From now on none of it leaves, nor what is allocated later.
  void PinAll();

  // Writes number, bytes and check value of an allocation, by which another
  // process may open it. False if it is none of these.
  bool Share(driver::CUdeviceptr base, abi::IpcHandle* out);
  // The program that a process runs.
  struct Borrower {
    pid_t pid = 0;
    uint64_t image = 0;  // ProcessImage
    bool operator==(const Borrower& other) const {
      return pid == other.pid && abi::IsSameImage(image, other.image);
    }
  };
  // The memory behind a handle, as the borrower gets it.
  struct Lent {
    int memory = -1;  // a descriptor, which the caller closes
    uint64_t bytes = 0;
    uint32_t departures = 0;  // of the memory, from the GPU
  };
  // Until the borrower gives it back, or rests, it stays on the GPU. While it
  // is being moved it is away.
  abi::OpenResult Lend(const Driver& real, const abi::IpcHandle& handle,
                       const Borrower& borrower, Lent* lent);
  // The borrower, of this engine, touches it no longer until it has been lent
  // it again. False if it has it not, or
  // it is being moved.
  bool NoteRest(const abi::IpcHandle& handle, const Borrower& borrower);
  void TakeBack(const abi::IpcHandle& handle, const Borrower& borrower);
  // Takes back what processes have or read that have ended. True if others have
  // or read any.
  bool TakeBackFromEnded();

  static constexpr size_t kMostContexts = 64;  // one on each of its devices
  // Waits for the work of each context that has resident memory, and of these
  // others, at most so long. False, with one line in `why`, if it takes longer
  // or a context fails. A wait that takes longer goes on by itself; EndRest is
  // false until it is over, and Rest must not be called before.
  bool Rest(const Driver& real, const driver::CUcontext* others, size_t count,
            int timeout_ms, char* why, size_t why_bytes);
  bool EndRest();

  // Has what moves copied, then releases its memory. CUDA_SUCCESS if nothing
  // was to be moved; CUDA_ERROR_OPERATING_SYSTEM if the copier fails.
  driver::CUresult Evict(const Driver& real, Copier* copier);
  // The copies, and who fills memory from them; null: this process.
  struct Source {
    const int* files;
    uint32_t file_count;
    Carrier* filler;
  };
  // Makes memory, has it filled, and calls `open(range) → CUresult` for each
  // allocation, which gives other devices the access that they had.
  // CUDA_ERROR_OPERATING_SYSTEM if the filler fails: what it was handed is then
  // not used.
  template <typename Open>
  driver::CUresult Activate(const Driver& real, const Source& source,
                            Open open) {
    return ActivateWith(
        real, source,
        [](void* o, const Redirection& range) {
          return (*static_cast<Open*>(o))(range);
        },
        &open);
  }

  // A part of an allocation, as the program names it.
  struct Part {
    driver::CUdeviceptr address;
    uint64_t bytes;
  };
  // From now on those allocations are frozen that these parts cover, in that
  // order, and no others. False if it has dropped its copy, or others read it.
  bool Freeze(const Part* parts, size_t count);
  // Lends no parameters from now on, nor drops any, and is recalled; or may do
  // so again.
  void SetThawing(bool thaws);
  // True if it has its own copy, and no other process reads it.
  bool IsApart();
  void Thaw();

  // For another process, which reads what it gets until EndReading or its end.
  // Returns how many descriptors `memory` has, which the caller closes.
  uint32_t LendParameters(const Driver& real, const Borrower& to,
                          const abi::ReadRequest& request,
                          abi::ReadAnswer* answer,
                          int (&memory)[abi::kLentPerAnswer]);
  void EndReading(const Borrower& reader);
  static constexpr size_t kMostReaders = 8;
  // Returns how many there are.
  size_t Readers(abi::ShareAddress (&out)[kMostReaders]);

  // Returns why this process can drop nothing, or null.
  const char* BeginDrop(const Driver& real);
  // Takes the next frozen allocation after that one, in their order from 0 on,
  // of which this process has its own copy and lends it to none; 0: there is
  // none. It lends it to none until LetGo without a Swap, or a Swap back.
  uint32_t Take(uint32_t after, uint64_t* bytes);
  // It drops that one not after all.
  void Untake(uint32_t frozen);
  uint32_t CountFrozen();
  // Takes another process's memory for that of an allocation that was taken,
  // and hands both over to be compared. Returns why it cannot, "" if that is
  // the carrier's failure, or null.
  const char* Pair(const Driver& real, uint32_t frozen, int memory,
                   Carrier* comparer);
  // Makes memory for what was dropped, and fills it from the other process's.
  driver::CUresult PrepareRestore(const Driver& real);
  // Holds what is mapped where other memory is to be mapped, until LetGo.
  driver::CUresult HoldFormer(const Driver& real);
  enum class Swapped {
    kDone,
    kUndone,  // all is as it was
    kLost,    // and that could not be made good
  };
  // Maps the other process's memory, or, where it has dropped its copy, the new
  // one: all or none. `open`: as Activate's, for the new one. After HoldFormer.
  template <typename Open>
  Swapped Swap(const Driver& real, Open open) {
    return SwapWith(
        real,
        [](void* o, const Redirection& range) {
          return (*static_cast<Open*>(o))(range);
        },
        &open);
  }
  // Lets go of what is not mapped: after a Swap the former memory, which may
  // take the driver long; without one what Pair or PrepareRestore has got.
  void LetGo(const Driver& real);
  // It has dropped copies, and has to restore them.
  bool is_recalled() const {
    return is_recalled_.load(std::memory_order_relaxed);
  }
  void Recall() { is_recalled_.store(true, std::memory_order_relaxed); }

  Sum sum();
  // While it evicts or activates, all others wait.
  bool is_moving() const { return is_moving_.load(std::memory_order_relaxed); }
  bool in_use() const { return in_use_.load(std::memory_order_relaxed); }

 private:
  struct Place {
    Redirection range;
    driver::CUdevice device = 0;
    uint32_t number = 0;
    uint32_t file = 0;    // that its copy is in, if it is out
    uint64_t offset = 0;  // there
    bool is_out = false;
    bool is_pinned = false;
    bool is_shared = false;  // its check value was drawn
    uint32_t loans = 0;      // other processes that have it open
    uint32_t resting = 0;    // of these, which touch it no longer
    uint32_t departures = 0;
    char check[sizeof(abi::IpcHandle::check)] = {};
    uint32_t frozen = 0;      // its number in the program's order; 0: it is not
    uint32_t read_by = 0;     // a bit for each of readers_ that reads it
    bool is_taken = false;    // is to be dropped
    bool is_dropped = false;  // what is mapped is another process's
    // Memory to be mapped in its place, and, until LetGo, what was there.
    driver::CUmemGenericAllocationHandle next = 0;
    driver::CUmemGenericAllocationHandle former = 0;
  };
  struct Loan {
    uint32_t number = 0;  // the allocation's
    Borrower to;
    bool rests = false;
  };
  static constexpr size_t kMostLoans = 4096;
  struct Reader {
    Borrower process;  // pid 0: none
    abi::ShareAddress address = {};
  };
  // Whether a frozen allocation has its own memory, and keeps it.
  static bool HasOwn(const Place& place) {
    return !place.is_taken && !place.is_dropped;
  }
  struct Rests;
  using OpenCall = driver::CUresult (*)(void*, const Redirection&);

  bool Moves(const Place& place) const FINESERVE_REQUIRES(mutex_) {
    return !all_pinned_ && !place.is_out && !place.is_pinned &&
           place.loans == place.resting && !place.is_dropped &&
           place.read_by == 0;
  }
  bool IsCovered(const Place& place, const Part* parts, size_t count) const;
  Place* Frozen(uint32_t number) FINESERVE_REQUIRES(mutex_);
  uint32_t FrozenCount() const FINESERVE_REQUIRES(mutex_);
  abi::ReadResult MayRead() FINESERVE_REQUIRES(mutex_);
  uint32_t ReaderBit(const Borrower& reader, const abi::ShareAddress& at)
      FINESERVE_REQUIRES(mutex_);
  template <typename Ends>
  void EndReaders(Ends ends) FINESERVE_REQUIRES(mutex_);
  Swapped SwapWith(const Driver& real, OpenCall open, void* argument);
  driver::CUresult SwapOne(const Driver& real, Place* place, OpenCall open,
                           void* argument) FINESERVE_REQUIRES(mutex_);
  bool SwapBack(const Driver& real) FINESERVE_REQUIRES(mutex_);
  driver::CUresult MakeOwn(const Driver& real, Place* place)
      FINESERVE_REQUIRES(mutex_);
  driver::CUresult FillOwn(const Driver& real, const Place& place)
      FINESERVE_REQUIRES(mutex_);
  void Release(const Driver& real,
               driver::CUmemGenericAllocationHandle Place::*handle)
      FINESERVE_REQUIRES(mutex_);
  driver::CUresult HandOver(const Driver& real, const Place& place,
                            Carrier* carrier) FINESERVE_REQUIRES(mutex_);
  driver::CUresult ActivateWith(const Driver& real, const Source& source,
                                OpenCall open, void* argument);
  bool HasRoom(const driver::EntryPoints& entry) FINESERVE_REQUIRES(mutex_);
  driver::CUresult BringBack(const Driver& real, const Place& place,
                             const Source& source, OpenCall open,
                             void* argument) FINESERVE_REQUIRES(mutex_);
  static driver::CUresult CopyBack(const driver::EntryPoints& entry,
                                   const Place& place, const Source& source);
  void UnmapAgain(const Driver& real, size_t before) FINESERVE_REQUIRES(mutex_);
  Place* Find(driver::CUdeviceptr base) FINESERVE_REQUIRES(mutex_);
  Place* FindShared(const abi::IpcHandle& handle) FINESERVE_REQUIRES(mutex_);
  Loan* FindLoan(const abi::IpcHandle& handle, const Borrower& borrower)
      FINESERVE_REQUIRES(mutex_);
  template <typename Ends>
  void EndLoans(Ends ends) FINESERVE_REQUIRES(mutex_);
  static driver::CUresult Export(const driver::EntryPoints& entry,
                                 const Place& place, int* memory);
  static void* RestAll(void* rests);

  // Holds mutex_ for an eviction or an activation.
  class Moving;

  std::atomic<bool> in_use_{false};
  std::atomic<bool> is_moving_{false};
  Rests* rests_ = nullptr;  // confined to the thread that evicts
  Mutex mutex_;
  size_t count_ FINESERVE_GUARDED_BY(mutex_) = 0;
  uint32_t last_number_ FINESERVE_GUARDED_BY(mutex_) = 0;
  Place places_[kCapacity] FINESERVE_GUARDED_BY(mutex_) = {};
  size_t loan_count_ FINESERVE_GUARDED_BY(mutex_) = 0;
  Loan loans_[kMostLoans] FINESERVE_GUARDED_BY(mutex_) = {};
  size_t reader_count_ FINESERVE_GUARDED_BY(mutex_) = 0;
  Reader readers_[kMostReaders] FINESERVE_GUARDED_BY(mutex_) = {};
  bool all_pinned_ FINESERVE_GUARDED_BY(mutex_) = false;
  // From BeginDrop on, for as long as anything is taken or dropped.
  bool drops_ FINESERVE_GUARDED_BY(mutex_) = false;
  bool thaws_ FINESERVE_GUARDED_BY(mutex_) = false;
  std::atomic<bool> is_recalled_{false};
};

}  // namespace fineserve::shim

#endif  // SHIM_WEIGHTS_RESIDENT_MEMORY_H_
