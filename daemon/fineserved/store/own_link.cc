#include "daemon/fineserved/store/own_link.h"

namespace fineserve::store {

using driver::CUDA_ERROR_NOT_READY;
using driver::CUDA_SUCCESS;

OwnLink::~OwnLink() {
  for (const driver::CUevent event : spare_) {
    driver_.call().cuEventDestroy_v2(event);
  }
  for (const driver::CUevent event : under_way_) {
    driver_.call().cuEventDestroy_v2(event);
  }
}

bool OwnLink::Carry(const Piece& piece) {
  const driver::EntryPoints& call = driver_.call();
  const bool begun =
      call.cuMemcpyHtoDAsync_v2(piece.to, piece.from, piece.bytes, stream_) ==
      CUDA_SUCCESS;
  if (!begun || piece.whole == nullptr) return begun;
  if (spare_.empty()) {
    driver::CUevent event = nullptr;
    if (call.cuEventCreate(&event, driver::CU_EVENT_DISABLE_TIMING) !=
        CUDA_SUCCESS) {
      return false;
    }
    spare_.push_back(event);
  }
  if (call.cuEventRecord(spare_.back(), stream_) != CUDA_SUCCESS) return false;
  under_way_.push_back(spare_.back());
  spare_.pop_back();
  return true;
}

std::optional<Link::Answer> OwnLink::Take() {
  if (under_way_.empty()) return std::nullopt;
  const driver::CUevent event = under_way_.front();
  const driver::CUresult result = driver_.call().cuEventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) return std::nullopt;
  under_way_.pop_front();
  spare_.push_back(event);
  return result == CUDA_SUCCESS ? Answer::kCarried : Answer::kLost;
}

}  // namespace fineserve::store
