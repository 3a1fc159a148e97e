// The part of SocketServer that serves views.

#include <string>

#include "daemon/base/log/log.h"
#include "daemon/fineserved/pool_service/pool_sizing.h"
#include "daemon/fineserved/server/peer_connection.h"
#include "daemon/fineserved/server/socket_server.h"

namespace fineserve::server {

using abi::RefusalCode;
using slab::LeaseId;

namespace {

RefusalCode CodeOf(const absl::Status& s) {
  if (absl::IsInvalidArgument(s)) return RefusalCode::kFormat;
  if (absl::IsResourceExhausted(s) || absl::IsUnavailable(s)) {
    return RefusalCode::kPoolExhausted;
  }
  return RefusalCode::kView;
}

bool IsMode(abi::ViewMode mode) {
  return mode >= abi::ViewMode::kView && mode <= abi::ViewMode::kStrict;
}

}  // namespace

bool SocketServer::RefuseView(PeerConnection* c, uint32_t sequence,
                              const absl::Status& s) {
  log::Warning("refused pid {} a view: {}", c->peer.pid,
               std::string(s.message()));
  return Refuse(c, sequence, CodeOf(s), std::string(s.message()));
}

bool SocketServer::HandleView(PeerConnection* c, const abi::ViewRequest& r) {
  if (!IsMode(r.mode) || !abi::IsValid(r.shape) ||
      (r.flags & ~(abi::kViewOfGroup | abi::kViewIsRegistered)) != 0) {
    return Dropped();
  }
  c->view_deadline_ns = clock_->NowNs() + slab::PoolState::kLeaseWaitNs;
  return RegisterView(c, r);
}

bool SocketServer::MayGrowFor(const PeerConnection& c,
                              const slab::ViewSpec& spec) {
  return sizing_ != nullptr &&
         sizing_->AwaitSlabs(pool_->state().LackFor(c.engine, spec, c.share));
}

// True if other engines' floors may become free. An idle engine that leaves
// frees its floor. A pool that may grow also gets the memory of engines without
// a floor.
bool SocketServer::MayGetFloorOfOthers(const PeerConnection& c,
                                       const slab::ViewSpec& spec) {
  const slab::PoolState& pool = pool_->state();
  const uint32_t lack = pool.LackFor(c.engine, spec, c.share);
  return lack < pool.present_slabs() &&
         MakeRoomFor(c.engine, /*bytes=*/0, /*may_rest=*/true, lack) ==
             evict::Room::kComes;
}

bool SocketServer::RegisterView(PeerConnection* c, const abi::ViewRequest& r) {
  const slab::ViewSpec spec = {r.mode,
                               {r.planes, r.page_bytes, r.block_tokens},
                               r.floor_blocks,
                               r.cap_blocks,
                               (r.flags & abi::kViewOfGroup) != 0,
                               r.shape,
                               (r.flags & abi::kViewIsRegistered) != 0};
  const absl::Status s =
      pool_->RegisterView(c->engine, c->peer.pid, spec, c->share);
  c->waiting_view.reset();
  const bool may_fit =
      absl::IsUnavailable(s) ||
      (absl::IsResourceExhausted(s) &&
       (MayGrowFor(*c, spec) || MayGetFloorOfOthers(*c, spec)));
  if (may_fit && clock_->NowNs() < c->view_deadline_ns) {
    c->waiting_view = r;
    return true;
  }
  if (!s.ok()) return RefuseView(c, r.header.sequence, s);
  const slab::SlabLayout& layout = pool_->state().Layout(c->engine);
  const abi::ViewRecord view = pool_->state().Record(c->engine).view;
  auto answer = abi::MakeMessage<abi::ViewAnswer>(r.header.sequence);
  answer.plane_bytes = layout.plane_bytes();
  answer.granules_per_plane = layout.granules_per_plane();
  answer.slab_count = identity_.geometry.slab_count;
  answer.engine_slot = pool_->state().SlotOf(c->engine);
  answer.floor_slabs = view.floor;
  answer.cap_slabs = view.cap;
  const int scoreboard = pool_->ScoreboardOf(c->engine)->descriptor();
  return abi::Send(c->socket.get(), answer, &scoreboard, 1) == 0;
}

bool SocketServer::HandlePoolGranules(PeerConnection* c,
                                      const abi::PoolGranuleRequest& r) {
  return ExportGranules(c, r.header.sequence, /*lease=*/0, r.first,
                        r.max_count);
}

bool SocketServer::HandleActivate(PeerConnection* c,
                                  const abi::ActivateRequest& r) {
  const absl::Status s =
      pool_->ActivateView(c->engine, c->peer.pid, r.slabs, r.wanted);
  if (!s.ok()) return RefuseView(c, r.header.sequence, s);
  const abi::ViewRecord view = pool_->state().Record(c->engine).view;
  log::Info(
      "engine {}: view active, {} planes × {} bytes, floor {}, cap {} slabs",
      slab::Number(c->engine), view.planes, view.page_bytes, view.floor,
      view.cap);
  const auto done = abi::MakeMessage<abi::ActivateDone>(r.header.sequence);
  return abi::Send(c->socket.get(), done) == 0;
}

bool SocketServer::HandleRunPool(PeerConnection* c,
                                 const abi::RunPoolRequest& r) {
  const absl::Status s = pool_->machine()->RunPool(c->engine, c->peer.pid);
  if (!s.ok()) return RefuseView(c, r.header.sequence, s);
  const slab::SlabLayout& layout = pool_->state().Layout(c->engine);
  const abi::ViewRecord view = pool_->state().Record(c->engine).view;
  auto answer = abi::MakeMessage<abi::RunPoolAnswer>(r.header.sequence);
  answer.plane_bytes = layout.plane_bytes();
  answer.page_bytes = view.page_bytes;
  answer.engine_slot = pool_->state().SlotOf(c->engine);
  answer.slabs = view.slabs;
  answer.floor_slabs = view.floor;
  answer.cap_slabs = view.cap;
  answer.slab_count = identity_.geometry.slab_count;
  const int scoreboard = pool_->ScoreboardOf(c->engine)->descriptor();
  return abi::Send(c->socket.get(), answer, &scoreboard, 1) == 0;
}

bool SocketServer::HandleCloseView(PeerConnection* c,
                                   const abi::CloseViewRequest& r) {
  if (r.suspended > 1) return Dropped();
  const bool suspended = r.suspended == 1;
  const absl::Status s =
      suspended ? pool_->machine()->SuspendView(c->engine, c->peer.pid)
                : pool_->machine()->CloseView(c->engine, c->peer.pid);
  if (!s.ok()) return RefuseView(c, r.header.sequence, s);
  log::Info("engine {}: view {}", slab::Number(c->engine),
            suspended ? "suspended" : "closed");
  const auto done = abi::MakeMessage<abi::CloseViewDone>(r.header.sequence);
  return abi::Send(c->socket.get(), done) == 0;
}

bool SocketServer::HandleWant(PeerConnection* c,
                              const abi::WantNotice& notice) {
  if (!pool_->Want(c->engine, c->peer.pid, notice.wanted)) Dropped();
  return true;
}

bool SocketServer::HandleReturnNotice(PeerConnection* c,
                                      const abi::ReturnNotice& notice) {
  if (notice.count > abi::kReturnNoticeCapacity) return Dropped();
  for (uint32_t i = 0; i < notice.count; ++i) {
    const abi::ReturnNotice::Entry& entry = notice.entries[i];
    const absl::Status s = pool_->machine()->ReturnSlab(
        c->engine, c->peer.pid, slab::SlabId{entry.slab}, LeaseId{entry.lease});
    if (s.ok()) continue;
    Dropped();
    log::Warning("pid {}: {}", c->peer.pid, std::string(s.message()));
  }
  return true;
}

void SocketServer::Settle() {
  for (PeerConnection& c : connections_) {
    WelcomeObserver(&c);
    if (c.waiting_view) {
      const abi::ViewRequest request = *c.waiting_view;
      RegisterView(&c, request);
    }
    if (c.waiting_whole) {
      const abi::LeaseRequest request = *c.waiting_whole;
      LeaseOrWait(&c, request);
    }
  }
  Answer();
}

}  // namespace fineserve::server
