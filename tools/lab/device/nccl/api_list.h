#ifndef TOOLS_LAB_DEVICE_NCCL_API_LIST_H_
#define TOOLS_LAB_DEVICE_NCCL_API_LIST_H_

// The functions of NCCL that are emulated, as X(name, args). Each returns
// ncclResult_t. nccl_check.cc compares the list with nccl.h; unsupported_list.h
// has NCCL's other functions.

#include "tools/lab/device/nccl/nccl_types.h"

// clang-format off
#define EMUCUDA_NCCL_API(X) \
  /* Communicators */ \
  X(ncclGetVersion, (int* version)) \
  X(ncclGetUniqueId, (ncclUniqueId* id)) \
  X(ncclCommInitRank, (ncclComm_t* comm, int ranks, ncclUniqueId id, int rank)) \
  X(ncclCommInitRankConfig, (ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config)) \
  X(ncclCommInitRankScalable, (ncclComm_t* comm, int ranks, int rank, int id_count, ncclUniqueId* ids, ncclConfig_t* config)) \
  X(ncclCommInitAll, (ncclComm_t* comms, int count, const int* devices)) \
  X(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config)) \
  X(ncclCommFinalize, (ncclComm_t comm)) \
  X(ncclCommDestroy, (ncclComm_t comm)) \
  X(ncclCommAbort, (ncclComm_t comm)) \
  X(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error)) \
  X(ncclCommCount, (const ncclComm_t comm, int* ranks)) \
  X(ncclCommCuDevice, (const ncclComm_t comm, int* device)) \
  X(ncclCommUserRank, (const ncclComm_t comm, int* rank)) \
  /* Memory */ \
  X(ncclMemAlloc, (void** address, size_t bytes)) \
  X(ncclMemFree, (void* address)) \
  X(ncclCommRegister, (const ncclComm_t comm, void* buffer, size_t bytes, void** handle)) \
  X(ncclCommDeregister, (const ncclComm_t comm, void* handle)) \
  /* Operators */ \
  X(ncclRedOpCreatePreMulSum, (ncclRedOp_t* op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm)) \
  X(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) \
  /* Collectives */ \
  X(ncclAllReduce, (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclReduce, (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclReduceScatter, (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclBroadcast, (const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclBcast, (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclAllGather, (const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclAlltoAll, (const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclGather, (const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclScatter, (const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclSend, (const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclRecv, (void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)) \
  /* Groups */ \
  X(ncclGroupStart, (void)) \
  X(ncclGroupEnd, (void))
// clang-format on

#endif  // TOOLS_LAB_DEVICE_NCCL_API_LIST_H_
