#ifndef DAEMON_FINESERVED_SERVER_ADMISSION_SERVER_H_
#define DAEMON_FINESERVED_SERVER_ADMISSION_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/wire/socket.h"
#include "daemon/fineserved/admission/admission_service.h"
#include "daemon/fineserved/admission/drained_engines.h"
#include "daemon/fineserved/server/event_loop.h"
#include "daemon/fineserved/server/process_meter.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/pool/slab_ids.h"
#include "daemon/scheduling/lead/plan_board.h"

namespace fineserve::server {

class PoolService;

// The constant facts about this daemon's GPU.
struct GpuOfDaemon {
  std::string uuid;           // GPU-…
  uint64_t memory_bytes = 0;  // of the device
};

// Connects AdmissionService to its socket and the loop. Confined to the loop's
// thread.
class AdmissionServer {
 public:
  // Calls about an engine's memory: `need` when requests wait for the engine,
  // `evict` to have it leave the GPU (false if it cannot), and others that say
  // where its memory is and when it will be back. has_declined is MoveBook's.
  struct Moves {
    std::function<void(slab::EngineId)> need;
    std::function<sched::Micros(slab::EngineId)> back_in;
    std::function<absl::optional<evict::Residence>(slab::EngineId)> residence;
    std::function<bool(slab::EngineId)> evict;
    std::function<bool(slab::EngineId)> has_declined;
    // These return the weights that the engine reads from another GPU, have it
    // drop its own for the lender's, and have it restore them.
    std::function<admission::EngineKv::Dropped(slab::EngineId)> dropped;
    std::function<bool(slab::EngineId, const abi::ShareAddress&, uint64_t)>
        drop;
    std::function<bool(slab::EngineId)> restore;
    // AdmissionService::Drops'.
    std::function<overload::Why(uint64_t short_bytes)> would_grow;
    std::function<void()> grow;
    std::function<
        absl::optional<std::vector<admission::AdmissionService::Sight>>()>
        look;
  };
  // Binds `path`. Files in the same folder keep for the next daemon which
  // engines are drained and what was learnt from serving (admission/learnt.h).
  // All pointers must outlive this object.
  static absl::StatusOr<std::unique_ptr<AdmissionServer>> Create(
      const config::Fleet& fleet, const GpuOfDaemon& gpu,
      const std::string& path, const PoolService* pool, Moves moves,
      const Clock* clock, EventLoop* loop);
  // Says goodbye to the proxies, so that they do not wait for a daemon that
  // ends, and waits until they know it, for half a second at most.
  ~AdmissionServer();

  // If the fleet is a different one, starts a new service under a new epoch:
  // proxies greet again and say what runs and what waits; counts continue. The
  // same fleet changes nothing.
  absl::Status SetFleet(const config::Fleet& fleet);

  // Call it after each round of the loop.
  void Settle();
  // Returns the KV that the daemon's engines need, as of the last decision.
  const std::vector<admission::EngineNeed>& needs() const { return needs_; }

  // Lets an idle engine leave the GPU; see AdmissionService.
  evict::Room MakeRoom(const std::string& asker, evict::Lack lack,
                       bool may_rest) {
    return service_->MakeRoom(asker, lack, may_rest);
  }
  bool MakeKvRoom() { return service_->MakeKvRoom(); }
  bool LetGo(const std::string& engine) { return service_->LetGo(engine); }
  bool AnyIsOut() const { return service_->AnyIsOut(); }
  void BringAhead(uint64_t idle_bytes) { service_->BringAhead(idle_bytes); }

  // For a scrape.
  metrics::AdmissionFigures Measure() const { return service_->Measure(); }

  // Returns the board that this process's leader joins.
  admission::PlanBoard* plans() { return &plans_; }

 private:
  AdmissionServer(const GpuOfDaemon& gpu, const std::string& path,
                  wire::ServerSocket socket, const PoolService* pool,
                  Moves moves, const Clock* clock, EventLoop* loop);

  admission::GpuFacts Facts() const;
  std::vector<admission::EngineKv> AskPool(
      const std::vector<admission::EngineNeed>& needs);
  absl::optional<slab::EngineId> Find(const std::string& engine) const;
  uint64_t ProcessBytes(const std::string& engine);
  // Listens for other machines, if the fleet has any.
  absl::Status BindForMachines(const config::Fleet& fleet);
  // Calls KeepLearnt unless that was done within the last kKeepNs.
  void KeepLearntNowAndThen();
  void KeepLearnt();
  // Logs why other machines are refused, if all of them are.
  void LogTrouble();

  static constexpr uint64_t kKeepNs = 10'000'000'000;

  const GpuOfDaemon gpu_;
  const uint64_t host_bytes_;  // as this daemon began
  const std::string learnt_path_;
  uint64_t keep_next_ns_ = 0;
  config::Fleet fleet_;
  const PoolService* const pool_;
  const Moves moves_;
  const Clock* const clock_;
  admission::DrainedEngines drained_;
  admission::PlanBoard plans_;
  ProcessMeter processes_;
  wire::ServerSocket socket_;
  uint16_t port_ = 0;    // that it is bound to; 0: none
  std::string trouble_;  // of socket_, as last logged
  std::vector<admission::EngineNeed> needs_;
  std::unique_ptr<admission::AdmissionService> service_;
  std::unique_ptr<EventAlarm> alarm_;
  std::unique_ptr<EventSource> readable_;
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_SERVER_ADMISSION_SERVER_H_
