#ifndef TOOLS_LAB_DEVICE_NCCL_NCCL_TYPES_H_
#define TOOLS_LAB_DEVICE_NCCL_NCCL_TYPES_H_

// The types of NCCL's public API that the emulated library takes and fills, so
// that it builds without NCCL. Names, values and layouts are those of NCCL
// 2.29, which nccl_check.cc asserts wherever nccl.h is present.

#include <cstddef>
#include <cstdint>

#include "kernels/driver/cuda_types.h"

namespace fineserve::nccl {

using cudaStream_t = driver::CUstream;
using ncclComm_t = struct ncclComm*;

inline constexpr int kVersion = 22907;  // NCCL_VERSION_CODE
inline constexpr int kUniqueIdBytes = 128;
inline constexpr int kUndefinedInt = INT32_MIN;  // NCCL_CONFIG_UNDEF_INT
inline constexpr int kNoColor = -1;              // NCCL_SPLIT_NOCOLOR
inline constexpr unsigned kConfigMagic = 0xcafebeef;

struct ncclUniqueId {
  char internal[kUniqueIdBytes];
};

enum ncclResult_t : unsigned int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum ncclRedOp_t : unsigned int {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,  // the first that ncclRedOpCreatePreMulSum may return
};

enum ncclDataType_t : unsigned int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12,
};

enum ncclScalarResidence_t : unsigned int {
  ncclScalarDevice = 0,
  ncclScalarHostImmediate = 1,
};

// Callers' settings have no effect on an emulated device. This includes
// `blocking`, because a communicator is always ready when the call returns.
struct ncclConfig_t {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
  int graphUsageMode;
  int numRmaCtx;
};

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_NCCL_TYPES_H_
