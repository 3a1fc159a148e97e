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
// contexts' work (Rest). If anything fails, the contents stay where they were:
// a failed copy unmaps nothing; if memory cannot be made or filled, all of it
// stays out, and the copies are unchanged. An allocation that was handed to
// another process or device (Pin) never leaves. One that other processes have
// open by CUDA's legacy IPC (Lend) leaves only if each of them has closed it,
// has ended, or will not touch it before it has asked for it again (NoteRest).
//
// Parameters are the exception to one handle for each allocation's life (design
// note 0048). The program names the allocations that hold only parameters and
// that it does not write (Freeze). Then this process may drop its own copy of
// one and map another process's, read-only, at the same addresses; or others
// may read its copy. It never does both with one allocation, so that one of two
// processes always has its own copy.
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
  // Smaller allocations are left to the driver, because a handle's size is a
  // multiple of the driver's granularity.
  static constexpr uint64_t kLeastBytes = uint64_t{2} << 20;

  using Sum = ResidentSum;

  // Copies allocations to or from host memory. An allocation is given by its
  // number, which is never used twice.
  class Carrier {
   public:
    // Takes an allocation. `memory` is a descriptor of its memory, which the
    // caller closes.
    virtual bool Hand(uint32_t number, uint64_t bytes, int memory) = 0;
    // Returns once all allocations that it was handed have been copied.
    virtual bool Finish() = 0;

   protected:
    ~Carrier() = default;
  };
  class Copier : public Carrier {
   public:
    // Finds the copy: the file, among those that Activate gets, and the offset
    // in it.
    virtual bool Locate(uint32_t number, uint32_t* file, uint64_t* offset) = 0;

   protected:
    ~Copier() = default;
  };

  constexpr ResidentMemory() = default;

  // Makes an allocation on the current context's device. If that is impossible,
  // returns false and holds nothing; the call must then go to the driver.
  bool Allocate(const Driver& real, uint64_t bytes, Redirection* out);
  // Frees an allocation, after its context's work if `waits`. After an error it
  // still belongs to the program.
  driver::CUresult Free(const Driver& real, const Redirection& range,
                        bool waits);
  // Keeps the allocation on the GPU from now on. False if it is out.
  bool Pin(driver::CUdeviceptr base);
  // Keeps all allocations on the GPU from now on, including later ones.
  void PinAll();

  // Writes the number, size and check value of an allocation, with which
  // another process may open it. False if there is no resident allocation at
  // `base`.
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
  // Lends an allocation, which stays on the GPU until the borrower gives it
  // back or rests. kAway while the allocation is being moved.
  abi::OpenResult Lend(const Driver& real, const abi::IpcHandle& handle,
                       const Borrower& borrower, Lent* lent);
  // Notes that the borrower, a process of this engine, will not touch the
  // memory until it is lent again. False if the borrower does not have it, or
  // while it is being moved.
  bool NoteRest(const abi::IpcHandle& handle, const Borrower& borrower);
  void TakeBack(const abi::IpcHandle& handle, const Borrower& borrower);
  // Takes back the loans of processes that have ended. True if other processes
  // still have any memory open, or read any.
  bool TakeBackFromEnded();

  static constexpr size_t kMostContexts = 64;  // one on each of its devices
  // Waits, up to the timeout, for the work of `others` and of each context that
  // has resident memory. False, with one line in `why`, if that takes longer or
  // a context fails. A longer wait continues by itself; EndRest is false until
  // it is over, and Rest must not be called before then.
  bool Rest(const Driver& real, const driver::CUcontext* others, size_t count,
            int timeout_ms, char* why, size_t why_bytes);
  bool EndRest();

  // Has the movable memory copied, then releases it. CUDA_SUCCESS if there was
  // none; CUDA_ERROR_OPERATING_SYSTEM if the copier fails.
  driver::CUresult Evict(const Driver& real, Copier* copier);
  // The files with the copies, and the filler that fills memory from them; if
  // the filler is null, this process fills it.
  struct Source {
    const int* files;
    uint32_t file_count;
    Carrier* filler;
  };
  // Makes memory, has it filled, and calls `open(range) → CUresult` for each
  // allocation, which gives other devices the access that they had before.
  // CUDA_ERROR_OPERATING_SYSTEM if the filler fails; the memory that it was
  // handed is then not used.
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
  // Freezes exactly the allocations that these parts cover, in that order.
  // False if this process has dropped its copy, or if other processes read it.
  bool Freeze(const Part* parts, size_t count);
  // If `thaws`, this process lends and drops no parameters from now on, and is
  // recalled; otherwise it may lend and drop again.
  void SetThawing(bool thaws);
  // True if this process has its own copy of its parameters and no other
  // process reads that copy.
  bool IsApart();
  void Thaw();

  // Lends parameters to another process, which reads them until EndReading or
  // until it ends. Returns the number of descriptors in `memory`, which the
  // caller closes.
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
  // Takes the first frozen allocation after `after` (0 at first) of which this
  // process has its own copy and which it lends to no process; returns 0 if
  // there is none. It is not lent until LetGo without a Swap, or a Swap back.
  uint32_t Take(uint32_t after, uint64_t* bytes);
  // Gives up the drop of that allocation.
  void Untake(uint32_t frozen);
  uint32_t CountFrozen();
  // Takes another process's memory for an allocation that was taken, and hands
  // both memories to the comparer. Returns the reason if it cannot ("" if the
  // comparer failed), or null.
  const char* Pair(const Driver& real, uint32_t frozen, int memory,
                   Carrier* comparer);
  // Makes memory for the dropped allocations, and fills it from the other
  // process's memory.
  driver::CUresult PrepareRestore(const Driver& real);
  // Holds, until LetGo, the memory that is about to be replaced.
  driver::CUresult HoldFormer(const Driver& real);
  enum class Swapped {
    kDone,
    kUndone,  // all is as it was
    kLost,    // and that could not be made good
  };
  // Maps the other process's memory or, for dropped allocations, the new
  // memory: all or none. `open` works as in Activate, for new memory. To be
  // called after HoldFormer.
  template <typename Open>
  Swapped Swap(const Driver& real, Open open) {
    return SwapWith(
        real,
        [](void* o, const Redirection& range) {
          return (*static_cast<Open*>(o))(range);
        },
        &open);
  }
  // Releases memory that is not mapped. After a Swap this is the former memory,
  // whose release may take the driver long; without a Swap it is the memory
  // from Pair or PrepareRestore.
  void LetGo(const Driver& real);
  // True if this process has dropped copies and must restore them.
  bool is_recalled() const {
    return is_recalled_.load(std::memory_order_relaxed);
  }
  void Recall() { is_recalled_.store(true, std::memory_order_relaxed); }

  Sum sum();
  // True while this process evicts or activates; all other calls then wait.
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
    // The memory that will be mapped in its place, and, until LetGo, the memory
    // that was mapped before.
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
  // True if a frozen allocation has its own memory and keeps it.
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
  // True from BeginDrop on, for as long as any allocation is taken or dropped.
  bool drops_ FINESERVE_GUARDED_BY(mutex_) = false;
  bool thaws_ FINESERVE_GUARDED_BY(mutex_) = false;
  std::atomic<bool> is_recalled_{false};
};

template <typename Ends>
void ResidentMemory::EndReaders(Ends ends) {
  for (size_t r = 0; r < kMostReaders; ++r) {
    if (readers_[r].process.pid == 0 || !ends(readers_[r].process)) continue;
    readers_[r] = {};
    --reader_count_;
    for (size_t i = 0; i < count_; ++i) places_[i].read_by &= ~(1u << r);
  }
}

}  // namespace fineserve::shim

#endif  // SHIM_WEIGHTS_RESIDENT_MEMORY_H_
