// The part of SocketServer that moves engines' resident memory, as MoveBook
// decides.

#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/log/log.h"
#include "daemon/fineserved/pool_service/pool_sizing.h"
#include "daemon/fineserved/server/peer_connection.h"
#include "daemon/fineserved/server/socket_server.h"

namespace fineserve::server {

using abi::Place;
using abi::RefusalCode;

namespace {

// Pause between two tries to bring back an engine for which requests wait.
constexpr uint64_t kTryAgainNs = 1'000'000'000;

// Limit on the CarryRequests of one connection that wait for their answers.
constexpr size_t kMostCarried = 4;

const char* WordsOf(Place place) {
  if (place == Place::kDropped) return "dropped, and read from another process";
  return place == Place::kHost ? "on the host" : "on the GPU";
}

RefusalCode CodeOfMove(const absl::Status& move) {
  if (absl::IsNotFound(move)) return RefusalCode::kElsewhere;
  if (absl::IsResourceExhausted(move)) return RefusalCode::kPoolExhausted;
  return RefusalCode::kMove;
}

}  // namespace

// Returns a connection's address in memory, which is unique while the
// connection lives.
uint64_t SocketServer::NumberOf(const PeerConnection* c) {
  return reinterpret_cast<uintptr_t>(c);
}

PeerConnection* SocketServer::Numbered(uint64_t number) {
  for (PeerConnection& c : connections_) {
    if (NumberOf(&c) == number) return &c;
  }
  return nullptr;
}

bool SocketServer::HandleMover(PeerConnection* c, abi::Received* received) {
  abi::MoveReport report;
  const bool is_report = received->As(&report);
  const bool follows = is_report && (report.seat == abi::Seat::kRank ||
                                     report.seat == abi::Seat::kPool);
  if (follows != c->is_follower ||
      (is_report && !abi::IsTerminated(report.why))) {
    return Dropped();
  }
  if (received->header()->type == abi::MessageType::kMoveFill) {
    return HandleFill(c, received);
  }
  if (received->header()->type == abi::MessageType::kMoveCompare) {
    return HandleCompare(c, received);
  }
  if (!is_report) return HandleContents(c, received);
  if (received->descriptor_count() > 1) {
    Adopt(*c, report.place == Place::kHost, received);
  }
  return HandleReport(c, report);
}

bool SocketServer::HandleReport(PeerConnection* c,
                                const abi::MoveReport& report) {
  const bool is_out = report.place == Place::kHost;
  if (!c->is_follower) NoteMemory(c, report);
  if (report.order != 0) LogFailure(*c, report);
  c->move_sequence = report.header.sequence;
  abi::MoveReport counted = report;
  if (report.need == abi::Need::kReturn && MustWaitToCome(c->engine)) {
    counted.need = abi::Need::kNone;  // it will ask again
  }
  moves_.Report(MoveBook::MoverId{NumberOf(c)}, c->engine, counted);
  // Only engines of one process drop parameters. An operator's cap stays as it
  // is.
  if (report.seat == abi::Seat::kWhole) {
    pool_->machine()->SetDropped(
        c->engine, report.place == Place::kDropped ? report.out_bytes : 0,
        /*raises_cap=*/c->share.cap_bytes == 0);
  }
  if (report.need == abi::Need::kRoom) LetGo(c);
  CarryOutMoves();
  if (report.order != 0 && report.lacks_room != 0 && !c->is_follower) {
    MakeRoomFor(c->engine, moves_.EvictedBytes(c->engine), /*may_rest=*/true);
  } else if (report.order != 0 && is_out && report.failed == 0) {
    needed_ns_.clear();  // memory has come free: those that lacked it may try
    if (sizing_ != nullptr) sizing_->CameFree();
  }
  return true;
}

// Handles a message that another GPU of the engine needs the memory of its rank
// there.
void SocketServer::LetGo(PeerConnection* c) {
  if (moves_.StayOut(c->engine)) return;
  if (let_go_(c->engine)) {
    moves_.StayOut(c->engine);  // counts from when it has left
  } else {
    moves_.Decline(MoveBook::MoverId{NumberOf(c)});
  }
}

// Called for a process whose memory is on this GPU or in its store.
void SocketServer::NoteMemory(PeerConnection* c,
                              const abi::MoveReport& report) {
  const store::HolderId holder = HolderOf(c->peer.pid);
  const bool is_out = report.place == Place::kHost;
  if (store_ != nullptr && report.header.sequence == 1) store_->Prepare();
  c->handed.clear();  // an eviction that failed halfway
  c->filling = 0;
  if (store_ != nullptr && is_out) store_->Commit(holder);
  if (store_ != nullptr && !is_out) {
    store_->Cancel(holder);
    store_->Return(holder);
  }
  if (!is_out) {
    needed_ns_.erase(c->engine);
    EndTurn(c->engine);
  }
}

// Logs each reason once, since an engine for which requests wait tries every
// second.
void SocketServer::LogFailure(const PeerConnection& c,
                              const abi::MoveReport& report) {
  if (report.failed == 0) {
    failures_.erase(c.engine);
    return;
  }
  std::string& last = failures_[c.engine];
  if (last == report.why) return;
  last = report.why;
  log::Warning("engine {} (pid {}): its memory was not moved: {}",
               slab::Number(c.engine), c.peer.pid, report.why);
}

void SocketServer::Adopt(const PeerConnection& c, bool is_out,
                         abi::Received* received) {
  if (store_ == nullptr) return;
  driver::Descriptor inventory(received->TakeDescriptor(0));
  std::vector<driver::Descriptor> files;
  for (uint32_t i = 1; i < received->descriptor_count(); ++i) {
    files.emplace_back(received->TakeDescriptor(i));
  }
  store_->Adopt(HolderOf(c.peer.pid), is_out, std::move(inventory),
                std::move(files));
}

// Takes what a MoveContents or a MoveFill hands over. False if the message is
// wrong.
template <typename Message>
static bool TakeHanded(abi::Received* received, Message* message,
                       std::vector<store::Handed>* handed) {
  if (!received->As(message) || message->order == 0 ||
      message->count > abi::kContentsPerMessage ||
      message->count != received->descriptor_count()) {
    return false;
  }
  for (uint32_t i = 0; i < message->count; ++i) {
    const auto& entry = message->entries[i];
    handed->push_back({entry.number, entry.bytes,
                       driver::Descriptor(received->TakeDescriptor(i))});
  }
  return true;
}

bool SocketServer::HandleContents(PeerConnection* c, abi::Received* received) {
  abi::MoveContents message;
  if (store_ == nullptr || c->handed.size() >= abi::kMostAllocations ||
      !TakeHanded(received, &message, &c->handed)) {
    return Dropped();
  }
  if (message.is_last == 0) return true;
  c->move_sequence = message.header.sequence;
  c->copying = message.order;
  store_->Keep(HolderOf(c->peer.pid), message.order,
               std::exchange(c->handed, {}));
  return true;
}

bool SocketServer::HandleFill(PeerConnection* c, abi::Received* received) {
  abi::MoveFill message;
  std::vector<store::Handed> memory;
  if (store_ == nullptr || !TakeHanded(received, &message, &memory) ||
      c->filling + message.count > abi::kMostAllocations) {
    return Dropped();
  }
  moves_.Fills(c->engine);
  c->filling = message.is_last != 0 ? 0 : c->filling + message.count;
  c->move_sequence = message.header.sequence;
  c->copying = message.order;
  store_->Fill(HolderOf(c->peer.pid), message.order, std::move(memory),
               message.total, message.is_last != 0);
  return true;
}

bool SocketServer::HandleCompare(PeerConnection* c, abi::Received* received) {
  abi::MoveCompare message;
  if (store_ == nullptr || c->handed.size() >= 2 * abi::kMostAllocations ||
      !TakeHanded(received, &message, &c->handed)) {
    return Dropped();
  }
  if (message.is_last == 0) return true;
  c->move_sequence = message.header.sequence;
  c->copying = message.order;
  store_->Compare(HolderOf(c->peer.pid), message.order,
                  std::exchange(c->handed, {}));
  return true;
}

// The order must match too, since a former connection of the process may still
// exist.
void SocketServer::AnswerCopied() {
  for (const store::StoreThread::Result& result : store_->Take()) {
    const bool is_carry = result.of == store::StoreThread::Work::kCarry;
    const auto asker = std::find_if(
        connections_.begin(), connections_.end(), [&](const PeerConnection& c) {
          return HolderOf(c.peer.pid) == result.holder &&
                 (is_carry ? c.carrying.contains(result.order)
                           : c.copying == result.order);
        });
    if (asker == connections_.end()) continue;
    switch (result.of) {
      case store::StoreThread::Work::kKeep:
        SendCopied(&*asker, result);
        break;
      case store::StoreThread::Work::kFill:
        SendFilled(&*asker, result.order, result.kept.status());
        break;
      case store::StoreThread::Work::kCompare:
        SendCompared(&*asker, result.order, result.kept.status());
        break;
      case store::StoreThread::Work::kCarry:
        SendCarried(&*asker, result.order, result.kept.status());
        break;
    }
  }
}

// Sends a copy's result. If it cannot be sent, the connection has ended, and
// its end is handled elsewhere.
void SocketServer::SendCopied(PeerConnection* c,
                              const store::StoreThread::Result& result) {
  c->copying = 0;
  auto copied = abi::MakeMessage<abi::MoveCopied>(c->move_sequence);
  copied.order = result.order;
  std::vector<int> descriptors;
  if (result.kept.ok()) {
    copied.copied_bytes = result.kept->copied_bytes;
    descriptors.push_back(result.kept->inventory.get());
    for (const driver::Descriptor& file : result.kept->files) {
      descriptors.push_back(file.get());
    }
    log::Info("pid {}: {} bytes were copied to the store", c->peer.pid,
              copied.copied_bytes);
  } else {
    copied.failed = 1;
    abi::CopyText(copied.why,
                  std::string(result.kept.status().message()).c_str());
  }
  abi::Send(c->socket.get(), copied, descriptors.data(),
            static_cast<uint32_t>(descriptors.size()));
}

void SocketServer::SendFilled(PeerConnection* c, uint32_t order,
                              const absl::Status& status) {
  c->copying = 0;
  auto filled = abi::MakeMessage<abi::MoveFilled>(c->move_sequence);
  filled.order = order;
  if (!status.ok()) {
    filled.result = absl::IsDataLoss(status) ? abi::FillResult::kLost
                                             : abi::FillResult::kFailed;
    abi::CopyText(filled.why, std::string(status.message()).c_str());
  }
  abi::Send(c->socket.get(), filled);
}

void SocketServer::SendCompared(PeerConnection* c, uint32_t order,
                                const absl::Status& status) {
  c->copying = 0;
  auto compared = abi::MakeMessage<abi::MoveCompared>(c->move_sequence);
  compared.order = order;
  compared.differ = status.ok() ? 0 : 1;
  abi::CopyText(compared.why, std::string(status.message()).c_str());
  abi::Send(c->socket.get(), compared);
}

bool SocketServer::HandleMove(PeerConnection* c, const abi::MoveRequest& r) {
  if (r.to != Place::kGpu && r.to != Place::kHost) {
    return Refuse(c, r.header.sequence, RefusalCode::kMove,
                  "memory can move to the GPU or to the host only");
  }
  c->move_sequence = r.header.sequence;
  moves_.Ask(MoveBook::AskerId{NumberOf(c)}, slab::EngineId{r.engine_id}, r.to);
  CarryOutMoves();
  return true;
}

bool SocketServer::HandleDrop(PeerConnection* c, const abi::DropRequest& r) {
  c->move_sequence = r.header.sequence;
  moves_.Ask(MoveBook::AskerId{NumberOf(c)}, slab::EngineId{r.engine_id},
             Place::kDropped, {r.lender, r.bytes});
  CarryOutMoves();
  return true;
}

bool SocketServer::HandleStore(PeerConnection* c, const abi::StoreRequest& r) {
  auto answer = abi::MakeMessage<abi::StoreAnswer>(r.header.sequence);
  if (store_ != nullptr) {
    const metrics::StoreFigures figures = store_->figures();
    answer.held_bytes = figures.held_bytes;
    answer.spare_bytes = figures.spare_bytes;
    answer.unshared_bytes = figures.unshared_bytes;
    answer.limit_bytes = figures.limit_bytes;
    answer.copied_bytes = figures.copied_bytes;
    answer.found_bytes = figures.found_bytes;
    answer.copies = figures.copies;
  }
  return abi::Send(c->socket.get(), answer) == 0;
}

bool SocketServer::HandleOffer(PeerConnection* c, const abi::OfferRequest& r) {
  auto answer = abi::MakeMessage<abi::OfferAnswer>(r.header.sequence);
  std::shared_ptr<const store::Offer> offer;
  std::vector<int> descriptors;
  if (store_ != nullptr) {
    answer.others_bytes = store_->figures().others_bytes;
    offer = store_->offer();
  }
  if (offer != nullptr) {
    descriptors.push_back(offer->inventory.get());
    for (const driver::Descriptor& file : offer->files) {
      descriptors.push_back(file.get());
    }
  }
  return abi::Send(c->socket.get(), answer, descriptors.data(),
                   static_cast<uint32_t>(descriptors.size())) == 0;
}

// Copies another daemon's memory back over this GPU's link.
bool SocketServer::HandleCarry(PeerConnection* c, abi::Received* received) {
  abi::CarryRequest request;
  if (c->engine != slab::kNoEngine || !received->As(&request)) return Dropped();
  const uint32_t sequence = request.header.sequence;
  if (received->descriptor_count() != 2 || c->carrying.size() >= kMostCarried) {
    return Refuse(c, sequence, RefusalCode::kMove,
                  "this process has too many open files, or too much to copy");
  }
  store::Transfer whole = {
      std::make_shared<const driver::Descriptor>(received->TakeDescriptor(0)),
      request.file_offset,
      {0, request.memory_bytes,
       driver::Descriptor(received->TakeDescriptor(1))}};
  if (store_ == nullptr ||
      !store_->Carry(HolderOf(c->peer.pid), sequence, std::move(whole),
                     request.offset, request.bytes)) {
    return Refuse(c, sequence, RefusalCode::kMove,
                  "this GPU has memory of its own to move");
  }
  c->carrying.insert(sequence);
  return true;
}

// Closes the connection if something may still be written; otherwise answers.
void SocketServer::SendCarried(PeerConnection* c, uint32_t sequence,
                               const absl::Status& status) {
  c->carrying.erase(sequence);
  if (status.ok()) {
    abi::Send(c->socket.get(), abi::MakeMessage<abi::CarryDone>(sequence));
  } else if (absl::IsAborted(status)) {
    shutdown(c->socket.get(), SHUT_RDWR);
  } else {
    Refuse(c, sequence,
           absl::IsFailedPrecondition(status) ? RefusalCode::kWrongGpu
                                              : RefusalCode::kMove,
           std::string(status.message()));
  }
}

void SocketServer::Need(slab::EngineId engine) {
  if (MustWaitToCome(engine)) return;
  const uint64_t now_ns = clock_->NowNs();
  const auto tried = needed_ns_.find(engine);
  if (tried != needed_ns_.end() && now_ns < tried->second + kTryAgainNs) return;
  if (!moves_.Need(engine)) return;
  needed_ns_[engine] = now_ns;
  log::Info("engine {}: it is needed: bringing its memory back",
            slab::Number(engine));
  CarryOutMoves();
}

bool SocketServer::Evict(slab::EngineId engine) {
  if (!moves_.Leave(engine)) return false;
  CarryOutMoves();
  return true;
}

bool SocketServer::Drop(slab::EngineId engine, const ParameterDrop& drop) {
  if (!moves_.Drop(engine, drop)) return false;
  CarryOutMoves();
  return true;
}

bool SocketServer::Restore(slab::EngineId engine) {
  if (!moves_.Restore(engine)) return false;
  CarryOutMoves();
  return true;
}

void SocketServer::CarryOutMoves() {
  for (const MoveBook::Order& order : moves_.TakeOrders()) GiveOrder(order);
  for (const MoveBook::Answer& answer : moves_.TakeAnswers()) {
    PeerConnection* const c = Numbered(static_cast<uint64_t>(answer.asker));
    if (c == nullptr) continue;
    if (!answer.status.ok()) {
      Refuse(c, c->move_sequence, CodeOfMove(answer.status),
             std::string(answer.status.message()));
      continue;
    }
    abi::MoveDone done = answer.done;
    done.header = abi::MakeMessage<abi::MoveDone>(c->move_sequence).header;
    log::Info("engine {}: {} bytes are {}", done.engine_id, done.bytes,
              WordsOf(done.place));
    abi::Send(c->socket.get(), done);
  }
}

// Sends an order. A failure to send is ignored: the connection has then ended,
// and the mover will connect again.
void SocketServer::GiveOrder(const MoveBook::Order& order) {
  PeerConnection* const c = Numbered(static_cast<uint64_t>(order.mover));
  if (c == nullptr) return;
  if (order.to == Place::kDropped) {
    auto drop = abi::MakeMessage<abi::DropOrder>(c->move_sequence);
    drop.order = order.number;
    drop.lender = order.drop.lender;
    drop.bytes = order.drop.bytes;
    abi::Send(c->socket.get(), drop);
    return;
  }
  auto message = abi::MakeMessage<abi::MoveOrder>(c->move_sequence);
  message.order = order.number;
  message.to = order.to;
  abi::Send(c->socket.get(), message);
}

}  // namespace fineserve::server
