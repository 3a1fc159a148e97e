#ifndef DAEMON_FINESERVED_SERVER_SOCKET_SERVER_H_
#define DAEMON_FINESERVED_SERVER_SOCKET_SERVER_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/transport.h"
#include "daemon/fineserved/eviction/move_book.h"
#include "daemon/fineserved/pool_service/pool_service.h"
#include "daemon/fineserved/server/event_loop.h"
#include "daemon/fineserved/store/store_thread.h"
#include "daemon/pool/table_writer.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::server {

struct PeerConnection;
class PoolSizing;

// Speaks daemon/contract/abi/messages.h with shims and observers, and watches
// its members' lives. Confined to the loop's thread.
//
// Trust. A peer is accepted if it runs as our user or as root, in our pid
// namespace; each of its messages must carry the pid that said Hello. Any other
// datagram is dropped, counted, and ends the connection. The end of a
// connection says nothing about the process: a forked child may hold the socket
// open, and a living process may close it while its memory stays mapped. Only a
// pidfd says that a member has exited, or its image that another program has
// replaced it (exec), which has nothing mapped; its connections are no longer
// read.
//
// One class, in a file for each kind of request: each handler answers from the
// fields of its connection, and the end of a connection or a process touches
// the work of all of them. Parts that owned the leases or the moves would call
// each other for each message. State that needs no connection
// is apart: MoveBook, PoolService, PoolSizing, StoreThread.
class SocketServer {
 public:
  // The configuration's rules on an engine's KV.
  struct KvRules {
    std::vector<uint64_t> sizes;    // bytes of one allocation
    std::vector<abi::Rule> frames;  // in the order in which they are tried
    slab::ShareLimits share = {};
  };
  using KvRulesOf = std::function<KvRules(const std::string& engine_name)>;

  // All must outlive this object.
  SocketServer(EventLoop* loop, PoolService* pool, slab::TableWriter* table,
               const slab::TableIdentity& identity, const Clock* clock,
               KvRulesOf rules_of);
  ~SocketServer();

  // Watches the members of a pool that a former daemon has left, and reports
  // members that have ended since.
  void WatchMembers();

  // Takes over a listening SOCK_SEQPACKET socket.
  void Listen(driver::Descriptor listener);

  // Answers the requests that waited for the pool. Call it whenever the pool
  // has settled.
  void Settle();

  // Brings the engine's memory back if it was evicted, because requests wait
  // for it. May be called at any rate; after a failure it tries once a second.
  void Need(slab::EngineId engine);
  // Lets the engine's memory leave the GPU, if it can and is idle. False if the
  // memory is already away or moving.
  bool Evict(slab::EngineId engine);
  // Drop has the engine drop its parameters and read the lender's; Restore has
  // it get them back. False if nothing begins.
  bool Drop(slab::EngineId engine, const ParameterDrop& drop);
  bool Restore(slab::EngineId engine);
  // Called when an engine finds no room on the GPU
  // (AdmissionService::MakeRoom).
  using MakeRoom = std::function<evict::Room(slab::EngineId asker,
                                             evict::Lack lack, bool may_rest)>;
  void SetMakeRoom(MakeRoom make_room) { make_room_ = std::move(make_room); }

  // Called when the GPU of another rank needs the engine's room
  // (AdmissionService::LetGo). If none is set, the engine's processes decide.
  using LetGoEngine = std::function<bool(slab::EngineId)>;
  void SetLetGo(LetGoEngine let_go) { let_go_ = std::move(let_go); }

  // Sets where evicted memory goes; without a store, engines stay on the GPU.
  // It must outlive this object.
  void SetStore(store::StoreThread* store) { store_ = store; }
  // Answers engines whose memory has been copied. Call it when the store's
  // descriptor is readable.
  void AnswerCopied();

  // From now on, processes may ask for room, and floors and leases of whole
  // slabs wait for the pool to grow. If null, the pool's size is fixed.
  // `sizing` must outlive this object or stay valid until the next call.
  void SetSizing(PoolSizing* sizing) { sizing_ = sizing; }

  const MoveBook& moves() const { return moves_; }

