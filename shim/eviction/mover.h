#ifndef SHIM_EVICTION_MOVER_H_
#define SHIM_EVICTION_MOVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/inventory.h"
#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/transport.h"
#include "shim/eviction/sharer.h"
#include "shim/eviction/view_keeper.h"
#include "shim/host/checked_descriptor.h"
#include "shim/host/plain_mutex.h"
#include "shim/host/real_driver.h"
#include "shim/redirect/redirector.h"

namespace fineserve::shim {

// The thread that moves this process's resident memory at the daemon's word
// (design note 0039). It has a connection of its own, on which it reports where
// the memory is and waits for the next order (move_messages.h); no other thread
// of the process copies, maps or waits for that. An engine with a view leaves
// when its block pool has suspended it, and comes back with it (presence.h).
//
// In an engine of several processes, each rests between the two places until
// all of them do, since the memory that they have open of each other moves with
// them (opened_memory.h). No gate opens before that memory is back, and no
// process copies memory that another one may still write.
//
// In an engine on several GPUs the daemon of the first rank's GPU gives the
// orders (fs_kv_follow). A process on another GPU has a connection to that
// daemon, and one to its own GPU's daemon, which keeps its memory. The process
// that runs the block pool has no memory, and leaves before the ranks do.
//
// The process may use another process's parameters (mover_drop.cc, design note
// 0048) until it is ordered to restore its own, that process asks for this or
// ends, or this one leaves the GPU.
//
// A thread that needs memory that is on the host rings. The mover then asks the
// daemon for an activation, and activates by itself if no daemon has been there
// for a while.
//
// The daemon copies what leaves to its store, and fills the memory that this
// process makes when it comes back. This process holds the store's files and a
// list of its copies in them, from the first eviction on, and can fill memory
// from them without a daemon. If the daemon dies, the gate stays as it is, and
// the next daemon gets both; if this process dies, the daemon
// frees its copies.
//
// Thread-safe. Constant-initialised, trivially destroyed. A forked child has no
// such thread.
class Mover {
 public:
  // All must outlive this object.
  constexpr Mover(Redirector* redirector, const Sharer* sharer,
                  ViewKeeper* keeper)
      : redirector_(redirector), sharer_(sharer), keeper_(keeper) {}

  // Starts the thread, unless it runs already.
  void Start(const Driver& real);
  // Has the daemon move the memory of this process's engine to `to`, as an
  // operator may, and waits until it is there. Returns an FS_… error of
  // fineserve_kv.h, after which the move may go on. Any thread.
  int AskFor(abi::Place to, int timeout_ms);
  // Called at the program's exit: the thread makes no driver calls after it.
  void Stop();
  // Returns true once this process has its own copy of its parameters and no
  // other process reads it; then this process may write them. False, with one
  // line in `why`, if that takes longer than `timeout_ms`; then nothing has
  // changed. Any thread.
  bool Thaw(uint64_t timeout_ms, char* why, size_t why_bytes);
  // For a forked child: takes no lock.
  void AbandonInChild();

