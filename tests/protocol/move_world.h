#ifndef TESTS_PROTOCOL_MOVE_WORLD_H_
#define TESTS_PROTOCOL_MOVE_WORLD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/fineserved/eviction/move_book.h"
#include "daemon/fineserved/store/contents.h"
#include "tests/protocol/world_parts.h"

namespace fineserve::protocol {

// Initial state of a world of engines that leave the GPU, and the faults that
// are injected into it.
struct MoveOptions {
  std::vector<uint32_t> processes = {1, 1};  // of each engine
  uint32_t room = 8;     // processes whose memory the GPU has room for
  uint32_t writes = 20;  // of new contents, in all; all begin with the same one
  uint32_t crashes = 0;  // of daemons, in all
  uint32_t deaths = 0;   // of processes, in all
  // Total number of connections that processes close because the daemon does
  // not answer.
  uint32_t drops = 0;
  uint32_t stops = 0;  // of processes that are out or at rest, until the end
  // Each process of an engine with several processes has the memory of the next
  // one open, and also writes it.
  bool shares = false;
  uint32_t silences = 0;  // of an exporter that is asked something, in all
  // If a process stops waiting for its copy and goes on, its pending copy still
  // counts as one that it has left with.
  bool commits_when_copied = false;
  // The end of a connection is mistaken for the end of its process.
  bool forgets_with_connection = false;
  // A message that a process sent on a former connection is read after the
  // process has reconnected.
  bool hears_former_connections = false;
  // A daemon frees bytes locked by a process that has not connected yet.
  bool ignores_locks = false;
  // A call that waits behind the gate asks only once.
  bool rings_once = false;
  // A process fills the same memory that it had handed to a daemon which died.
  bool fills_the_same_memory = false;
  // A process's gate opens before its memory is filled.
  bool opens_early = false;
  // Memory leaves whether or not the processes that have it open rest.
  bool leaves_borrowers = false;
  // A process goes on with its old mapping of another process's memory, or
  // without that memory.
  bool keeps_old_mapping = false;
  bool goes_on_without = false;
  // A mapping of an ended process's memory is assumed to hold the process's
  // last content.
  bool trusts_the_dead = false;
  // An exporter that does not answer is assumed to keep its memory.
  bool trusts_silence = false;
};

// A small FineServe whose engines' memory leaves the GPU and comes back
// (design note 0039), without sockets, memory or copies: the daemon's own
// MoveBook and Contents, and a model of Mover, of SocketServer and of the
// store's thread, whose messages and jobs wait in queues. A process has one
// allocation, whose content is a number. A word between two processes of an
// engine about memory that both have is one event, as the exporter's mutex
// makes it. Only a silent exporter reads questions later, before the next one.
//
// At any time, the memory that a process may compute with, its own or another
// one's, has the content that was written last, and the copy of one that is out
// has that, too. A mover has at
// most one order, and each Ask one answer. When all has come to rest, an engine
// that is needed is on the GPU, another is on one side with all its processes,
// unless one has failed, and the store holds what living processes brought.
class MoveWorld : public Choosing<MoveWorld> {
 public:
  explicit MoveWorld(const MoveOptions& options);
  MoveWorld(const MoveWorld&) = delete;
  MoveWorld& operator=(const MoveWorld&) = delete;

  // Lets one possible event happen, chosen by a number.
  void Happen(uint32_t random);
  // Lets everything under way finish and nothing new begin. Returns what is
  // wrong afterwards.
  std::string Settle();

  // Numbers of processes that have left, and that have returned.
  uint64_t left() const { return left_; }
  uint64_t returned() const { return returned_; }
  uint64_t shared() const { return shared_; }  // copies that were there already
  // Number of processes that left while another process had their memory open,
  // and of processes that ended because the memory which they had open was
  // gone.
  uint64_t left_open() const { return left_open_; }
  uint64_t lost() const { return lost_; }

 private:
  struct Message {
    enum Kind { kReport, kContents, kFill, kOrder, kCopied, kFilled };
    Kind kind;
    abi::MoveReport report = {};
    uint32_t order = 0;
    abi::Place to = abi::Place::kGpu;
    size_t memory = 0;  // kContents, kFill: handed over
    bool ok = false;    // kCopied, kFilled
    absl::optional<store::CopyPlace> copy = {};  // kCopied
    absl::optional<size_t> claim = {};           // with it
  };
  struct Connection {
    size_t process;
    bool open = true;        // for the process
    bool handled = true;     // by the daemon; false: its end was read, too
    uint32_t copying = 0;    // the order whose contents or fill the store has
    bool is_first = true;    // its first report is still to be sent
    bool was_heard = false;  // by the daemon
    std::deque<Message> up = {}, down = {};
  };
  enum class Doing { kWaits, kCopies, kFills };
  struct Process {
    size_t engine;
    pid_t pid;
    bool alive = true;
    bool buried = false;
    bool stopped = false;
    absl::optional<size_t> connection;
    abi::Place place = abi::Place::kGpu;
    bool gate_open = true;
    absl::optional<size_t> memory;  // mapped
    absl::optional<size_t> filled;  // handed over to be filled
    uint64_t wrote = 0;             // the content that its memory has to have
    absl::optional<store::CopyPlace> copy;
    absl::optional<size_t> claim;  // its descriptor of the copy's file
    Doing doing = Doing::kWaits;
    abi::MoveReport report = {};
    bool needs = false;  // a call waits behind the gate
    bool rung = false;
    bool has_rung = false;
    bool goes_on = false;     // once it is filled, as it is ordered to
    uint32_t departures = 0;  // of its memory
    // The process whose memory this process has open, and what is mapped of
    // that memory.
    absl::optional<size_t> exporter;
    absl::optional<size_t> opened;
    uint32_t opened_departures = 0;
    bool rests = false;  // and has to ask for it before it goes on
    bool may_be_old = false;
    // The process that has this process's memory open.
    absl::optional<size_t> borrower;
    bool borrower_rests = false;
    uint32_t unread_rests = 0;  // sent while it was silent
  };
  struct Job {
    enum Kind { kKeep, kFill, kCommit, kCancel, kReturn, kForget, kAdopt };
    Kind kind;
    size_t process;
    uint32_t order = 0;
    size_t memory = 0;
    uint64_t print = 0;  // of the memory when the fingerprint was computed
    bool is_out = false;
    absl::optional<store::CopyPlace> copy = {};
    absl::optional<size_t> claim = {};
  };
  // An open file description with a lock on a copy. It ends with its last
  // descriptor: a process's, the daemon's or one in transit.
  struct Claim {
    store::CopyPlace copy;
    bool is_locked = true;
  };
  struct Claims {  // the daemon's descriptors, as Store has them
    absl::optional<size_t> held;
    absl::optional<size_t> pending;
  };

