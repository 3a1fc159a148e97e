#include "tools/lab/device/nccl/exchange.h"

#include "tools/lab/device/nccl/task.h"

namespace fineserve::nccl {
namespace {

ncclResult_t ResultOf(Waited waited, const Signature& signature,
                      std::string* what) {
  if (waited == Waited::kReleased) {
    *what = "the communicator was aborted";
    return ncclInternalError;
  }
  *what = "a rank ended or left before it took part in " + Describe(signature);
  return ncclRemoteError;
}

ncclResult_t Compare(const SharedRegion& region, Lane lane, int ranks,
                     uint64_t step, const Signature& own, std::string* what) {
  for (int rank = 0; rank < ranks; ++rank) {
    const Signature& its = region.lane(lane, rank).signatures[step % 2];
    if (its == own) continue;
    *what = "it calls " + Describe(own) + " while rank " +
            std::to_string(rank) + " calls " + Describe(its);
    return ncclInvalidUsage;
  }
  return ncclSuccess;
}

}  // namespace

ncclResult_t Take(Communicator& communicator, Lane lane, const Step& step,
                  std::string* what) {
  const SharedRegion& region = communicator.region();
  const int ranks = communicator.ranks();
  LaneSlot& own = region.lane(lane, communicator.rank());
  const uint64_t number = ++communicator.steps(lane);
  // All ranks have read the buffer in the step before the last one.
  Waited waited = communicator.Await([&](int rank) {
    return region.lane(lane, rank).consumed.load(std::memory_order_acquire) +
               2 >=
           number;
  });
  if (waited != Waited::kReady) return ResultOf(waited, step.signature, what);

  step.write(region.LaneBuffer(lane, communicator.rank(), number));
  own.signatures[number % 2] = step.signature;
  own.arrived.store(number, std::memory_order_release);
  region.Ring();
  waited = communicator.Await([&](int rank) {
    return region.lane(lane, rank).arrived.load(std::memory_order_acquire) >=
           number;
  });
  if (waited != Waited::kReady) return ResultOf(waited, step.signature, what);

  const ncclResult_t same =
      Compare(region, lane, ranks, number, step.signature, what);
  if (same != ncclSuccess) return same;
  std::vector<const char*> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back(region.LaneBuffer(lane, rank, number));
  }
  step.read(parts);
  own.consumed.store(number, std::memory_order_release);
  region.Ring();
  return ncclSuccess;
}

std::string Describe(const Signature& signature) {
  return std::string(NameOf(static_cast<TaskKind>(signature.kind))) + "(" +
         std::to_string(signature.count) + " of type " +
         std::to_string(signature.type) + ", op " +
         std::to_string(signature.op) + ", root " +
         std::to_string(signature.root) + ")";
}

}  // namespace fineserve::nccl
