// Compiled only where NVIDIA's nccl.h is present: checks our own declarations
// against it.

#include <cstddef>

#include "tools/lab/device/nccl/api_list.h"
#include "tools/lab/device/nccl/unsupported_list.h"
// NVIDIA's header comes second.
#include <nccl.h>

namespace fineserve::nccl {
namespace {

#define EMUCUDA_SAME_VALUE(name) \
  static_assert(static_cast<long long>(name) == static_cast<long long>(::name))
#define EMUCUDA_SAME_OFFSET(field)               \
  static_assert(offsetof(ncclConfig_t, field) == \
                offsetof(::ncclConfig_t, field))

// A newer header may have more; everything that is declared here must be the
// same.
static_assert(NCCL_MAJOR == 2 && NCCL_VERSION_CODE >= 22800);
static_assert(kUniqueIdBytes == NCCL_UNIQUE_ID_BYTES);
static_assert(kUndefinedInt == NCCL_CONFIG_UNDEF_INT);
static_assert(kNoColor == NCCL_SPLIT_NOCOLOR);
static_assert(sizeof(ncclUniqueId) == sizeof(::ncclUniqueId));
EMUCUDA_SAME_OFFSET(magic);
EMUCUDA_SAME_OFFSET(version);
EMUCUDA_SAME_OFFSET(blocking);
EMUCUDA_SAME_OFFSET(netName);
EMUCUDA_SAME_OFFSET(commName);
#if NCCL_VERSION_CODE >= 22900
static_assert(kConfigMagic == NCCL_API_MAGIC);
EMUCUDA_SAME_OFFSET(numRmaCtx);
static_assert(sizeof(ncclConfig_t) <= sizeof(::ncclConfig_t));
#endif

EMUCUDA_SAME_VALUE(ncclSuccess);
EMUCUDA_SAME_VALUE(ncclUnhandledCudaError);
EMUCUDA_SAME_VALUE(ncclSystemError);
EMUCUDA_SAME_VALUE(ncclInternalError);
EMUCUDA_SAME_VALUE(ncclInvalidArgument);
EMUCUDA_SAME_VALUE(ncclInvalidUsage);
EMUCUDA_SAME_VALUE(ncclRemoteError);
EMUCUDA_SAME_VALUE(ncclInProgress);
EMUCUDA_SAME_VALUE(ncclSum);
EMUCUDA_SAME_VALUE(ncclProd);
EMUCUDA_SAME_VALUE(ncclMax);
EMUCUDA_SAME_VALUE(ncclMin);
EMUCUDA_SAME_VALUE(ncclAvg);
EMUCUDA_SAME_VALUE(ncclNumOps);
EMUCUDA_SAME_VALUE(ncclInt8);
EMUCUDA_SAME_VALUE(ncclUint8);
EMUCUDA_SAME_VALUE(ncclInt32);
EMUCUDA_SAME_VALUE(ncclUint32);
EMUCUDA_SAME_VALUE(ncclInt64);
EMUCUDA_SAME_VALUE(ncclUint64);
EMUCUDA_SAME_VALUE(ncclFloat16);
EMUCUDA_SAME_VALUE(ncclFloat32);
EMUCUDA_SAME_VALUE(ncclFloat64);
EMUCUDA_SAME_VALUE(ncclBfloat16);
EMUCUDA_SAME_VALUE(ncclFloat8e4m3);
EMUCUDA_SAME_VALUE(ncclFloat8e5m2);
EMUCUDA_SAME_VALUE(ncclNumTypes);
EMUCUDA_SAME_VALUE(ncclScalarDevice);
EMUCUDA_SAME_VALUE(ncclScalarHostImmediate);

template <typename R, typename S, typename... A, typename... B>
constexpr bool SameShape(R (*)(A...), S (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B)) {
    return false;
  } else {
    // NOLINTNEXTLINE(bugprone-sizeof-*)
    return sizeof(R) == sizeof(S) && ((sizeof(A) == sizeof(B)) && ...);
  }
}

// Every function takes the same arguments as NVIDIA's.
#define EMUCUDA_SAME_NCCL_SHAPE(name, args)                           \
  static_assert(SameShape(static_cast<ncclResult_t(*) args>(nullptr), \
                          static_cast<decltype(&::name)>(nullptr)),   \
                #name);
EMUCUDA_NCCL_API(EMUCUDA_SAME_NCCL_SHAPE)

}  // namespace
}  // namespace fineserve::nccl
