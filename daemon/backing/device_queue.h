#ifndef DAEMON_BACKING_DEVICE_QUEUE_H_
#define DAEMON_BACKING_DEVICE_QUEUE_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/variant.h"
#include "daemon/backing/backing.h"

namespace fineserve::backing {

// Result of one call of a DeviceQueue.
struct Made {
  slab::SlabId slab;
  absl::Status status;
};
struct Zeroed {
  slab::SlabId slab;
  absl::Status status;  // an error: the fill did not start
};
struct Listed {
  absl::StatusOr<std::vector<pid_t>> pids;
  uint64_t memory_errors;  // read before them
};
struct Measured {
  absl::StatusOr<uint64_t> free_bytes;
};
struct Exported {
  uint64_t ticket;
  std::vector<driver::Descriptor> granules;  // up to the first that failed
  absl::Status status;                       // of the one that failed
};
// The device is lost to this process; nothing else completes.
struct Lost {
  absl::Status why;
};
using Completion =
    absl::variant<Made, Zeroed, Listed, Measured, Exported, Lost>;

// The calls that a pool makes on its backing, in order. None of them waits, so
// that a slow driver holds up only the pool (a context that is torn down blocks
// NVML and the driver for seconds). See Backing for what they do.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  virtual void Make(slab::SlabId slab) = 0;  // → Made
  virtual void Fill(slab::SlabId slab) = 0;  // → Zeroed
  virtual void Drop(slab::SlabId slab) = 0;
  // `awaited`: the dead processes that are waited for. → Listed
  virtual void ListProcesses(std::vector<pid_t> awaited) = 0;
  // A process has joined.
  virtual void NoteProcesses() = 0;
  virtual void MeasureFree() = 0;  // → Measured
  // Exports these granules; the ticket names the request. → Exported
  virtual void Export(uint64_t ticket, std::vector<uint32_t> granules) = 0;

  // Returns the results of the calls since the last Take.
  virtual std::vector<Completion> Take() = 0;
};

// Makes the calls at once, on the caller's thread: for tests, and for the
// thread of a DeviceThread. Not thread-safe.
class InlineQueue final : public DeviceQueue {
 public:
  explicit InlineQueue(Backing* backing) : backing_(backing) {}

  void Make(slab::SlabId slab) override;
  void Fill(slab::SlabId slab) override;
  void Drop(slab::SlabId slab) override;
  void ListProcesses(std::vector<pid_t> awaited) override;
  void NoteProcesses() override { backing_->NoteProcesses(); }
  void MeasureFree() override;
  void Export(uint64_t ticket, std::vector<uint32_t> granules) override;
  std::vector<Completion> Take() override;
  // True if fills are under way, so that Take brings something without a call.
  bool filling() const { return filling_ > 0; }

 private:
  Backing* const backing_;
  std::vector<Completion> done_;
  uint32_t filling_ = 0;
};

}  // namespace fineserve::backing

#endif  // DAEMON_BACKING_DEVICE_QUEUE_H_
