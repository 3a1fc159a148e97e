#ifndef KERNELS_DRIVER_CUDA_GRAPH_TYPES_H_
#define KERNELS_DRIVER_CUDA_GRAPH_TYPES_H_

// The CUDA Driver API types for graphs; cuda_types.h declares the rest. Values
// and layouts are CUDA 13's, checked by cuda_types_check.cc.

#include <cstddef>

#include "kernels/driver/cuda_types.h"

namespace fineserve::driver {

using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphEdgeData = struct CUgraphEdgeData_st;
using CUgraphExec = struct CUgraphExec_st*;

// Fills `height` rows of `width` elements; rows are `pitch` bytes apart.
struct CUDA_MEMSET_NODE_PARAMS {
  CUdeviceptr dst;
  size_t pitch;  // ignored for one row
  unsigned int value;
  unsigned int elementSize;  // 1, 2 or 4 bytes
  size_t width;
  size_t height;
};

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_CUDA_GRAPH_TYPES_H_
