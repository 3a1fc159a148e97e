#ifndef SHIM_HOOKS_MOVER_H_
#define SHIM_HOOKS_MOVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/inventory.h"
#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/transport.h"
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
// With an engine of several processes it rests between the two sides until all
// of them do: what they have open of each other moves with them
// (opened_memory.h). No gate opens before that is back, and no process copies
// what another one may still write.
//
// In an engine on several GPUs the daemon of its first rank's gives the orders
// (fs_kv_follow). A process on another one has a connection to that daemon, and
// this one to its own GPU's, which keeps its memory. The process that runs the
// block pool has no memory, and leaves before the ranks do.
//
// A thread that needs what is on the host rings. The mover then asks the daemon
// for an activation, and activates by itself if no daemon has been there for a
// while.
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
  // Must outlive this object.
  constexpr explicit Mover(Redirector* redirector) : redirector_(redirector) {}

  // Starts the thread, unless it runs already.
  void Start(const Driver& real);
  // Called at the program's exit: the thread makes no driver calls after it.
  void Stop();
  // For a forked child: takes no lock.
  void AbandonInChild();

 private:
  template <typename Message>
  class Batch;
  class ToStore;
  class FromStore;
  static void* Run(void* mover);
  void Serve();
  abi::Seat FindSeat();
  bool Connect();
  bool ConnectOwn();
  bool Greet(CheckedDescriptor* socket, abi::Role role,
             const uint8_t (&gpu)[16], const char (&name)[abi::kNameBytes]);
  bool Report(bool is_needed = false);
  bool SendReport(CheckedDescriptor* to, abi::Seat seat, uint32_t* sequence);
  CheckedDescriptor& orders() {
    return seat_ == abi::Seat::kWhole ? socket_ : orders_;
  }
  void TendOwn(bool is_readable);
  bool NoteNeed(const abi::Received& received);
  bool AwaitOrder();
  bool WaitForOrder(int fd);
  void HelpAlone();
  void Obey(const abi::MoveOrder& order);
  bool ComeToRest(const Driver& real);
  bool ComeToRestAsOneOfMany(const Driver& real);
  bool CloseGate(const Driver& real);
  bool Leave(const Driver& real);
  bool MoveOut(const Driver& real);
  bool ComeBack(const Driver& real);
  bool MoveIn(const Driver& real);
  bool GoOn(const Driver& real);
  void EndIfLost();
  bool LeaveView(const Driver& real);
  bool AwaitLeave();
  bool AwaitLeaveAsRank();
  bool ResumeView(const Driver& real);
  bool SuspendView(const Driver& real);
  void UndoAfterFailure(const Driver& real, bool (Mover::*undo)(const Driver&));
  bool ReturnToView(const Driver& real);
  void CloseKept();
  void Adopt(abi::Received* received);
  bool Fail(const char* format, ...) __attribute__((format(printf, 2, 3)));

  Redirector* const redirector_;
  std::atomic<bool> started_{false};
  const Driver* real_ = nullptr;  // set before the thread starts
  CheckedDescriptor socket_;      // to this GPU's daemon
  // To the first rank's, if that is another.
  CheckedDescriptor orders_;
  // From the store: the inventory of this process's copies, then its files.
  CheckedDescriptor kept_[1 + abi::kMostStoreFiles];
  Mutex turn_;  // held while an order is carried out
  bool stopped_ FINESERVE_GUARDED_BY(turn_) = false;
  // The thread's own.
  abi::Seat seat_ = abi::Seat::kWhole;
  uint32_t sequence_ = 0;         // on socket_
  uint32_t orders_sequence_ = 0;  // on orders_
  uint64_t alone_since_ms_ = 0;   // without a daemon; 0: with one
  bool lost_ = false;             // its memory: the process ends
  // Memory that it has open of ended processes may differ from what is mapped.
  bool may_be_old_ = false;
  abi::MoveReport report_ = {};
};

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_MOVER_H_
