#include "daemon/fineserved/store/pinned_range.h"

namespace fineserve::store {

PinnedRange::PinnedRange(const driver::EntryPoints& call, const StoreFile& file,
                         uint64_t offset, uint64_t bytes)
    : call_(call),
      range_(file, offset, bytes),
      has_memory_(range_.base() != nullptr && range_.Populate()),
      is_registered_(has_memory_ && call.cuMemHostRegister_v2 != nullptr &&
                     call.cuMemHostRegister_v2(range_.base(), bytes, 0) ==
                         driver::CUDA_SUCCESS) {}

PinnedRange::~PinnedRange() {
  if (is_registered_) call_.cuMemHostUnregister(range_.base());
}

}  // namespace fineserve::store
