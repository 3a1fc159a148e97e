#ifndef SHIM_LINK_DAEMON_LINK_H_
#define SHIM_LINK_DAEMON_LINK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/engine_scoreboard.h"
#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/transport.h"
#include "shim/classify/classify.h"
#include "shim/classify/rule_matcher.h"
#include "shim/host/checked_descriptor.h"
#include "shim/host/plain_mutex.h"
#include "shim/link/scoreboard_writer.h"
#include "shim/link/unconfirmed_ends.h"

namespace fineserve::shim {

// The latest daemon's slab table. This process preserves it beyond that
// daemon's death, because it names the processes that still hold the old pool.
// Readers find it by its descriptor (/proc/PID/fd). Mappings are never removed,
// not even those of earlier tables.
//
// Confined to one thread at a time (the daemon link's lock), except for Close
// in a forked child. Trivially destroyed.
class KeptTable {
 public:
  constexpr KeptTable() = default;

  // Takes ownership of `fd` and maps the whole file.
  void Keep(int fd);
  // Closes the descriptor; the mapping stays.
  void Close() { descriptor_.Close(); }

  // Null if the latest table could not be mapped.
  const void* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  // False for a table that could shrink; reading such a table might raise
  // SIGBUS.
  bool IsSealed() const;

 private:
  CheckedDescriptor descriptor_;
  const void* base_ = nullptr;
  size_t bytes_ = 0;
};

// A lease as the daemon granted it.
struct Lease {
  uint32_t id = 0;
  uint64_t epoch = 0;
  uint64_t granule_bytes = 0;
  uint32_t granule_count = 0;

  uint64_t bytes() const { return granule_bytes * granule_count; }
};

// A view of the pool as the daemon granted it (messages.h). The numbers that
// memory is mapped by have been checked.
struct ViewGrant {
  uint64_t epoch = 0;
  uint32_t engine_id = 0;
  uint64_t granule_bytes = 0;
  uint32_t granules_per_slab = 0;
  abi::ViewAnswer answer = {};
  // The daemon's slab table. It is never unmapped and cannot shrink.
  const void* table = nullptr;
  size_t table_bytes = 0;
  int scoreboard = -1;  // the view scoreboard's descriptor; the caller owns it
};

// Data for a process that runs the block pool of a view which another process
// has registered.
struct PoolRun {
  uint64_t epoch = 0;
  uint32_t engine_id = 0;
  abi::RunPoolAnswer answer = {};
  const void* table = nullptr;  // as in ViewGrant
  size_t table_bytes = 0;
  int scoreboard = -1;  // as in ViewGrant
};

// Sizes of the daemon's pool; zeros until a daemon was joined.
struct SlabGeometry {
  uint64_t granule_bytes = 0;
  uint64_t slab_bytes = 0;
  uint32_t slab_count = 0;  // when the pool is at its largest
};

enum class Exchange {
  kOk,
  kExhausted,  // the pool has too few free slabs
  kRefused,    // the daemon refused for any other reason
  kLost,       // there is no daemon, now or at all, or its messages are invalid
};

// The outcome of sending a message that gets no answer.
enum class Notice {
  kSent,
  kBusy,  // the link or its socket was busy: try again later
  kLost,  // that daemon has gone
};

// One line about why a request was refused.
using Why = char[256];

// The connection to this GPU's daemon. It is made at the first large allocation
// and has one request in flight; every wait is bounded. If it fails, the
// process runs on without FineServe, the link warns once, and later large
// allocations look for a daemon again.
//
// A connection that is lost while its daemon lives is made again, by Join and
// Rejoin: the process is then the same engine, and reports all that it has
// ended since (UnconfirmedEnds).
//
// Thread-safe: a mutex spans each exchange. No hot path takes it, since state()
// and the declared sizes are atomics. A forked child may call AbandonInChild
// only: the parent's threads may have held the mutex at the fork.
//
//   kNotTried ─► kConnected ─► kLost ─► (a new daemon) kConnected
//         └────► kNoDaemon ─► (a daemon) kConnected
//         └────► kRefused: final
class DaemonLink {
 public:
  struct Timeouts {
    // Limit on each step of joining: to connect, from Hello to Welcome, and for
    // a rule. The steps are repeated if a daemon ends in between. A starting
    // process waits as long for a daemon as for a request, since otherwise a
    // late daemon would leave it without the pool for good.
    int join_ms = 2'000;
    int request_ms = 10'000;  // a lease waits for the zero fill of its slabs
    // Heuristic: longest pause between tries after a failed one. The first
    // pause is a hundredth of this; each further pause is twice the one before,
    // or as long as the try took.
    int reconnect_pause_ms = 5'000;
  };

