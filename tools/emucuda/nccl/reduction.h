#ifndef TOOLS_EMUCUDA_NCCL_REDUCTION_H_
#define TOOLS_EMUCUDA_NCCL_REDUCTION_H_

#include <array>
#include <cstddef>
#include <vector>

#include "tools/emucuda/nccl/nccl_types.h"

namespace fineserve::nccl {

bool IsType(ncclDataType_t type);
size_t BytesOf(ncclDataType_t type);
// The 8-bit floats cannot be reduced, as on GPUs before compute capability 9.0.
bool CanReduce(ncclDataType_t type);

// The factor of an operator that ncclRedOpCreatePreMulSum made.
struct Factor {
  std::array<char, 8> value = {};
  // If set, the factor is at this address when the work runs.
  const void* on_device = nullptr;
};

// Writes to[i] = from[i] × factor, for `count` numbers.
void Scale(ncclDataType_t type, const Factor& factor, const char* from,
           char* to, size_t count);

// Writes to[i] = parts[0][i] op parts[1][i] op …, for `count` numbers, in the
// order of the parts: every rank computes the same bits. `op` is one of the
// five built-in operators.
void Reduce(ncclDataType_t type, ncclRedOp_t op,
            const std::vector<const char*>& parts, char* to, size_t count);

}  // namespace fineserve::nccl

#endif  // TOOLS_EMUCUDA_NCCL_REDUCTION_H_
