// Exported functions: words that streams write and wait for.

#include <unistd.h>

#include <span>
#include <type_traits>

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/submit_work.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/virtual_memory/address_space.h"

namespace fineserve::driver {

using emucuda::Context;
using emucuda::Entry;
using emucuda::ForwardInContext;
using emucuda::Place;
using emucuda::PlaceOf;
using emucuda::Reachable;
using emucuda::SubmitTo;
using emucuda::Wait;

namespace {

// Interval at which a waiting stream polls the word. Heuristic.
constexpr useconds_t kLookAgainUs = 50;

Place HostPlace(const void* host) {
  return {reinterpret_cast<CUdeviceptr>(host), false};
}

template <typename Word>
bool Met(Word seen, Word wanted, unsigned how) {
  switch (how) {
    case CU_STREAM_WAIT_VALUE_GEQ:  // cyclic, as cuda.h defines it
      return static_cast<std::make_signed_t<Word>>(seen - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return seen == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (seen & wanted) != 0;
    default:  // NOR
      return static_cast<Word>(~(seen | wanted)) != 0;
  }
}

template <typename Word>
CUresult Write(Context& context, CUstream stream, CUdeviceptr address,
               Word value, unsigned flags) {
  if (address % sizeof(Word) != 0 || !Reachable(address) ||
      (flags & ~CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto& space = emucuda::Addresses();
  return SubmitTo(
      context, stream, Wait::kNo,
      [&space, device = context.device(), to = PlaceOf(address), value] {
        return emucuda::Copy(space, device, to, HostPlace(&value),
                             sizeof(value));
      });
}

// Blocks the stream, as on a device, until the condition is met.
template <typename Word>
CUresult Await(Context& context, CUstream stream, CUdeviceptr address,
               Word value, unsigned flags) {
  if (address % sizeof(Word) != 0 || !Reachable(address) ||
      flags > CU_STREAM_WAIT_VALUE_NOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto& space = emucuda::Addresses();
  return SubmitTo(context, stream, Wait::kNo,
                  [&space, &context, from = PlaceOf(address), value, flags] {
                    Word seen = 0;
                    CUresult result = CUDA_SUCCESS;
                    for (;;) {
                      result =
                          emucuda::Copy(space, context.device(),
                                        HostPlace(&seen), from, sizeof(seen));
                      if (result != CUDA_SUCCESS || Met(seen, value, flags) ||
                          !context.alive()) {
                        return result;
                      }
                      usleep(kLookAgainUs);
                    }
                  });
}

CUresult Run(Context& context, CUstream stream,
             const CUstreamBatchMemOpParams& each) {
  const CUstreamMemOpValueParams& word = each.writeValue;
  switch (each.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return Await<uint32_t>(context, stream, word.address, word.value,
                             word.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return Await<uint64_t>(context, stream, word.address, word.value64,
                             word.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return Write<uint32_t>(context, stream, word.address, word.value,
                             word.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return Write<uint64_t>(context, stream, word.address, word.value64,
                             word.flags);
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_SUCCESS;  // all writes here are seen at once
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// Runs the operations in the given order, up to the first that is refused.
CUresult RunAll(Context& context, CUstream stream, unsigned count,
                CUstreamBatchMemOpParams* operations, unsigned flags) {
  // Fewer than 256: the driver's limit.
  if (count >= 256 || operations == nullptr || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (const auto& each : std::span(operations, count)) {
    const CUresult result = Run(context, stream, each);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams* operations,
                            unsigned int flags) {
  return ForwardInContext(Entry::cuStreamBatchMemOp, RunAll, stream, count,
                          operations, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* operations,
                               unsigned int flags) {
  return ForwardInContext(Entry::cuStreamBatchMemOp_v2, RunAll, stream, count,
                          operations, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address,
                              uint32_t value, unsigned int flags) {
  return ForwardInContext(Entry::cuStreamWriteValue32, Write<uint32_t>, stream,
                          address, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address,
                                 uint32_t value, unsigned int flags) {
  return ForwardInContext(Entry::cuStreamWriteValue32_v2, Write<uint32_t>,
                          stream, address, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address,
                              uint64_t value, unsigned int flags) {
  return ForwardInContext(Entry::cuStreamWriteValue64, Write<uint64_t>, stream,
                          address, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address,
                                 uint64_t value, unsigned int flags) {
  return ForwardInContext(Entry::cuStreamWriteValue64_v2, Write<uint64_t>,
                          stream, address, value, flags);
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address,
                             uint32_t value, unsigned int flags) {
  return ForwardInContext(Entry::cuStreamWaitValue32, Await<uint32_t>, stream,
                          address, value, flags);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address,
                                uint32_t value, unsigned int flags) {
  return ForwardInContext(Entry::cuStreamWaitValue32_v2, Await<uint32_t>,
                          stream, address, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address,
                             uint64_t value, unsigned int flags) {
  return ForwardInContext(Entry::cuStreamWaitValue64, Await<uint64_t>, stream,
                          address, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address,
                                uint64_t value, unsigned int flags) {
  return ForwardInContext(Entry::cuStreamWaitValue64_v2, Await<uint64_t>,
                          stream, address, value, flags);
}

}  // namespace fineserve::driver