  void OpenDaemon();
  // The possible events; the argument is a process, a connection or an engine.
  void Write(size_t p);
  void WriteOpened(size_t p);
  void GoOnAlone(size_t p);
  void Touch(size_t p);
  void Ring(size_t p);
  void AnswerBell(size_t p);
  void Connect(size_t p);
  void Receive(size_t p);
  void Refuse(size_t p);
  void GiveUp(size_t p);
  void HelpAlone(size_t p);
  void Die(size_t p);
  void Stop(size_t p);
  void GoOn(size_t p);
  void Deliver(size_t c);
  void Bury(size_t p);
  void RunJob(size_t);
  void FinishOldFill(size_t);
  void AskOut(size_t e);
  void AskBack(size_t e);
  void Leave(size_t e);
  void Need(size_t e);
  void Wait(size_t);
  void Crash(size_t);
  void Restart(size_t);

  // A process, as Mover.
  void Report(Process* p, bool is_needed);
  void Result(Process* p, bool done);
  void Obey(Process* p, const Message& order);
  static void OpenGate(Process* p);
  static void Rest(Process* p);
  void TellExporter(Process* p);
  void Leave(Process* p);
  void ComeBack(Process* p);
  bool GoOn(Process* p);
  bool AskForOpened(Process* p);
  bool Stays(const Process& p) const;
  bool IsSilent();
  void CheckOpened(const Process& p);
  void Copied(Process* p, const Message& copied);
  void Return(Process* p, size_t memory);
  void FillItself(Process* p);
  bool HasRoom() const;
  void LoseConnection(Process* p);
  // The daemon, modelled on SocketServer and StoreThread.
  void HandleReport(size_t c, const Message& message);
  void CloseEnd(size_t c);
  void CloseConnections(size_t process, size_t before);
  void CarryOut();
  void RunKeep(const Job& job);
  void RunFill(const Job& job);
  void SendResult(const Job& job, Message answer);
  void Post(Job::Kind kind, size_t p);
  void Free(const store::Contents::Freed& freed);
  void Unclaim(absl::optional<size_t>* claim);
  bool IsOpen(size_t claim) const;
  bool IsLocked(const store::CopyPlace& copy) const;

  bool IsConnected(const Process& p) const;
  bool IsWaiting(const Process& p) const;
  bool Rests() const;
  void Check();
  void CheckRest();
  static std::pair<uint32_t, uint64_t> KeyOf(const store::CopyPlace& place) {
    return {place.file, place.offset};
  }
  static store::HolderId HolderOf(const Process& p) {
    return store::HolderId{static_cast<uint32_t>(p.pid)};
  }

  const MoveOptions options_;
  ManualClock clock_;
  std::vector<Process> processes_;
  std::deque<Connection> connections_;
  std::vector<uint64_t> memory_;  // contents, by number
  // Bytes in the store's files, which outlive their daemon while they are held.
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> files_;
  std::vector<Claim> claims_;
  // The daemon; null: it has died.
  std::unique_ptr<server::MoveBook> book_;
  std::unique_ptr<store::Contents> contents_;
  std::map<size_t, Claims> kept_claims_;  // by process
  std::deque<Job> jobs_;
  std::vector<Job> old_fills_;  // copies that a dead daemon's GPU still makes
  uint32_t daemons_ = 0;
  uint64_t copies_ = 0;
  std::map<uint64_t, size_t> orders_;  // a connection's, without a result
  std::set<uint64_t> asked_;           // without an answer
  uint64_t last_asker_ = 1'000'000;
  std::set<size_t> wanted_;  // engines that requests wait for
  uint32_t crashes_ = 0, deaths_ = 0, drops_ = 0, stops_ = 0, silences_ = 0;
  uint32_t dice_ = 0;  // the last random number
  uint32_t room_;
  bool settles_ = false;
  bool disturbed_ = false;  // an engine may be on both sides
  uint64_t writes_ = 0;
  uint64_t left_ = 0, returned_ = 0, shared_ = 0, left_open_ = 0, lost_ = 0;
};

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_MOVE_WORLD_H_
