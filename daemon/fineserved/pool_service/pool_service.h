#ifndef DAEMON_FINESERVED_POOL_SERVICE_POOL_SERVICE_H_
#define DAEMON_FINESERVED_POOL_SERVICE_POOL_SERVICE_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/fineserved/backing/device_thread.h"
#include "daemon/fineserved/pool_service/pool_meter.h"
#include "daemon/fineserved/pool_service/scoreboard_memfd.h"
#include "daemon/pool/pool_state.h"
#include "daemon/pool/table_writer.h"

namespace fineserve::server {

// Carries out the decisions of a pool's machine (slab::PoolState): it alone
// drives the device, writes the table and reads view scoreboards, and it
// reports the results to the machine. Knows nothing of sockets, so that tests
// can drive it step by step. Confined to the daemon's thread.
//
// Deaths are handled as follows. A member may die at any point; Exited is then
// called once, after the kernel has reported it.
class PoolService {
 public:
  // Answers to the peers that asked for whole slabs.
  struct Answers {
    std::vector<slab::PoolState::Grant> grants;
    std::vector<slab::Refusal> refusals;
    std::vector<backing::Exported> exports;
  };

  using Scoreboards = std::map<slab::EngineId, driver::Descriptor>;

  // All must outlive this object. The first `present` slabs have memory.
  PoolService(backing::DeviceQueue* device, const slab::PoolGeometry& geometry,
              uint32_t present, slab::TableWriter* table, const Clock* clock)
      : PoolService(device, slab::PoolState(geometry, present), table, clock,
                    {}) {}
  // Continues with `state`, whose views have these scoreboards.
  PoolService(backing::DeviceQueue* device, slab::PoolState state,
              slab::TableWriter* table, const Clock* clock,
              Scoreboards scoreboards);

  // One event for the machine, as in pool.machine()->Return(engine, lease). At
  // the end of the expression, the effects that the machine asks for are
  // carried out.
  class Event {
   public:
    explicit Event(PoolService* pool) : pool_(pool) {}
    ~Event() { pool_->Execute(); }
    slab::PoolState* operator->() const { return &pool_->state_; }

   private:
    PoolService* const pool_;
  };
  Event machine() { return Event(this); }

  // Events that need more than the machine, or the current time. For their
  // errors see slab::PoolState.
  absl::StatusOr<slab::EngineId> Join(const std::string& name, uid_t uid,
                                      pid_t pid, uint64_t image = 0) {
    device_->NoteProcesses();
    return machine()->Join(name, uid, pid, clock_->NowNs(), image);
  }
  void Exited(pid_t pid) { machine()->Exited(pid, clock_->NowNs()); }
  void Lease(slab::EngineId engine, uint32_t slab_count, uint64_t ticket,
             const slab::Asker& asker = {}) {
    machine()->Lease(engine, slab_count, ticket, clock_->NowNs(), asker);
  }
  absl::Status RegisterView(slab::EngineId engine, pid_t pid,
                            const slab::ViewSpec& spec,
                            const slab::ShareLimits& limits);
  absl::Status ActivateView(slab::EngineId engine, pid_t pid, uint32_t slabs,
                            uint32_t wanted) {
    return machine()->ActivateView(engine, pid, slabs, wanted, clock_->NowNs());
  }
  bool Want(slab::EngineId engine, pid_t pid, uint32_t wanted) {
    return machine()->Want(engine, pid, wanted, clock_->NowNs());
  }

  // Publishes the blocks that admission could count on for these engines, which
  // span GPUs, and the slabs that others use, among which these engines choose.
  // Wakes the engines whose blocks have changed.
  void ShowSure(const std::map<slab::EngineId, slab::SureBlocks>& engines);

  // Asks the driver how much memory is free on the GPU; TakeFree returns the
  // answer later.
  void MeasureFree() { device_->MeasureFree(); }
  absl::optional<absl::StatusOr<uint64_t>> TakeFree() {
    return std::exchange(free_, absl::nullopt);
  }

  // Asks for descriptors of these granules; they are among the answers later.
  void Export(uint64_t ticket, std::vector<uint32_t> granules) {
    device_->Export(ticket, std::move(granules));
  }

  // Reports what the device has done and lets the machine settle. Call it after
  // events, when the device has done something, and regularly while
  // state().restless(). An error says that the device is lost: the pool has
  // stopped serving.
  absl::Status Poll();
  // Answers since the last call.
  Answers TakeAnswers() { return std::exchange(answers_, {}); }

  const slab::PoolState& state() const { return state_; }
  const slab::SlabManager& slabs() const { return state_.slabs(); }
  uint64_t slab_bytes() const { return state_.geometry().slab_bytes(); }
  // Returns null for an engine without a view.
  const ViewScoreboardMemfd* ScoreboardOf(slab::EngineId engine) const {
    const auto found = scoreboards_.find(engine);
    return found == scoreboards_.end() ? nullptr : &found->second;
  }
  const PoolMeter& meter() const { return meter_; }

 private:
  void TakeScoreboards(Scoreboards kept);
  // Does what the machine asks for, until it asks for nothing.
  void Execute();
  void Publish(const slab::Effects& effects);
  absl::Status Report(backing::Completion done);
  void ReportMade(const backing::Made& made);
  void ReportZeroed(const backing::Zeroed& zeroed);
  void ReportListed(const backing::Listed& listed);
  void LogRefusals(const slab::Effects& effects);
  void PublishCounters();
  void ShowUse();

  backing::DeviceQueue* const device_;
  slab::TableWriter* const table_;
  const Clock* const clock_;
  slab::PoolState state_;
  PoolMeter meter_;
  Answers answers_;
  std::map<slab::EngineId, ViewScoreboardMemfd> scoreboards_;
  absl::optional<absl::StatusOr<uint64_t>> free_;  // bytes of the GPU
  bool cannot_list_logged_ = false;
  bool cannot_zero_logged_ = false;
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_POOL_SERVICE_POOL_SERVICE_H_
