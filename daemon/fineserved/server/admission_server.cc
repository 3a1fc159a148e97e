#include "daemon/fineserved/server/admission_server.h"

#include <poll.h>
#include <unistd.h>

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/log/log.h"
#include "daemon/base/whole_file.h"
#include "daemon/fineserved/admission/learnt.h"
#include "daemon/fineserved/pool_service/pool_kv.h"
#include "daemon/fineserved/pool_service/pool_service.h"
#include "daemon/fineserved/server/epoch.h"
#include "daemon/fineserved/store/store_file.h"

namespace fineserve::server {
namespace {

// Heuristic: a proxy that needs more time to read a message has other problems.
constexpr uint64_t kGoodbyeNs = 500'000'000;
constexpr int kGoodbyePollMs = 10;

}  // namespace

absl::StatusOr<std::unique_ptr<AdmissionServer>> AdmissionServer::Create(
    const config::Fleet& fleet, const GpuOfDaemon& gpu, const std::string& path,
    const PoolService* pool, Moves moves, const Clock* clock, EventLoop* loop) {
  absl::StatusOr<wire::ServerSocket> socket = wire::ServerSocket::Bind(path);
  if (!socket.ok()) return socket.status();
  std::unique_ptr<AdmissionServer> server(new AdmissionServer(
      gpu, path, *std::move(socket), pool, std::move(moves), clock, loop));
  const absl::Status s = server->SetFleet(fleet);
  if (!s.ok()) return s;
  server->service_->LearnFrom(admission::ReadLearnt(
      base::ReadWholeFile(server->learnt_path_).value_or("")));
  return server;
}

AdmissionServer::AdmissionServer(const GpuOfDaemon& gpu,
                                 const std::string& path,
                                 wire::ServerSocket socket,
                                 const PoolService* pool, Moves moves,
                                 const Clock* clock, EventLoop* loop)
    : gpu_(gpu),
      host_bytes_(store::AllHostBytes()),
      learnt_path_(path + ".learnt"),
      pool_(pool),
      moves_(std::move(moves)),
      clock_(clock),
      drained_(path + ".drained"),
      socket_(std::move(socket)),
      // Settle runs after each round of the loop, so it is enough to wake the
      // loop up.
      alarm_(loop->OnAlarm([] {})),
      readable_(loop->OnReadable(socket_.descriptor(), [] {})) {}

AdmissionServer::~AdmissionServer() {
  if (service_ == nullptr) return;
  KeepLearnt();
  // Proxies must read the goodbye before the socket closes, because they cannot
  // read it afterwards.
  std::set<std::string> unaware = service_->SayGoodbye();
  const uint64_t end_ns = clock_->NowNs() + kGoodbyeNs;
  while (!unaware.empty() && clock_->NowNs() < end_ns) {
    pollfd readable = {socket_.descriptor(), POLLIN, 0};
    poll(&readable, 1, kGoodbyePollMs);
    while (const auto incoming = socket_.Receive()) {
      if (admission::AdmissionService::KnowsOfGoodbye(incoming->bytes)) {
        unaware.erase(incoming->peer);
      }
    }
  }
}

absl::Status AdmissionServer::BindForMachines(const config::Fleet& fleet) {
  if (!fleet.cluster.IsOn()) return absl::OkStatus();
  const config::Machine* machine = fleet.cluster.MachineOf(gpu_.uuid);
  if (machine == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("no machine of [cluster] has this GPU, ", gpu_.uuid,
                     "; add it to the gpus of one in the fleet file"));
  }
  const uint16_t port = fleet.cluster.PortOf(gpu_.uuid);
  if (port == port_) return absl::OkStatus();
  if (port_ != 0) {
    return absl::FailedPreconditionError(
        "the port of [cluster] has changed; restart fineserved to listen "
        "there");
  }
  const absl::Status s = socket_.AlsoBind(
      machine->host, port, wire::KeyFolder(wire::KeyFolder::Default()));
  if (s.ok()) port_ = port;
  return s;
}