 private:
  template <typename Message>
  class Batch;
  template <typename Base, typename Message>
  class Handing;
  class ToStore;
  class FromStore;
  class Comparer;
  struct Daemon {
    uint64_t epoch = 0;
    uint32_t pid = 0;
  };
  // Frozen allocations that this process asks the lender for.
  struct Wanted {
    uint32_t count = 0;
    uint32_t numbers[abi::kLentPerAnswer] = {};
    uint64_t bytes[abi::kLentPerAnswer] = {};
  };
  static void* Run(void* mover);
  void Serve();
  bool AwaitOrder();
  template <typename Act>
  void Obey(uint32_t order, Act act);
  bool MoveTo(abi::Place to);
  bool ComeToRest(const Driver& real);
  bool ComeToRestAsOneOfMany(const Driver& real);
  bool CanClose();
  bool CloseGate(const Driver& real);
  bool Leave(const Driver& real);
  bool ComeBack(const Driver& real);
  bool GoOn(const Driver& real);
  void HelpAlone();
  void EndIfLost();
  bool LeaveView(const Driver& real);
  bool AwaitLeave();
  bool AwaitLeaveAsRank();
  bool ResumeView(const Driver& real);
  bool SuspendView(const Driver& real);
  void UndoAfterFailure(const Driver& real, bool (Mover::*undo)(const Driver&));
  bool ReturnToView(const Driver& real);
  bool Fail(const char* format, ...) __attribute__((format(printf, 2, 3)));
  // True if the process works on the GPU, with its own parameters or another
  // process's.
  bool IsHere() const {
    return report_.place == abi::Place::kGpu ||
           report_.place == abi::Place::kDropped;
  }
  // mover_orders.cc
  abi::Seat FindSeat();
  // These four return the daemon that has welcomed this process; an epoch of 0
  // if none has.
  Daemon Connect();
  Daemon ConnectOwn();
  Daemon GreetOwn(CheckedDescriptor* socket, abi::Role role);
  Daemon Greet(CheckedDescriptor* socket, abi::Role role,
               const uint8_t (&gpu)[16], const char (&name)[abi::kNameBytes]);
  DaemonLink& JoinedLink();
  bool MayFindDaemon() const;
  uint32_t ConnectAsAsker(CheckedDescriptor* socket);
  int AskAt(int socket, const abi::MoveRequest& request, uint64_t until_ms,
            int timeout_ms);
  void SetKnownTo(Daemon daemon);
  bool IsKnownTo(Daemon daemon);
  ResidentSum Sizes() const;
  bool Report(abi::Need need = abi::Need::kNone);
  bool PassOnRoomNeed();
  bool ReportSizes();
  void SayThatNoneOrders();
  bool SendReport(CheckedDescriptor* to, abi::Seat seat, uint32_t* sequence);
  CheckedDescriptor& orders() {
    return seat_ == abi::Seat::kWhole ? socket_ : orders_;
  }
  void TendOwn(bool is_readable);
  bool NoteNeed(const abi::Received& received);
  bool WaitForOrder(int fd);
  // mover_copies.cc
  bool MoveOut(const Driver& real);
  bool MoveIn(const Driver& real);
  bool Compare(const Driver& real, uint64_t bytes, uint64_t* got);
  void CloseKept();
  void Adopt(abi::Received* received);
  // mover_drop.cc
  bool Drop(const Driver& real, const abi::ShareAddress& lender,
            uint64_t bytes);
  bool DropMore(const Driver& real, uint64_t bytes);
  bool Collect(const Driver& real, uint64_t bytes,
               ResidentMemory::Carrier* comparer, uint64_t* got);
  bool CollectSome(const Driver& real, const Wanted& wanted,
                   ResidentMemory::Carrier* comparer, uint64_t* got);
  bool SwapParameters(const Driver& real);
  bool Restore(const Driver& real);
  bool MakeOwn(const Driver& real);
  void ShowLender();
  bool EndReading();
  bool HasLender() const { return lender_.pid != 0 || former_lender_.pid != 0; }
  bool TendLender();
  bool ReportLender();
  static bool RecallReaders(ResidentMemory* memory, uint64_t timeout_ms);

  Redirector* const redirector_;
  const Sharer* const sharer_;
  ViewKeeper* const keeper_;
  std::atomic<bool> started_{false};
  const Driver* real_ = nullptr;  // set before the thread starts
  CheckedDescriptor socket_;      // to this GPU's daemon
  // The socket to the first rank's daemon, if that is not this GPU's.
  CheckedDescriptor orders_;
  // From the store: the inventory of this process's copies, then its files.
  CheckedDescriptor kept_[1 + abi::kMostStoreFiles];
  // The daemon that orders, while it knows where this process's memory is;
  // otherwise an epoch of 0.
  Mutex known_mutex_;
  Daemon known_to_ FINESERVE_GUARDED_BY(known_mutex_);
  Mutex turn_;  // held while an order is carried out
  bool stopped_ FINESERVE_GUARDED_BY(turn_) = false;
  // The thread's own.
  abi::Seat seat_ = abi::Seat::kWhole;
  uint32_t sequence_ = 0;         // on socket_
  uint32_t orders_sequence_ = 0;  // on orders_
  uint64_t alone_since_ms_ = 0;   // without a daemon; 0: with one
  bool room_is_needed_ = false;   // by others on this GPU
  bool lost_ = false;             // its memory or view: the process ends
  // True if memory that this process has opened from ended processes may differ
  // from the mapped memory.
  bool may_be_old_ = false;
  // The process whose parameters this process reads, and a former lender that
  // does not know yet that they are not read any longer. A pid of 0 means none.
  abi::ShareAddress lender_ = {};
  abi::ShareAddress former_lender_ = {};
  uint64_t restore_at_ms_ = 0;  // not before: a try has failed
  abi::MoveReport report_ = {};
};

}  // namespace fineserve::shim

#endif  // SHIM_EVICTION_MOVER_H_
