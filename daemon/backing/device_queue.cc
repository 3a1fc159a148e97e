#include "daemon/backing/device_queue.h"

#include <utility>

namespace fineserve::backing {

void InlineQueue::Make(slab::SlabId slab) {
  done_.push_back(Made{slab, backing_->CreateSlab(slab)});
}

void InlineQueue::Fill(slab::SlabId slab) {
  absl::Status started = backing_->StartZero(slab);
  if (started.ok()) {
    ++filling_;
  } else {
    done_.push_back(Zeroed{slab, std::move(started)});
  }
}

void InlineQueue::Drop(slab::SlabId slab) { backing_->DestroySlab(slab); }

void InlineQueue::ListProcesses(std::vector<pid_t> awaited) {
  const uint64_t errors = backing_->MemoryErrors();
  done_.push_back(Listed{backing_->DevicePids(awaited), errors});
}

void InlineQueue::MeasureFree() {
  done_.push_back(Measured{backing_->FreeBytes()});
}

void InlineQueue::Export(uint64_t ticket, std::vector<uint32_t> granules) {
  Exported exported{ticket, {}, absl::OkStatus()};
  for (uint32_t granule : granules) {
    absl::StatusOr<driver::Descriptor> one = backing_->Export(granule);
    exported.status = one.status();
    if (!one.ok()) break;
    exported.granules.push_back(*std::move(one));
  }
  done_.push_back(std::move(exported));
}

std::vector<Completion> InlineQueue::Take() {
  absl::StatusOr<std::vector<slab::SlabId>> zeroed = backing_->TakeZeroed();
  if (!zeroed.ok()) {
    done_.push_back(Lost{zeroed.status()});
  } else {
    for (slab::SlabId slab : *zeroed) {
      done_.push_back(Zeroed{slab, absl::OkStatus()});
    }
    filling_ -= static_cast<uint32_t>(zeroed->size());
  }
  return std::exchange(done_, {});
}

}  // namespace fineserve::backing
