#include "daemon/server/leader_server.h"

#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/lead/plan_store.h"
#include "daemon/log/log.h"
#include "daemon/wire/message.h"

namespace fineserve::server {
namespace {

constexpr uint64_t kBeatUs = 1'000'000;

std::string TimeOfDay() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(),
                          absl::UTCTimeZone());
}

}  // namespace

LeaderServer::LeaderServer(const config::Fleet& fleet,
                           const lead::Contender& who,
                           const std::string& folder,
                           admission::PlanBoard* board, const Clock* clock,
                           EventLoop* loop)
    : fleet_(fleet),
      who_(who),
      folder_(folder),
      board_(board),
      clock_(clock),
      loop_(loop),
      contest_(folder, who),
      beat_(loop->OnAlarm([this] { Beat(); })) {
  beat_->Set(clock_->NowNs() / 1000);
}

LeaderServer::~LeaderServer() {
  board_->SetLeader(nullptr);
  board_->SetTrouble("");
}

void LeaderServer::SetFleet(const config::Fleet& fleet) {
  fleet_ = fleet;
  links_.clear();
  if (leader_ != nullptr) leader_->SetFleet(fleet);
}

metrics::PlanFigures LeaderServer::Measure() const {
  metrics::PlanFigures figures;
  figures.number = board_->newest().number();
  figures.moves = board_->moves();
  figures.troubles = !board_->trouble().empty();
  figures.leads = leader_ != nullptr;
  if (leader_ == nullptr) return figures;
  figures.frozen = leader_->plan().frozen;
  figures.moving = leader_->plan().move.has_value();
  figures.troubles += static_cast<uint32_t>(leader_->trouble_count());
  return figures;
}

void LeaderServer::Beat() {
  beat_->Set(clock_->NowNs() / 1000 + kBeatUs);
  HoldTheLead();
  if (leader_ == nullptr) TakeTheLead();
  if (leader_ == nullptr) return;
  ReceiveAll();
  leader_->Tick();
  board_->CountMoves(leader_->TakeNewMoves());
  Connect();
  Tell();
}

void LeaderServer::HoldTheLead() {
  if (leader_ == nullptr) return;
  const absl::Status s = leader_->Hold();
  if (!absl::IsFailedPrecondition(s)) return;
  log::Warning("leading no more: {}", std::string(s.message()));
  board_->SetLeader(nullptr);
  links_.clear();
  leader_.reset();
}

void LeaderServer::TakeTheLead() {
  absl::StatusOr<lead::LeadLock> lead = contest_.Try(clock_->NowNs());
  board_->SetTrouble(contest_.trouble());
  if (!lead.ok()) {
    if (!absl::IsFailedPrecondition(lead.status())) {
      log::Error("cannot lead: {}", std::string(lead.status().message()));
    }
    return;
  }
  leader_ = std::make_unique<lead::Leader>(
      fleet_, who_.gpu, lead::PlanStore::Open(folder_, *std::move(lead)),
      clock_, TimeOfDay);
  board_->SetLeader(leader_.get());
}

void LeaderServer::Connect() {
  std::set<std::string> gpus;
  for (const config::FleetEngine& e : fleet_.engines) gpus.insert(e.gpu);
  for (const std::string& gpu : gpus) {
    if (links_.count(gpu) > 0) continue;
    const absl::StatusOr<std::string> path =
        wire::FindAdmissionPath(folder_, gpu);
    if (!path.ok()) continue;  // Leader says which daemon does not answer
    absl::StatusOr<wire::ClientSocket> socket =
        wire::ClientSocket::Connect(*path);
    if (!socket.ok()) {
      log::Warning("{}", std::string(socket.status().message()));
      continue;
    }
    Link& link =
        links_.emplace(gpu, Link{*std::move(socket), nullptr}).first->second;
    link.readable = loop_->OnReadable(link.socket.descriptor(),
                                      [this, &link] { Receive(&link); });
  }
}

void LeaderServer::Tell() {
  for (auto& [gpu, link] : links_) {
    wire::PlanNoticeT notice;
    notice.plan = leader_->Told();
    // One that is not there now is told with the next beat.
    link.socket.Send(wire::Encode(0, 0, std::move(notice)));
    // Sending may have swallowed the signal that something can be read.
    Receive(&link);
  }
}

void LeaderServer::ReceiveAll() {
  for (auto& [gpu, link] : links_) Receive(&link);
}

void LeaderServer::Receive(Link* link) {
  while (const absl::optional<std::string> bytes = link->socket.Receive()) {
    const absl::StatusOr<wire::MessageT> message = wire::Decode(*bytes);
    if (!message.ok()) {
      log::Warning("leading: ignoring a message: {}",
                   std::string(message.status().message()));
    } else if (const wire::ReportT* report = message->body.AsReport()) {
      leader_->Heard(*report);
    } else if (const wire::RefusedT* refused = message->body.AsRefused()) {
      log::Warning("a daemon refused the plan: {}", refused->why);
    }
  }
}

}  // namespace fineserve::server
