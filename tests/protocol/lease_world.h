#ifndef TESTS_PROTOCOL_LEASE_WORLD_H_
#define TESTS_PROTOCOL_LEASE_WORLD_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/pool/pool_state.h"
#include "shim/testdata/plain_slab_table.h"
#include "tests/protocol/world_parts.h"

namespace fineserve::protocol {

// Size of a world of whole-slab leases, and the faults that are injected into
// it.
struct LeaseOptions {
  uint32_t leases = 1;   // that each process asks for, one after the other
  uint32_t crashes = 1;  // of daemons, in all
  uint32_t drops = 0;    // processes that lose patience with a daemon, in all
  uint32_t deaths = 0;   // of processes, in all
  // A process that has lost patience asks again instead of giving up.
  bool repeats_after_drop = false;
  // A process does not number its requests, like a process of an older release.
  bool no_number = false;
  // A process does not report later that it has given up a request.
  bool no_giving_up = false;
  // The daemon does not publish which process asked for a lease.
  bool no_asker = false;
  // The daemon publishes the asking process only after the slab's word.
  bool word_first = false;
  // The daemon sends granules before it publishes that the lease is seen.
  bool seen_late = false;
  // The daemon grants a request that was given up before it was read.
  bool forgets_given_up = false;
  // The end of a former connection ends a lease that was granted on another
  // connection.
  bool former_connection_returns = false;
};

// Two processes of one engine that lease whole slabs, a daemon that may die
// after any single write or answer, and others after it: the pool's own machine
// (slab::PoolState), and a model of DaemonLink and SocketServer, whose messages
// wait in connections.
//
// At any time, a lease that a process has been granted must be its own, whole,
// until it returns it. When all has come to rest, every leased slab must belong
// to a lease that a living process knows.
class LeaseWorld : public Judged {
 public:
  using Options = LeaseOptions;
  enum class Act : uint8_t {
    kAsk,      // a process asks for slabs
    kDeliver,  // the daemon reads the next message of a connection
    kReceive,  // a process reads its next answer
    kFetch,    // it asks for the granules
    kReturn,   // it has unmapped its lease
    kDrop,     // it closes a connection that takes too long
    kRejoin,   // it connects again, and repeats what it waits for
    kGiveUp,   // it does not wait for another daemon
    kDie,
    kBury,
    kFill,     // the zero fills under way complete
    kRestart,  // another daemon takes the pool over
  };
  struct Event {
    static constexpr uint8_t kLives = 255;
    Act act;
    uint8_t who;  // process or connection
    uint8_t dies_after = kLives;
  };
  static std::string Text(const std::vector<Event>& events);

  explicit LeaseWorld(const LeaseOptions& options);
  LeaseWorld(const LeaseWorld&) = delete;
  LeaseWorld& operator=(const LeaseWorld&) = delete;

  std::vector<Event> Enabled() const;
  void Apply(Event event);
  // Lets everything come to rest. Returns what is wrong afterwards.
  std::string Settle();
  uint64_t Digest();

 private:
  static constexpr int kProcesses = 2;
  static constexpr uint32_t kSlabs = 4;
  static constexpr uint32_t kWanted = 2;  // of each lease

  struct Message {
    enum Kind : uint8_t { kLease, kGranules, kReturn, kGiveUp, kEnd } kind;
    uint32_t value;  // lease or request
  };
  struct Answer {
    enum Kind : uint8_t { kGrant, kGranules, kDone, kRefused } kind;
    uint32_t lease;
    uint32_t slabs;
  };
  struct Connection {
    int process;
    std::deque<Message> requests;
    std::deque<Answer> answers;
    bool open = true;  // the process has it open
    uint64_t ticket = 0;
    std::set<uint32_t> unfetched;
    uint32_t given_up = 0;
  };
  enum class Phase : uint8_t { kIdle, kAsked, kGranted, kFetching, kMapped };
  struct Process {
    pid_t pid;
    bool alive = true;
    bool buried = false;
    Phase phase = Phase::kIdle;
    int connection = -1;
    uint32_t request = 0;
    uint32_t lease = 0;
    uint32_t asked = 0;
    std::deque<Message> ends;  // unsent or unconfirmed
  };

  void Join(Process* p);
  void Send(Process* p, Message message);
  void Receive(Process* p);
  void GiveUp(Process* p);
  void Rejoin(Process* p);
  void Die(Process* p);
  void Deliver(Connection* c);
  void Handle(Connection* c, Message message);
  void HandleGranules(Connection* c, uint32_t lease);
  void SendAnswer(Connection* c, Answer answer);
  void CloseEnd(Connection* c);
  void Bury(Process* p);
  void Fill();
  void Execute();
  void Publish(const slab::Effects& effects);
  void PublishSlab(const slab::SlabChange& change);
  void GiveGrants(const slab::Effects& effects);
  bool Lives();
  void Crash();
  void Restart();
  void CheckHeld();
  void CheckNothingLost();
  void ComeToRest();
  bool IsOfDaemon(Act act) const;

  const LeaseOptions options_;
  slab::PoolState pool_;
  shim::PlainSlabTable table_;
  slab::EngineId engine_;
  std::array<Process, kProcesses> processes_;
  std::deque<Connection> connections_;
  std::vector<slab::SlabId> filling_;
  uint64_t last_ticket_ = 0;
  pid_t daemon_ = 1;
  bool serves_ = true;
  uint32_t deeds_left_ = UINT32_MAX;
  uint32_t crashes_ = 0, drops_ = 0, deaths_ = 0;
};

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_LEASE_WORLD_H_
