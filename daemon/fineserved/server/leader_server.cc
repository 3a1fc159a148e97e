#include "daemon/fineserved/server/leader_server.h"

#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/log/log.h"
#include "daemon/contract/wire/message.h"
#include "daemon/fleet/machines/fleet_view.h"
#include "daemon/scheduling/lead/plan_store.h"
#include "daemon/scheduling/lead/standing_plan.h"

namespace fineserve::server {
namespace {

constexpr uint64_t kBeatUs = 1'000'000;
// Interval between beats in the first seconds of a plan, and how long these
// last. A longer step, such as an engine's start, is noticed up to a second
// late.
constexpr uint64_t kSoonUs = 100'000;
constexpr uint64_t kSoonForNs = 5'000'000'000;

std::string TimeOfDay() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(),
                          absl::UTCTimeZone());
}

// Replaces this machine's plan by the plan with which the term begins. If this
// machine's plan is already of this term, keeps it, because an earlier leader
// of the term has continued from the term's first plan. If etcd has no plan,
// this machine's plan becomes the term's, since only plans of the term are
// carried. False on failure.
bool BeginWith(const cluster::LeadGrant& grant, lead::PlanStore* store) {
  const absl::StatusOr<lead::StandingPlan> known = store->Read();
  if (known.ok() && known->term == grant.term) return true;
  if (grant.plan.empty() && !known.ok()) return true;
  absl::StatusOr<lead::StandingPlan> plan =
      grant.plan.empty() ? known : lead::ParsePlan(grant.plan);
  absl::Status s = plan.status();
  if (s.ok()) {
    plan->term = grant.term;
    s = store->Write(*plan, "");
  }
  if (!s.ok()) log::Error("cannot lead: {}", std::string(s.message()));
  return s.ok();
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
  directory_.emplace(fleet.cluster, folder,
                     wire::KeyFolder(wire::KeyFolder::Default()));
  beat_->Set(clock_->NowNs() / 1000);
}

LeaderServer::~LeaderServer() {
  board_->SetLeader(nullptr);
  board_->SetTrouble("");
}

void LeaderServer::SetFleet(const config::Fleet& fleet) {
  fleet_ = fleet;
  directory_.emplace(fleet.cluster, folder_,
                     wire::KeyFolder(wire::KeyFolder::Default()));
  links_.clear();
  if (leader_ != nullptr) leader_->SetFleet(fleet);
}

metrics::PlanFigures LeaderServer::Measure() const {
  metrics::PlanFigures figures;
  figures.number = board_->newest().number();
  figures.moves = board_->moves();
  figures.refused = board_->refused();
  figures.troubles = !board_->trouble().empty();
  figures.leads = leader_ != nullptr;
  if (leader_ == nullptr) return figures;
  figures.frozen = leader_->plan().frozen;
  figures.moving = leader_->plan().move.has_value();
  figures.troubles += static_cast<uint32_t>(leader_->trouble_count());
  return figures;
}

void LeaderServer::Describe(wire::PlanStateT* state) const {
  leader_->Describe(state);
}

absl::Status LeaderServer::Steer(const wire::SteerT& steer) {
  if (!fleet_.cluster.IsOn()) return leader_->Steer(steer);
  ReadGrant();
  if (!MayLead() || grant_->term != term_) {
    return absl::UnavailableError(
        "nothing is changed: this machine no longer leads; ask again once "
        "another one does (see fsctl nodes)");
  }
  if (const std::string why = NodeTrouble(); !why.empty()) {
    return absl::UnavailableError(
        absl::StrCat("nothing is changed, since it could not be kept: ", why));
  }
  return leader_->Steer(steer);
}

uint64_t LeaderServer::BeatUs() {
  if (leader_ == nullptr) return kBeatUs;
  const uint64_t now = clock_->NowNs(), number = leader_->plan().number;
  if (changed_ns_ == 0 || number != beaten_number_) changed_ns_ = now;
  beaten_number_ = number;
  return now - changed_ns_ < kSoonForNs ? kSoonUs : kBeatUs;
}

void LeaderServer::Beat() {
  beat_->Set(clock_->NowNs() / 1000 + BeatUs());
  ReadGrant();
  HoldTheLead();
  if (leader_ == nullptr) TakeTheLead();
  if (leader_ == nullptr) return;
  ReceiveAll();
  // A plan that is not carried yet is not sent, and no step follows it.
  if (IsCarried()) {
    leader_->Tick();
    board_->CountMoves(leader_->TakeNewMoves());
  }
  Connect();
  Tell();
}

