// Exported functions: collectives, transfers and groups.

#include <utility>

#include "tools/lab/device/cudart/runtime_api.h"
#include "tools/lab/device/nccl/group.h"
#include "tools/lab/device/nccl/last_error.h"
#include "tools/lab/device/nccl/nccl_api.h"
#include "tools/lab/device/nccl/task.h"

namespace fineserve::nccl {
namespace {

// True if a kernel on the communicator's device can use the address.
bool IsOnDevice(const void* address, int device) {
  cudart::cudaPointerAttributes attributes = {};
  if (cudart::cudaPointerGetAttributes(&attributes, address) !=
      cudart::cudaSuccess) {
    return false;
  }
  return attributes.type == cudart::cudaMemoryTypeDevice
             ? attributes.device == device
             : attributes.type != cudart::cudaMemoryTypeUnregistered;
}

bool Sends(const Communicator& communicator, const Task& task) {
  switch (task.kind) {
    case TaskKind::kReceive:
      return false;
    case TaskKind::kBroadcast:
    case TaskKind::kScatter:
      return communicator.rank() == task.root;
    default:
      return true;
  }
}

bool Receives(const Communicator& communicator, const Task& task) {
  switch (task.kind) {
    case TaskKind::kSend:
      return false;
    case TaskKind::kReduce:
    case TaskKind::kGather:
      return communicator.rank() == task.root;
    default:
      return true;
  }
}

ncclResult_t Check(const Communicator& communicator, const Task& task) {
  const char* const name = NameOf(task.kind);
  if (!IsType(task.type)) {
    return Refuse(ncclInvalidArgument, "%s: no data type %u", name, task.type);
  }
  if (task.root < 0 || task.root >= communicator.ranks()) {
    return Refuse(ncclInvalidArgument, "%s: no rank %d among %d", name,
                  task.root, communicator.ranks());
  }
  if (task.count == 0) return ncclSuccess;
  const int device = communicator.device();
  if ((Sends(communicator, task) && !IsOnDevice(task.send, device)) ||
      (Receives(communicator, task) && !IsOnDevice(task.receive, device))) {
    return Refuse(ncclInvalidArgument,
                  "%s: an operand (%p, %p) is not in the memory of device %d",
                  name, static_cast<const void*>(task.send),
                  static_cast<void*>(task.receive), device);
  }
  return ncclSuccess;
}

ncclResult_t AddToGroup(const char* function, ncclComm_t comm, Task task,
                        cudaStream_t stream) {
  auto communicator = FindCommunicator(comm, function);
  if (communicator == nullptr) return ncclInvalidArgument;
  if (const ncclResult_t failed = communicator->async_error()) {
    return Refuse(failed, "%s: the communicator has failed before", function);
  }
  const ncclResult_t result = Check(*communicator, task);
  if (result == ncclSuccess && task.count > 0) {
    AddTask(std::move(communicator), task, stream);
  }
  return result;
}

// Adds a task to the thread's group. Outside a group, submits it at once.
ncclResult_t Call(const char* function, ncclComm_t comm, Task task,
                  cudaStream_t stream) {
  if (InGroup()) return Note(AddToGroup(function, comm, task, stream));
  StartGroup();
  Note(AddToGroup(function, comm, task, stream));
  return EndGroup();
}

// Does the same for a reduction, whose operator is built in, or is a factor
// followed by a sum.
ncclResult_t CallReduction(const char* function, ncclComm_t comm, Task task,
                           cudaStream_t stream) {
  if (IsType(task.type) && !CanReduce(task.type)) {
    return Note(Refuse(ncclInvalidArgument,
                       "%s: 8-bit floats cannot be reduced on this device",
                       function));
  }
  if (task.op >= ncclNumOps) {
    const auto communicator = FindCommunicator(comm, function);
    if (communicator == nullptr) return Note(ncclInvalidArgument);
    task.factor = communicator->FindFactor(task.op, task.type);
    if (!task.factor) {
      return Note(
          Refuse(ncclInvalidArgument, "%s: no operator %u", function, task.op));
    }
    task.op = ncclSum;
  }
  return Call(function, comm, task, stream);
}

// For a send or a receive, `root` is the peer.
Task TaskOf(TaskKind kind, const void* send, void* receive, size_t count,
            ncclDataType_t type, int root = 0, ncclRedOp_t op = ncclSum) {
  return {.kind = kind,
          .send = static_cast<const char*>(send),
          .receive = static_cast<char*>(receive),
          .count = count,
          .type = type,
          .op = op,
          .root = root};
}

}  // namespace

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return CallReduction(
      "ncclAllReduce", comm,
      TaskOf(TaskKind::kAllReduce, send, receive, count, type, 0, op), stream);
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count,
                        ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return CallReduction(
      "ncclReduce", comm,
      TaskOf(TaskKind::kReduce, send, receive, count, type, root, op), stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return CallReduction(
      "ncclReduceScatter", comm,
      TaskOf(TaskKind::kReduceScatter, send, receive, count, type, 0, op),
      stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return Call("ncclBroadcast", comm,
              TaskOf(TaskKind::kBroadcast, send, receive, count, type, root),
              stream);
}

ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type,
                       int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return Call("ncclAllGather", comm,
              TaskOf(TaskKind::kAllGather, send, receive, count, type), stream);
}

ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count,
                          ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  return Call("ncclAlltoAll", comm,
              TaskOf(TaskKind::kAlltoAll, send, receive, count, type), stream);
}

ncclResult_t ncclGather(const void* send, void* receive, size_t count,
                        ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return Call("ncclGather", comm,
              TaskOf(TaskKind::kGather, send, receive, count, type, root),
              stream);
}

ncclResult_t ncclScatter(const void* send, void* receive, size_t count,
                         ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream) {
  return Call("ncclScatter", comm,
              TaskOf(TaskKind::kScatter, send, receive, count, type, root),
              stream);
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return Call("ncclSend", comm,
              TaskOf(TaskKind::kSend, send, nullptr, count, type, peer),
              stream);
}

ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return Call("ncclRecv", comm,
              TaskOf(TaskKind::kReceive, nullptr, receive, count, type, peer),
              stream);
}

ncclResult_t ncclGroupStart() {
  StartGroup();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return EndGroup(); }

}  // namespace fineserve::nccl