  // The three arguments must outlive the link.
  constexpr DaemonLink(ScoreboardWriter* scoreboard, DeclaredSizes* declared,
                       RuleMatcher* rules)
      : scoreboard_(scoreboard), declared_(declared), rules_(rules) {}

  // Sets the name of the engine that this process belongs to, which replaces
  // the process's own name.
  void set_engine_name(const char (&name)[abi::kNameBytes]) {
    const Turn turn(this);
    abi::CopyText(name_, name);
  }
  // Copies the GPU of the daemon that was joined, and the engine's name at that
  // daemon.
  void CopyIdentity(uint8_t (&gpu_uuid)[16], char (&name)[abi::kNameBytes]);
  struct Membership {
    uint32_t engine_id = 0;  // the number of this process's engine
    uint64_t epoch = 0;      // the daemon's
  };
  // Zeros without a daemon.
  Membership membership();
  void set_timeouts(const Timeouts& t) { timeouts_ = t; }
  // If true, the sizes that the daemon declares are ignored.
  void set_keep_declared(bool keep) { keep_declared_ = keep; }

  abi::LinkState state() const {
    // Acquire: the scoreboard and the sizes are set. Pairs with the release in
    // SetState.
    return state_.load(std::memory_order_acquire);
  }

  // True once a connection has been tried, whether or not it succeeded.
  bool engaged() const { return engaged_.load(std::memory_order_relaxed); }

  // Tries to join the daemon of this GPU; later calls return the state. With
  // `reconnect`, a call after a daemon was lost or not found looks for one. A
  // process joins one daemon, so the result for another GPU is kNoDaemon.
  abi::LinkState Join(const uint8_t (&gpu_uuid)[16], bool reconnect);

  // True if there was no daemon, and it is time to look for one again. Takes no
  // lock.
  bool is_due() const {
    return state() == abi::LinkState::kNoDaemon &&
           IsPast(retry_at_ms_.load(std::memory_order_relaxed));
  }

  // Has the next call look for a daemon, however recently the last one did.
  void Hurry() { retry_at_ms_.store(0, std::memory_order_relaxed); }

  // Joins again the daemon of the GPU whose daemon was lost; does nothing
  // unless one was lost.
  void Rejoin();

  // Number of times that a daemon has been joined.
  uint32_t connections() const {
    return connections_.load(std::memory_order_relaxed);
  }

  // False if this process has joined, or tried to join, the daemon of another
  // GPU.
  bool Serves(const uint8_t (&gpu_uuid)[16]);

  SlabGeometry geometry();

  // Leases the number of whole slabs that `bytes` need.
  Exchange LeaseSlabs(uint64_t bytes, Lease* out);

  // Receives descriptors of granules [first, first + n) of a lease, where n ≥ 1
  // is as large as one message allows. `out` owns them until they are taken. If
  // this process has too few free descriptors, asks again for half as many;
  // returns kRefused if not even one fits.
  Exchange Granules(const Lease& lease, uint32_t first, abi::Received* out);

  // Returns a lease, unless it is an older daemon's. Never waits: if the
  // message cannot be sent now, it is sent later.
  void Return(uint32_t lease, uint64_t epoch);

  // Registers a format. All later calls for the view pass the grant's epoch and
  // get kLost if the daemon has another epoch. Unless the result is kOk, only
  // `why` and the grant's epoch are set; the daemon may still have registered
  // the view.
  Exchange RegisterView(const abi::ViewRequest& request, ViewGrant* out,
                        Why& why);

  // Receives descriptors of the pool's granules [first, first + n), 1 ≤ n ≤
  // max, otherwise like Granules. Also returns kRefused if the daemon withholds
  // the first of them.
  Exchange PoolGranules(uint64_t epoch, uint32_t first, uint32_t max,
                        abi::Received* out);