 private:
  struct Member;

  void Accept();
  void RestFromAccepting();
  void OnReadable(PeerConnection* connection);
  // Handles one datagram; false ends the connection.
  bool Handle(PeerConnection* c, abi::Received* received);
  bool HandleHello(PeerConnection* c, const abi::Received& received);
  bool Join(PeerConnection* c, const abi::Hello& hello);
  absl::StatusOr<slab::EngineId> EngineFor(const PeerConnection& c,
                                           const abi::Hello& hello,
                                           uint64_t image);
  bool HandleLease(PeerConnection* c, const abi::LeaseRequest& request);
  void LeaseOrWait(PeerConnection* c, const abi::LeaseRequest& request);
  bool HandleGranules(PeerConnection* c, const abi::GranuleRequest& request);
  bool HandleRule(PeerConnection* c, const abi::RuleRequest& request);
  bool HandleReturn(PeerConnection* c, const abi::ReturnRequest& request);
  bool HandleMove(PeerConnection* c, const abi::MoveRequest& request);
  bool HandleDrop(PeerConnection* c, const abi::DropRequest& request);
  bool HandleStore(PeerConnection* c, const abi::StoreRequest& request);
  bool HandleOffer(PeerConnection* c, const abi::OfferRequest& request);
  bool HandleCarry(PeerConnection* c, abi::Received* received);
  bool HandleMover(PeerConnection* c, abi::Received* received);
  bool HandleReport(PeerConnection* c, const abi::MoveReport& report);
  void LetGo(PeerConnection* c);
  void NoteMemory(PeerConnection* c, const abi::MoveReport& report);
  bool HandleContents(PeerConnection* c, abi::Received* received);
  bool HandleFill(PeerConnection* c, abi::Received* received);
  bool HandleCompare(PeerConnection* c, abi::Received* received);
  void Adopt(const PeerConnection& c, bool is_out, abi::Received* received);
  void SendCopied(PeerConnection* c, const store::StoreThread::Result& result);
  void SendFilled(PeerConnection* c, uint32_t order,
                  const absl::Status& status);
  void SendCarried(PeerConnection* c, uint32_t sequence,
                   const absl::Status& status);
  void SendCompared(PeerConnection* c, uint32_t order,
                    const absl::Status& status);
  void LogFailure(const PeerConnection& c, const abi::MoveReport& report);
  static uint64_t NumberOf(const PeerConnection* c);
  PeerConnection* Numbered(uint64_t number);
  static store::HolderId HolderOf(pid_t pid) {
    return store::HolderId{static_cast<uint32_t>(pid)};
  }
  void CarryOutMoves();
  // Has others leave, so that the engine gets `bytes` of room on the GPU, or,
  // in a pool that cannot grow, `floor_slabs` of the others' floors.
  evict::Room MakeRoomFor(slab::EngineId engine, uint64_t bytes, bool may_rest,
                          uint32_t floor_slabs = 0);
  // Returns the bytes that may become free for a process that lacks `bytes`; 0
  // if none.
  uint64_t ComingFor(const PeerConnection& c, uint64_t bytes);
  // True if the memory that becomes free is reserved for another engine.
  bool MustWaitForRoom(slab::EngineId engine) const;
  // True also while another engine comes back: the two would take each other's
  // memory, and share the link.
  bool MustWaitToCome(slab::EngineId engine) const {
    return MustWaitForRoom(engine) || moves_.AnyOtherComes(engine);
  }
  void BeginTurn(slab::EngineId engine, uint64_t bytes);
  void EndTurn(slab::EngineId engine);
  void GiveOrder(const MoveBook::Order& order);
  bool HandleLimit(PeerConnection* c, const abi::LimitRequest& request);
  bool HandleRoom(PeerConnection* c, const abi::RoomRequest& request);
  bool HandleView(PeerConnection* c, const abi::ViewRequest& request);
  bool RegisterView(PeerConnection* c, const abi::ViewRequest& request);
  bool MayGetFloorOfOthers(const PeerConnection& c, const slab::ViewSpec& spec);
  bool MayGrowFor(const PeerConnection& c, const slab::ViewSpec& spec);
  bool HandlePoolGranules(PeerConnection* c, const abi::PoolGranuleRequest& r);
  bool HandleActivate(PeerConnection* c, const abi::ActivateRequest& request);
  bool HandleRunPool(PeerConnection* c, const abi::RunPoolRequest& request);
  bool HandleCloseView(PeerConnection* c, const abi::CloseViewRequest& request);
  bool HandleWant(PeerConnection* c, const abi::WantNotice& notice);
  bool HandleReturnNotice(PeerConnection* c, const abi::ReturnNotice& notice);
  // Answers with descriptors of granules, from number `first` on, of a lease
  // or, for a view (lease 0), of the pool, once the device has exported them.
  bool ExportGranules(PeerConnection* c, uint32_t sequence, uint32_t lease,
                      uint32_t first, uint32_t max_count);
  absl::StatusOr<std::vector<uint32_t>> GranulesFor(const PeerConnection& c,
                                                    uint32_t lease,
                                                    uint32_t first,
                                                    uint32_t max_count) const;
  void SendGranules(PeerConnection* c, const backing::Exported& exported);
  bool SendWelcome(PeerConnection* c, const abi::Hello& hello,
                   slab::EngineId engine);
  bool Refuse(PeerConnection* c, uint32_t sequence, abi::RefusalCode code,
              const std::string& text);
  bool RefuseHello(PeerConnection* c, uint32_t sequence, abi::RefusalCode code,
                   const std::string& text);
  bool RefuseView(PeerConnection* c, uint32_t sequence, const absl::Status& s);
  // Counts a message that is not carried out. Returns false, with which a
  // handler ends the connection.
  bool Dropped();
  PeerConnection* TakeWaiting(uint64_t ticket);
  uint64_t Await(PeerConnection* c, uint32_t sequence);
  void Answer();
  bool WelcomeObserver(PeerConnection* c);
  absl::Status GiveUp(PeerConnection* c, uint32_t request);
  void ReturnUnseen(slab::EngineId engine, slab::LeaseId lease);
  // Watches for the end of the process; an error if it cannot be watched.
  absl::Status Watch(pid_t pid, uint64_t image);
  void OnExit(pid_t pid, driver::Descriptor pidfd, uint64_t image);
  void EndFormerImage(pid_t pid, uint64_t image);
  void End(pid_t pid);
  void CloseMembers(pid_t pid);
  void CloseFormerMovers(const PeerConnection* mover);
  void Close(PeerConnection* c);

