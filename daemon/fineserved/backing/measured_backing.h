#ifndef DAEMON_FINESERVED_BACKING_MEASURED_BACKING_H_
#define DAEMON_FINESERVED_BACKING_MEASURED_BACKING_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/contract/metrics/snapshot.h"
#include "daemon/fineserved/backing/backing.h"

namespace fineserve::backing {

// Wraps another backing, and counts and times its calls. Figures may be read by
// any thread.
class MeasuredBacking final : public Backing {
 public:
  explicit MeasuredBacking(std::unique_ptr<Backing> backing)
      : backing_(std::move(backing)) {}

  void EnterThread() override { backing_->EnterThread(); }
  const slab::PoolGeometry& geometry() const override {
    return backing_->geometry();
  }
  absl::Status CreateSlab(slab::SlabId slab) override;
  void DestroySlab(slab::SlabId slab) override;
  absl::StatusOr<driver::Descriptor> Export(uint32_t index) override;
  absl::Status StartZero(slab::SlabId slab) override;
  absl::StatusOr<std::vector<slab::SlabId>> TakeZeroed() override;
  absl::StatusOr<uint64_t> FreeBytes() override;
  absl::StatusOr<std::vector<pid_t>> DevicePids(
      const std::vector<pid_t>& awaited) override;
  void NoteProcesses() override { backing_->NoteProcesses(); }
  uint64_t MemoryErrors() override { return backing_->MemoryErrors(); }

  metrics::DriverFigures Figures() const;

 private:
  struct Calls {
    metrics::Durations times;
    std::atomic<uint64_t> errors{0};
  };

  // Makes `call`, which returns a Status or a StatusOr.
  template <typename Call>
  auto Measured(metrics::DriverCall which, Call call);

  const std::unique_ptr<Backing> backing_;
  std::array<Calls, metrics::kDriverCallCount> calls_;
};

}  // namespace fineserve::backing

#endif  // DAEMON_FINESERVED_BACKING_MEASURED_BACKING_H_