absl::Status AdmissionServer::SetFleet(const config::Fleet& fleet) {
  if (service_ != nullptr && fleet == fleet_) return absl::OkStatus();
  if (absl::Status s = BindForMachines(fleet); !s.ok()) return s;
  // Terms end with the cluster: the plan of a single machine has no term.
  if (fleet.cluster.IsOn() != fleet_.cluster.IsOn()) plans_.SetPlanned(false);
  plans_.SetPlanned(fleet.planner.on);
  auto service = admission::AdmissionService::Create(
      fleet, gpu_.uuid, RandomEpoch(),
      {[this](const auto& needs) { return AskPool(needs); },
       [this] { return Facts(); },
       clock_,
       &drained_,
       &plans_,
       [this](const std::string& name) {
         const auto engine = Find(name);
         // An engine that is away may still have an active view, if a daemon
         // has died since.
         if (engine) moves_.need(*engine);
       },
       [this](const std::string& name) {
         const auto engine = Find(name);
         return engine ? moves_.residence(*engine) : absl::nullopt;
       },
       [this](const std::string& name) {
         const auto engine = Find(name);
         return engine && moves_.evict(*engine);
       },
       [this](const std::string& name) {
         const auto engine = Find(name);
         return engine &&
                (moves_.has_declined(*engine) || UsesKv(*pool_, *engine));
       },
       {moves_.would_grow, moves_.grow, moves_.look,
        [this](const std::string& name, const abi::ShareAddress& lender,
               uint64_t bytes) {
          const auto engine = Find(name);
          return engine && moves_.drop(*engine, lender, bytes);
        },
        [this](const std::string& name) {
          const auto engine = Find(name);
          return engine && moves_.restore(*engine);
        }},
       [this](const std::string& name) { return ProcessBytes(name); }},
      [this](const std::string& peer, absl::string_view bytes) {
        return socket_.Send(peer, bytes);
      });
  if (!service.ok()) return service.status();
  if (service_ != nullptr) (*service)->CountOnFrom(*service_);
  service_ = *std::move(service);
  fleet_ = fleet;
  return absl::OkStatus();
}

std::vector<admission::EngineKv> AdmissionServer::AskPool(
    const std::vector<admission::EngineNeed>& needs) {
  needs_ = needs;
  std::vector<admission::EngineKv> kv = KvInPool(*pool_, needs);
  for (size_t i = 0; i < needs.size(); ++i) {
    const auto engine = Find(needs[i].name);
    if (!engine) continue;
    kv[i].back_in = moves_.back_in(*engine);
    kv[i].dropped = moves_.dropped(*engine);
    const ViewScoreboardMemfd* const view = pool_->ScoreboardOf(*engine);
    if (view != nullptr) kv[i].steps = view->Steps();
  }
  return kv;
}

absl::optional<slab::EngineId> AdmissionServer::Find(
    const std::string& engine) const {
  return pool_->state().Find(engine, geteuid());
}

uint64_t AdmissionServer::ProcessBytes(const std::string& engine) {
  const auto id = Find(engine);
  if (!id) {
    processes_.Forget(engine);
    return 0;
  }
  return processes_.BytesOf(
      engine, [&] { return pool_->state().MembersOf(*id); }, clock_->NowNs());
}

admission::GpuFacts AdmissionServer::Facts() const {
  return {gpu_.memory_bytes, PoolBytes(*pool_), LeasedBytes(*pool_),
          socket_.refused(), host_bytes_};
}

// Without this file, the next daemon has to learn again.
void AdmissionServer::KeepLearnt() {
  const absl::Status s =
      base::ReplaceFile(learnt_path_, TextOf(service_->WhatWasLearnt()));
  if (!s.ok())
    log::Warning("forgetting what was learnt: {}", std::string(s.message()));
}

void AdmissionServer::KeepLearntNowAndThen() {
  const uint64_t now_ns = clock_->NowNs();
  if (now_ns < keep_next_ns_) return;
  keep_next_ns_ = now_ns + kKeepNs;
  KeepLearnt();
}

void AdmissionServer::LogTrouble() {
  std::string trouble = socket_.trouble();
  if (trouble == trouble_) return;
  trouble_ = std::move(trouble);
  if (trouble_.empty()) {
    log::Info("the keys of trusted machines can be read again");
  } else {
    log::Error("refusing all other machines: {}", trouble_);
  }
}

void AdmissionServer::Settle() {
  LogTrouble();
  // Sending can consume the event that says there is something to read, so
  // repeat until nothing is left.
  do {
    while (const auto incoming = socket_.Receive()) {
      service_->Handle(incoming->peer, incoming->bytes);
    }
    service_->Settle();
  } while (socket_.HasIncoming());
  KeepLearntNowAndThen();
  const uint64_t wake_ns = service_->NextWakeNs();
  // Rounded up: waking too early would find nothing to do and wake again at
  // once.
  alarm_->Set(wake_ns == UINT64_MAX ? wake_ns : wake_ns / 1000 + 1);
}

}  // namespace fineserve::server