  EventLoop* const loop_;
  PoolService* const pool_;
  slab::TableWriter* const table_;
  const slab::TableIdentity identity_;
  const Clock* const clock_;
  const KvRulesOf rules_of_;
  PoolSizing* sizing_ = nullptr;
  store::StoreThread* store_ = nullptr;
  driver::Descriptor listener_;
  std::unique_ptr<EventSource> listener_source_;
  std::unique_ptr<EventAlarm> accept_alarm_;  // it accepts again
  bool lacks_descriptors_ = false;
  std::list<PeerConnection> connections_;
  std::map<pid_t, Member> members_;
  // Requests that wait for slabs or granules, by ticket.
  std::map<uint64_t, PeerConnection*> waiting_;
  uint64_t last_ticket_ = 0;
  MoveBook moves_;
  // For each engine that must come back and is not back yet, the time of the
  // last try.
  std::map<slab::EngineId, uint64_t> needed_ns_;
  // The engine for which others leave. No other engine comes back before this
  // one has its room, or has not asked for kTurnNs.
  absl::optional<slab::EngineId> makes_room_for_;
  uint64_t turn_ends_ns_ = 0;
  // The reason why an engine's last move failed, if it has not moved since.
  std::map<slab::EngineId, std::string> failures_;
  MakeRoom make_room_ = [](slab::EngineId, const evict::Lack&, bool) {
    return evict::Room::kNone;
  };
  LetGoEngine let_go_ = [this](slab::EngineId e) { return Evict(e); };
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_SERVER_SOCKET_SERVER_H_
