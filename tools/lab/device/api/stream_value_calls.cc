// Exported functions: words that streams write and wait for.

#include <unistd.h>

#include <type_traits>

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/submit_work.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/memory/address_space.h"

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

// Blocks the stream until the condition is met, as on a device.
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

}  // namespace

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
