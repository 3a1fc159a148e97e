#ifndef KERNELS_DRIVER_CUDA_STRUCTS_H_
#define KERNELS_DRIVER_CUDA_STRUCTS_H_

// CUDA Driver API aggregates for pools, sharing and copies. Like cuda_types.h
// they have CUDA 13's layout, and cuda_types_check.cc checks them against
// cuda.h.

#include <cstddef>
#include <cstdint>

#include "kernels/driver/cuda_types.h"

namespace fineserve::driver {

// Further parameters of a new context; we pass none.
using CUexecAffinityParam = struct CUexecAffinityParam_st;
using CUctxCreateParams = struct CUctxCreateParams_st;

struct CUmemPoolProps {
  CUmemAllocationType allocType;
  CUmemAllocationHandleType handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;  // bytes; 0 = a limit of the system
  unsigned short usage;
  unsigned char reserved[54];
};

struct CUmemPoolPtrExportData {
  unsigned char reserved[64];
};

struct CUipcMemHandle {
  char reserved[64];
};

struct CUipcEventHandle {
  char reserved[64];
};

// A copy of `Height` rows of `WidthInBytes`.
struct CUDA_MEMCPY2D {
  size_t srcXInBytes;
  size_t srcY;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  size_t srcPitch;
  size_t dstXInBytes;
  size_t dstY;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  size_t dstPitch;
  size_t WidthInBytes;
  size_t Height;
};

// A copy of `Depth` slices, each like a CUDA_MEMCPY2D; slices are srcPitch ×
// srcHeight bytes apart.
struct CUDA_MEMCPY3D {
  size_t srcXInBytes;
  size_t srcY;
  size_t srcZ;
  size_t srcLOD;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  void* reserved0;
  size_t srcPitch;
  size_t srcHeight;
  size_t dstXInBytes;
  size_t dstY;
  size_t dstZ;
  size_t dstLOD;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  void* reserved1;
  size_t dstPitch;
  size_t dstHeight;
  size_t WidthInBytes;
  size_t Height;
  size_t Depth;
};

// CUDA_MEMCPY3D between contexts.
struct CUDA_MEMCPY3D_PEER {
  size_t srcXInBytes;
  size_t srcY;
  size_t srcZ;
  size_t srcLOD;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  CUcontext srcContext;
  size_t srcPitch;
  size_t srcHeight;
  size_t dstXInBytes;
  size_t dstY;
  size_t dstZ;
  size_t dstLOD;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  CUcontext dstContext;
  size_t dstPitch;
  size_t dstHeight;
  size_t WidthInBytes;
  size_t Height;
  size_t Depth;
};

enum CUmemcpySrcAccessOrder : unsigned int {
  CU_MEMCPY_SRC_ACCESS_ORDER_INVALID = 0,
  CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1,
  CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL = 2,
  CU_MEMCPY_SRC_ACCESS_ORDER_ANY = 3,
};

struct CUmemcpyAttributes {
  CUmemcpySrcAccessOrder srcAccessOrder;
  CUmemLocation srcLocHint;
  CUmemLocation dstLocHint;
  unsigned int flags;
};

enum CUmemcpy3DOperandType : unsigned int {
  CU_MEMCPY_OPERAND_TYPE_POINTER = 1,
  CU_MEMCPY_OPERAND_TYPE_ARRAY = 2,
};

struct CUoffset3D {
  size_t x;
  size_t y;
  size_t z;
};

struct CUextent3D {
  size_t width;
  size_t height;
  size_t depth;
};

struct CUmemcpy3DOperand {
  CUmemcpy3DOperandType type;
  union {
    struct {
      CUdeviceptr ptr;
      size_t rowLength;    // bytes; 0 = as wide as the copy
      size_t layerHeight;  // rows; 0 = as high as the copy
      CUmemLocation locHint;
    } ptr;
    struct {
      CUarray array;
      CUoffset3D offset;
    } array;
  } op;
};

struct CUDA_MEMCPY3D_BATCH_OP {
  CUmemcpy3DOperand src;
  CUmemcpy3DOperand dst;
  CUextent3D extent;
  CUmemcpySrcAccessOrder srcAccessOrder;
  unsigned int flags;
};

enum CUstreamBatchMemOpType : unsigned int {
  CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1,
  CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2,
  CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES = 3,
  CU_STREAM_MEM_OP_WAIT_VALUE_64 = 4,
  CU_STREAM_MEM_OP_WRITE_VALUE_64 = 5,
  CU_STREAM_MEM_OP_BARRIER = 6,
};

// A wait and a write have the same fields.
struct CUstreamMemOpValueParams {
  CUstreamBatchMemOpType operation;
  CUdeviceptr address;
  union {
    uint32_t value;
    uint64_t value64;
  };
  unsigned int flags;
  CUdeviceptr alias;  // for the driver's own use
};

union CUstreamBatchMemOpParams {
  CUstreamBatchMemOpType operation;
  CUstreamMemOpValueParams waitValue;
  CUstreamMemOpValueParams writeValue;
  uint64_t pad[6];
};

struct CUmemDecompressParams {
  size_t srcNumBytes;
  size_t dstNumBytes;
  uint32_t* dstActBytes;
  const void* src;
  void* dst;
  unsigned int algo;
  unsigned char padding[20];
};

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_CUDA_STRUCTS_H_
