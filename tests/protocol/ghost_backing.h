#ifndef TESTS_PROTOCOL_GHOST_BACKING_H_
#define TESTS_PROTOCOL_GHOST_BACKING_H_

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/backing/backing.h"

namespace fineserve::protocol {

// A pool of which only one thing is known: whether a slab is all zero. Fills
// complete when the test says so. It makes no system calls, because a test
// makes a hundred thousand worlds.
class GhostBacking final : public backing::Backing {
 public:
  explicit GhostBacking(const slab::PoolGeometry& geometry)
      : geometry_(geometry), dirty_(geometry.slab_count, true) {}

  const slab::PoolGeometry& geometry() const override { return geometry_; }
  absl::Status CreateSlab(slab::SlabId) override { return absl::OkStatus(); }
  void DestroySlab(slab::SlabId) override {}
  absl::StatusOr<driver::Descriptor> Export(uint32_t) override {
    return absl::UnimplementedError("there is no memory");
  }
  absl::Status StartZero(slab::SlabId slab) override {
    filling_.push_back(slab);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<slab::SlabId>> TakeZeroed() override {
    return std::exchange(filled_, {});
  }
  absl::StatusOr<std::vector<pid_t>> DevicePids() override { return pids_; }

  // The fills under way complete; `write`: they do what they should.
  void CompleteFills(bool write) {
    for (slab::SlabId slab : filling_) {
      if (write) dirty_[slab::Number(slab)] = false;
      filled_.push_back(slab);
    }
    filling_.clear();
  }
  size_t filling_count() const { return filling_.size(); }
  void Write(uint32_t slab) { dirty_[slab] = true; }
  bool IsDirty(uint32_t slab) const { return dirty_[slab]; }
  void set_device_pids(std::vector<pid_t> pids) { pids_ = std::move(pids); }

 private:
  const slab::PoolGeometry geometry_;
  std::vector<bool> dirty_;
  std::vector<slab::SlabId> filling_;
  std::vector<slab::SlabId> filled_;
  std::vector<pid_t> pids_;
};

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_GHOST_BACKING_H_