  Exchange ActivateView(uint64_t epoch, uint32_t slabs, uint32_t wanted,
                        Why& why);
  // Makes this process run the block pool of its engine's view, which another
  // member has registered. `out` owns nothing unless the result is kOk.
  Exchange RunPool(PoolRun* out, Why& why);
  // Asks the pool for device memory that is not KV, because the driver has
  // refused `bytes`. Sets `coming` to the bytes that the pool could still give
  // up. If `bytes` is 0, this process has stopped waiting. kRefused if the
  // pool's size is fixed. The daemon is lost if it does not answer within
  // `most_ms` or sooner.
  Exchange AskRoom(uint64_t bytes, uint64_t most_ms, uint64_t* coming);
  // True if the pool gives room, according to the latest daemon's table.
  bool GivesRoom();
  // Ends all leases of the view, as Return does.
  void CloseView(uint64_t epoch) { Return(UnconfirmedEnds::kView, epoch); }
  // Ends all leases of a view that is suspended; RegisterView takes the view up
  // again.
  void SuspendView(uint64_t epoch) {
    Return(UnconfirmedEnds::kViewsLeases, epoch);
  }

  // True if an end is not confirmed yet. TellEnds reports the ends, without
  // waiting, as far as that is possible.
  bool has_unconfirmed_ends() const {
    return !ends_.empty() && state() == abi::LinkState::kConnected;
  }
  // True if an end is not confirmed yet and there is no daemon to report it to.
  bool has_kept_ends() const {
    return !ends_.empty() && state() == abi::LinkState::kLost;
  }
  void TellEnds();

  // Copies the reason why the daemon could not be joined, was lost, or last
  // refused.
  void CopyReason(Why& why);

  // Finds the latest daemon's slab table, which is never unmapped and cannot
  // shrink. False if there is none, or if another thread is asking the daemon
  // something.
  bool FindTable(const void** table, size_t* bytes);

  // None of the following functions waits for the socket or for another
  // thread's exchange.
  Notice TellWant(uint64_t epoch, uint32_t slabs);
  Notice TellReturn(uint64_t epoch, const abi::ReturnNotice& notice);
  // Finds out whether the daemon has gone, without sending it anything.
  void Look();

  // True if the daemon of `epoch` is still connected, as far as the link knows.
  bool IsJoinedTo(uint64_t epoch) const {
    return state() == abi::LinkState::kConnected &&
           epoch_.load(std::memory_order_relaxed) == epoch;
  }

  // Waits, for at most 2 s per daemon, until no daemon of this user awaits the
  // end of a program that ran in this process before (exec). The driver knows
  // both programs by one pid, so the daemon sees that the former program's work
  // has ended only while this program has no context. Returns at once if there
  // was no former program. Joins nothing.
  static void AwaitFormerProgram();

  // For a forked child: closes all descriptors and takes no lock.
  void AbandonInChild();

 private:
  // Holds mutex_, and after unlocking it reports everything that ended while it
  // was held.
  class FINESERVE_ANNOTATE(scoped_lockable) Turn {
   public:
    explicit Turn(DaemonLink* link)
        FINESERVE_ANNOTATE(acquire_capability(link->mutex_));
    ~Turn() FINESERVE_ANNOTATE(release_capability());
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    DaemonLink* const link_;
  };

