// Exported functions: communicators, their operators and memory.

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tools/lab/device/cudart/runtime_api.h"
#include "tools/lab/device/nccl/device_launch.h"
#include "tools/lab/device/nccl/exchange.h"
#include "tools/lab/device/nccl/group.h"
#include "tools/lab/device/nccl/last_error.h"
#include "tools/lab/device/nccl/nccl_api.h"
#include "tools/lab/device/nccl/task.h"
#include "tools/lab/device/nccl/unique_id.h"

namespace fineserve::nccl {
namespace {

ncclResult_t Missing(const char* function) {
  return Refuse(ncclInvalidArgument, "%s: an argument is null", function);
}

// Runs `body(communicator)` if the arguments are given.
template <typename Body>
ncclResult_t CallOn(const char* function, ncclComm_t comm, const void* out,
                    Body body) {
  if (out == nullptr) return Missing(function);
  const auto communicator = FindCommunicator(comm, function);
  return communicator != nullptr ? body(*communicator) : ncclInvalidArgument;
}

ncclResult_t Join(ncclComm_t* comm, int ranks, const ncclUniqueId& id,
                  int rank) {
  std::shared_ptr<Communicator> communicator;
  const ncclResult_t result =
      Communicator::Join(id, ranks, rank, &communicator);
  if (result != ncclSuccess) return Note(result);
  *comm = Communicators().Add(communicator);
  if (InGroup()) {
    AddJoining(std::move(communicator));
    return ncclSuccess;
  }
  const ncclResult_t ready = communicator->WaitForAll();
  if (ready != ncclSuccess) {
    communicator->Leave();
    Communicators().Remove(*comm);
    *comm = nullptr;
  }
  return ready;
}

ncclResult_t Join(const char* function, ncclComm_t* comm, int ranks,
                  const ncclUniqueId& id, int rank,
                  const ncclConfig_t* config) {
  if (comm == nullptr) return Note(Missing(function));
  if (config != nullptr && config->magic != kConfigMagic) {
    return Note(Refuse(ncclInvalidArgument,
                       "%s: the configuration was not initialised", function));
  }
  return Join(comm, ranks, id, rank);
}

// A rank's message to the other ranks about a split.
struct SplitWish {
  int color;
  int key;
  ncclUniqueId id;  // for the part that this rank comes first in
};

// The rank's place in its part of a split; the part's first rank provides the
// id.
struct SplitPlace {
  int ranks = 0;
  int rank = 0;
  ncclUniqueId id = {};
};

SplitPlace PlaceIn(const std::vector<SplitWish>& wishes, int self) {
  const auto own = static_cast<size_t>(self);
  SplitPlace place;
  const SplitWish* first = nullptr;
  for (size_t rank = 0; rank < wishes.size(); ++rank) {
    const SplitWish& its = wishes[rank];
    if (its.color != wishes[own].color) continue;
    ++place.ranks;
    // Ranks with equal keys keep their order.
    place.rank +=
        its.key < wishes[own].key || (its.key == wishes[own].key && rank < own);
    if (first == nullptr || its.key < first->key) first = &its;
  }
  place.id = first->id;
  return place;
}

ncclResult_t ExchangeWishes(Communicator& communicator, const SplitWish& own,
                            std::vector<SplitWish>* all) {
  std::string what;
  const emucuda::MutexLock lock(communicator.call_exchange());
  const ncclResult_t result =
      Take(communicator, Lane::kCall,
           {.signature = {.kind = static_cast<uint32_t>(TaskKind::kSplit)},
            .write = [&](char* buffer) { memcpy(buffer, &own, sizeof(own)); },
            .read =
                [&](const std::vector<const char*>& parts) {
                  for (const char* const part : parts) {
                    memcpy(&all->emplace_back(), part, sizeof(SplitWish));
                  }
                }},
           &what);
  return result == ncclSuccess
             ? result
             : Refuse(result, "ncclCommSplit: %s", what.c_str());
}

ncclResult_t Split(Communicator& communicator, int color, int key,
                   ncclComm_t* part) {
  *part = nullptr;
  SplitWish own = {color, key, {}};
  if (const ncclResult_t failed = MakeUniqueId(&own.id)) return failed;
  std::vector<SplitWish> wishes;
  if (const ncclResult_t failed = ExchangeWishes(communicator, own, &wishes)) {
    return failed;
  }
  if (color == kNoColor) return ncclSuccess;
  const SplitPlace place = PlaceIn(wishes, communicator.rank());
  const CurrentDevice current(communicator.device());
  return Join(part, place.ranks, place.id, place.rank);
}

}  // namespace

emucuda::HandleRegistry<ncclComm_t, Communicator>& Communicators() {
  static auto* const communicators =
      new emucuda::HandleRegistry<ncclComm_t, Communicator>;
  return *communicators;
}

std::shared_ptr<Communicator> FindCommunicator(ncclComm_t handle,
                                               const char* function) {
  auto communicator = Communicators().Find(handle);
  if (communicator == nullptr) {
    Refuse(ncclInvalidArgument, "%s: no communicator %p", function,
           static_cast<void*>(handle));
  }
  return communicator;
}

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return Missing("ncclGetVersion");
  *version = kVersion;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return id == nullptr ? Missing("ncclGetUniqueId") : MakeUniqueId(id);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id,
                              int rank) {
  return Join("ncclCommInitRank", comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return Join("ncclCommInitRankConfig", comm, ranks, id, rank, config);
}

// Uses the first id only, because all ranks pass the same ids.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank,
                                      int id_count, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
  if (ids == nullptr || id_count < 1) {
    return Note(Missing("ncclCommInitRankScalable"));
  }
  return Join("ncclCommInitRankScalable", comm, ranks, ids[0], rank, config);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  ncclUniqueId id;
  if (comms == nullptr) return Missing("ncclCommInitAll");
  if (const ncclResult_t failed = MakeUniqueId(&id)) return failed;
  StartGroup();
  for (int rank = 0; rank < count; ++rank) {
    const CurrentDevice current(devices != nullptr ? devices[rank] : rank);
    Join("ncclCommInitAll", &comms[rank], count, id, rank, nullptr);
  }
  return EndGroup();
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t* part, ncclConfig_t* config) {
  if (InGroup()) {
    return Note(Refuse(ncclInvalidUsage, "ncclCommSplit cannot be in a group"));
  }
  return CallOn("ncclCommSplit", comm, part, [&](Communicator& communicator) {
    return Split(communicator, color, key, part);
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return CallOn("ncclCommFinalize", comm, comm, [](Communicator& it) {
    it.WaitIdle();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return CallOn("ncclCommDestroy", comm, comm, [&](Communicator& it) {
    it.WaitIdle();
    it.Leave();
    Communicators().Remove(comm);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return CallOn("ncclCommAbort", comm, comm, [&](Communicator& it) {
    it.Release(true);
    Communicators().Remove(comm);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return CallOn("ncclCommGetAsyncError", comm, error, [&](Communicator& it) {
    *error = it.async_error();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* ranks) {
  return CallOn("ncclCommCount", comm, ranks, [&](Communicator& it) {
    *ranks = it.ranks();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return CallOn("ncclCommCuDevice", comm, device, [&](Communicator& it) {
    *device = it.device();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return CallOn("ncclCommUserRank", comm, rank, [&](Communicator& it) {
    *rank = it.rank();
    return ncclSuccess;
  });
}

ncclResult_t ncclMemAlloc(void** address, size_t bytes) {
  if (address == nullptr) return Missing("ncclMemAlloc");
  return cudart::cudaMalloc(address, bytes) == cudart::cudaSuccess
             ? ncclSuccess
             : Refuse(ncclUnhandledCudaError, "ncclMemAlloc: no %zu bytes",
                      bytes);
}

ncclResult_t ncclMemFree(void* address) {
  return cudart::cudaFree(address) == cudart::cudaSuccess
             ? ncclSuccess
             : Refuse(ncclUnhandledCudaError, "ncclMemFree: no memory at %p",
                      address);
}

// Returns the buffer's address as the handle: registration only makes memory
// faster, and has no effect here.
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buffer, size_t bytes,
                              void** handle) {
  return CallOn("ncclCommRegister", comm, handle, [&](Communicator&) {
    if (buffer == nullptr || bytes == 0) return Missing("ncclCommRegister");
    *handle = buffer;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  return CallOn("ncclCommDeregister", comm, handle,
                [](Communicator&) { return ncclSuccess; });
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar,
                                      ncclDataType_t type,
                                      ncclScalarResidence_t residence,
                                      ncclComm_t comm) {
  return CallOn("ncclRedOpCreatePreMulSum", comm, op, [&](Communicator& it) {
    if (scalar == nullptr || !IsType(type) || !CanReduce(type)) {
      return Refuse(ncclInvalidArgument,
                    "ncclRedOpCreatePreMulSum: no scalar of type %u", type);
    }
    Factor factor;
    if (residence == ncclScalarDevice) {
      factor.on_device = scalar;
    } else {
      memcpy(factor.value.data(), scalar, BytesOf(type));
    }
    *op = it.AddFactor(type, factor);
    return ncclSuccess;
  });
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return CallOn("ncclRedOpDestroy", comm, comm, [&](Communicator& it) {
    return it.RemoveFactor(op) ? ncclSuccess
                               : Refuse(ncclInvalidArgument,
                                        "ncclRedOpDestroy: no operator %u", op);
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  return ResultText(result);
}

// The text belongs to the calling thread until its next call.
const char* ncclGetLastError(ncclComm_t /*comm*/) {
  thread_local std::string last;
  last = LastError();
  return last.c_str();
}

// Does nothing, because $NCCL_DEBUG logs nothing here.
void ncclResetDebugInit() {}

}  // namespace fineserve::nccl
