#ifndef TOOLS_LAB_DEVICE_NCCL_TASK_H_
#define TOOLS_LAB_DEVICE_NCCL_TASK_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tools/lab/device/nccl/nccl_types.h"
#include "tools/lab/device/nccl/reduction.h"
#include "tools/lab/device/nccl/shared_region.h"

namespace fineserve::nccl {

enum class TaskKind : uint32_t {
  kAllReduce = 1,
  kReduce,
  kReduceScatter,
  kBroadcast,
  kAllGather,
  kAlltoAll,
  kGather,
  kScatter,
  kSend,
  kReceive,
  kSplit,  // of calling threads, and on no stream
};

constexpr const char* NameOf(TaskKind kind) {
  constexpr const char* kNames[] = {"nothing",       "AllReduce", "Reduce",
                                    "ReduceScatter", "Broadcast", "AllGather",
                                    "AlltoAll",      "Gather",    "Scatter",
                                    "Send",          "Recv",      "CommSplit"};
  return kNames[static_cast<uint32_t>(kind)];
}

constexpr bool IsTransfer(TaskKind kind) {
  return kind == TaskKind::kSend || kind == TaskKind::kReceive;
}

// One call of a rank, in the form in which its stream will run it. Addresses
// are device addresses.
struct Task {
  TaskKind kind;
  const char* send = nullptr;
  char* receive = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;  // built-in
  std::optional<Factor> factor = std::nullopt;
  int root = 0;  // or the other end of a transfer

  size_t bytes() const { return count * BytesOf(type); }
  // Describes the call that the other ranks must also make. The two ends of a
  // transfer compare count and type.
  Signature signature() const {
    const bool transfer = IsTransfer(kind);
    return {static_cast<uint32_t>(transfer ? TaskKind::kSend : kind),
            static_cast<uint32_t>(type), static_cast<uint32_t>(op),
            transfer ? 0 : static_cast<uint32_t>(root), count};
  }
};

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_TASK_H_