  bool TableGivesRoom() FINESERVE_REQUIRES(mutex_);
  bool SendEnds() FINESERVE_REQUIRES(mutex_);
  bool SendUntold() FINESERVE_REQUIRES(mutex_);
  int Await(int fd, uint64_t deadline_ms) FINESERVE_REQUIRES(mutex_);
  bool ConfirmEnds(int fd) FINESERVE_REQUIRES(mutex_);
  template <typename Message>
  int SendNumbered(Message message) FINESERVE_REQUIRES(mutex_);
  template <typename Request, typename Answer>
  Exchange Ask(Request request, Answer* answer, abi::Received* received,
               int timeout_ms) FINESERVE_REQUIRES(mutex_);
  // Like Ask, but repeats the request if the daemon has ended and another one
  // takes over its pool. The first daemon may have carried the request out.
  template <typename Request, typename Answer>
  Exchange AskAgain(const Request& request, Answer* answer,
                    abi::Received* received, int timeout_ms)
      FINESERVE_REQUIRES(mutex_);
  // Asks the daemon of `epoch`; kLost if that one is not connected.
  template <typename Request, typename Answer>
  Exchange AskFor(uint64_t epoch, const Request& request, Answer* answer,
                  abi::Received* received) FINESERVE_REQUIRES(mutex_);
  template <typename Request>
  Exchange FetchBatch(Request request, uint32_t lease, uint64_t epoch,
                      abi::Received* out) FINESERVE_REQUIRES(mutex_);
  template <typename Message>
  Notice Tell(uint64_t epoch, Message message);
  bool Grant(const abi::ViewRequest& request, const abi::ViewAnswer& answer,
             abi::Received* received, ViewGrant* out)
      FINESERVE_REQUIRES(mutex_);
  Exchange Interpret(const abi::Received& received, uint32_t sequence)
      FINESERVE_REQUIRES(mutex_);
  static bool IsPast(uint64_t ms);
  bool Meet() FINESERVE_REQUIRES(mutex_);
  bool MeetOnce() FINESERVE_REQUIRES(mutex_);
  void Pause(uint64_t tried_ms) FINESERVE_REQUIRES(mutex_);
  bool SayHello() FINESERVE_REQUIRES(mutex_);
  bool Accept(const abi::Welcome& welcome, abi::Received* received)
      FINESERVE_REQUIRES(mutex_);
  bool FetchRules(uint32_t count) FINESERVE_REQUIRES(mutex_);
  int PatienceMs() const {
    return state() == abi::LinkState::kNotTried ? timeouts_.request_ms
                                                : timeouts_.join_ms;
  }
  void PassThrough() FINESERVE_REQUIRES(mutex_);
  Exchange Lose(const char* why) FINESERVE_REQUIRES(mutex_);
  void WarnOfLoss() FINESERVE_REQUIRES(mutex_);
  void SetState(abi::LinkState state);

  ScoreboardWriter* const scoreboard_;
  DeclaredSizes* const declared_;
  RuleMatcher* const rules_;
  Timeouts timeouts_;
  bool keep_declared_ = false;

  std::atomic<abi::LinkState> state_{abi::LinkState::kNotTried};
  std::atomic<bool> engaged_{false};
  std::atomic<uint64_t> epoch_{0};  // of welcome_
  std::atomic<uint32_t> connections_{0};
  UnconfirmedEnds ends_;
  Mutex mutex_;
  CheckedDescriptor socket_;
  KeptTable table_;
  uint32_t sequence_ FINESERVE_GUARDED_BY(mutex_) = 0;
  uint32_t lease_request_ FINESERVE_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> retry_at_ms_{0};
  uint64_t pause_ms_ FINESERVE_GUARDED_BY(mutex_) = 0;
  abi::Welcome welcome_ FINESERVE_GUARDED_BY(mutex_) = {};
  uint8_t gpu_uuid_[16] FINESERVE_GUARDED_BY(mutex_) = {};
  // The name that the process had when it first joined, since a program may
  // rename itself.
  char name_[abi::kNameBytes] FINESERVE_GUARDED_BY(mutex_) = {};
  // A member, not a local variable, since a program's thread may have a small
  // stack.
  abi::Rule fetched_[abi::kRuleCapacity] FINESERVE_GUARDED_BY(mutex_) = {};
  bool refused_ FINESERVE_GUARDED_BY(mutex_) = false;
  // True if the last request found that the daemon has ended or closed the
  // connection.
  bool has_ended_ FINESERVE_GUARDED_BY(mutex_) = false;
  bool is_quiet_ FINESERVE_GUARDED_BY(mutex_) =
      false;  // a loss is not warned of
  // Why the last attempt failed, in one line for the user.
  char reason_[512] FINESERVE_GUARDED_BY(mutex_) = {};
  char path_[128] FINESERVE_GUARDED_BY(mutex_) = {};
};

// Checks a daemon's answers before they are used. Pure.

bool IsUsable(const abi::Welcome& welcome);

// False if the answer would make us map memory in the wrong place.
bool IsUsable(const abi::ViewAnswer& answer, const abi::ViewRequest& request,
              const abi::Welcome& pool);

// False if a slab's blocks could not be computed from it.
bool IsUsable(const abi::RunPoolAnswer& answer);

// True if a batch answers a request for granules of `lease` (0 for the pool's).
template <typename Request>
bool IsBatchOf(const abi::GranuleBatch& batch, const Request& request,
               uint32_t lease, const abi::Received& received) {
  return batch.lease == lease && batch.first == request.first &&
         batch.count >= 1 && batch.count <= request.max_count &&
         batch.count == received.descriptor_count();
}

}  // namespace fineserve::shim

#endif  // SHIM_LINK_DAEMON_LINK_H_