void LeaderServer::ReadGrant() {
  grant_.reset();
  if (!fleet_.cluster.IsOn()) return;
  absl::StatusOr<cluster::LeadGrant> grant =
      cluster::ReadGrant(folder_, clock_->NowNs());
  if (!grant.ok()) {
    if (!absl::IsNotFound(grant.status())) {
      log::Error("{}", std::string(grant.status().message()));
    }
    return;
  }
  grant_ = *std::move(grant);
  if (leader_ == nullptr) return;
  std::set<std::string> lost;
  for (const config::Machine& machine : fleet_.cluster.machines) {
    if (grant_->lost_machines.count(machine.name) == 0) continue;
    for (const config::FleetEngine& e : fleet_.engines) {
      if (fleet_.cluster.MachineOf(e.gpu) == nullptr) continue;
      if (fleet_.cluster.MachineOf(e.gpu)->name == machine.name) {
        for (const std::string& gpu : e.Gpus()) lost.insert(gpu);
      }
    }
  }
  leader_->SetLost(std::move(lost));
}

bool LeaderServer::MayLead() const {
  if (!fleet_.cluster.IsOn()) return true;
  return grant_ && clock_->NowNs() < grant_->until_ns;
}

bool LeaderServer::IsCarried() const {
  return !fleet_.cluster.IsOn() ||
         (grant_ && leader_->plan().number <= grant_->carried);
}

std::string LeaderServer::NodeTrouble() const {
  return cluster::TroubleOf(cluster::ReadView(folder_), clock_->NowNs());
}

void LeaderServer::StepDown(const std::string& why) {
  log::Warning("no longer leading: {}", why);
  board_->SetLeader(nullptr);
  links_.clear();
  leader_.reset();
  term_ = 0;
  changed_ns_ = 0;
}

void LeaderServer::HoldTheLead() {
  if (leader_ == nullptr) return;
  if (!MayLead()) return StepDown("fineserve-node no longer grants it");
  if (grant_ && grant_->term != term_) {
    return StepDown("another term has begun");
  }
  const absl::Status s = leader_->Hold();
  if (absl::IsFailedPrecondition(s)) StepDown(std::string(s.message()));
}

void LeaderServer::TakeTheLead() {
  if (!MayLead()) return board_->SetTrouble(NodeTrouble());
  absl::StatusOr<lead::LeadLock> lead = contest_.Try(clock_->NowNs());
  board_->SetTrouble(contest_.trouble());
  if (!lead.ok()) {
    if (!absl::IsFailedPrecondition(lead.status())) {
      log::Error("cannot lead: {}", std::string(lead.status().message()));
    }
    return;
  }
  lead::PlanStore store = lead::PlanStore::Open(folder_, *std::move(lead));
  if (grant_ && !BeginWith(*grant_, &store)) return;
  leader_ = std::make_unique<lead::Leader>(fleet_, who_.gpu, std::move(store),
                                           clock_, TimeOfDay);
  term_ = grant_ ? grant_->term : 0;
  leader_->SetTerm(term_);
  board_->SetLeader(this);
}

void LeaderServer::Connect() {
  std::set<std::string> gpus;
  for (const config::FleetEngine& e : fleet_.engines) {
    for (const std::string& gpu : e.Gpus()) gpus.insert(gpu);
  }
  for (const std::string& gpu : gpus) {
    if (links_.count(gpu) > 0) continue;
    absl::StatusOr<wire::ClientSocket> socket = directory_->Connect(gpu);
    if (!socket.ok()) {
      // Leader logs which daemon does not answer.
      if (!absl::IsNotFound(socket.status()) && warned_.insert(gpu).second) {
        log::Warning("{}", std::string(socket.status().message()));
      }
      continue;
    }
    warned_.erase(gpu);
    Link& link =
        links_.emplace(gpu, Link{*std::move(socket), nullptr}).first->second;
    link.readable = loop_->OnReadable(link.socket.descriptor(),
                                      [this, &link] { Receive(&link); });
  }
}

void LeaderServer::Tell() {
  for (auto& [gpu, link] : links_) {
    // Checks this before each message, since this process may have been
    // stopped.
    if (!MayLead()) return;
    wire::PlanNoticeT notice;
    if (IsCarried()) notice.plan = leader_->PlanToSend();
    // A daemon that is absent now gets the plan with the next beat.
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
