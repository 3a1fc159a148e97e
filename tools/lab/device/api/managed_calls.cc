// Exported functions: managed memory. It is device memory that the host reads
// and writes at the same address; it never moves, and it cannot exceed the
// device. Advice and prefetches are checked and remembered.

#include <cstring>

#include "tools/lab/device/allocations/legacy_heap.h"
#include "tools/lab/device/allocations/managed_advice.h"
#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/submit_work.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/machine/device_list.h"

namespace fineserve::driver {

using emucuda::Advice;
using emucuda::BlockKind;
using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Devices;
using emucuda::Entry;
using emucuda::kMaxDevices;
using emucuda::kNowhere;
using emucuda::kOnHost;
using emucuda::Logged;
using emucuda::MemoryBlock;

namespace {

// Finds the managed allocation that contains the whole range.
bool FindManaged(CUdeviceptr address, size_t bytes, MemoryBlock* block) {
  return bytes > 0 && emucuda::Heap().Find(address, block) &&
         block->kind == BlockKind::kManaged &&
         bytes <= block->bytes - (address - block->base);
}

// Returns an ordinal, kOnHost, or kNowhere if the location does not exist.
int OrdinalOf(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return Devices().Has(location.id) ? location.id : kNowhere;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return kOnHost;
    default:
      return kNowhere;
  }
}

bool Exists(int ordinal) {
  return ordinal == kOnHost || Devices().Has(ordinal);
}

uint32_t BitOf(int ordinal) {
  return 1u << (ordinal == kOnHost ? kMaxDevices : ordinal);
}

CUresult Advise(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                int ordinal) {
  MemoryBlock block;
  if (!FindManaged(address, bytes, &block)) return CUDA_ERROR_INVALID_VALUE;
  const bool placed = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                      advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                      advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  if (placed && !Exists(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  auto& all = emucuda::Advised();
  Advice mine = all.Get(block.id);
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      mine.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
      break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      mine.preferred = ordinal;
      break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      mine.preferred = kNowhere;
      break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
      mine.accessed_by |= BitOf(ordinal);
      break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      mine.accessed_by &= ~BitOf(ordinal);
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  all.Set(block.id, mine);
  return CUDA_SUCCESS;
}

// Gives the stream nothing to do, because managed memory never moves.
CUresult Prefetch(Context& context, CUdeviceptr address, size_t bytes,
                  int ordinal, CUstream stream) {
  if (emucuda::FindStream(context, stream) == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  MemoryBlock block;
  if (!FindManaged(address, bytes, &block)) return CUDA_ERROR_INVALID_VALUE;
  if (!Exists(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  auto& all = emucuda::Advised();
  Advice mine = all.Get(block.id);
  mine.prefetched = ordinal;
  all.Set(block.id, mine);
  return CUDA_SUCCESS;
}

CUresult PrefetchBatch(Context& context, const CUdeviceptr* addresses,
                       const size_t* bytes, size_t count,
                       const CUmemLocation* locations, const size_t* starts,
                       size_t location_count, unsigned long long flags,
                       CUstream stream) {
  if (addresses == nullptr || bytes == nullptr || count == 0 ||
      locations == nullptr || starts == nullptr || location_count == 0 ||
      location_count > count || starts[0] != 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t group = 0;
  for (size_t i = 0; i < count; ++i) {
    while (group + 1 < location_count && starts[group + 1] <= i) ++group;
    const CUresult result = Prefetch(context, addresses[i], bytes[i],
                                     OrdinalOf(locations[group]), stream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult AnswerInt(int answer, void* value, size_t value_bytes) {
  if (value_bytes != sizeof(answer)) return CUDA_ERROR_INVALID_VALUE;
  memcpy(value, &answer, sizeof(answer));
  return CUDA_SUCCESS;
}

// Writes a list of ordinals, padded with kNowhere.
CUresult AnswerAccessedBy(uint32_t accessed_by, void* value,
                          size_t value_bytes) {
  if (value_bytes % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
  int* next = static_cast<int*>(value);
  int* const end = next + value_bytes / sizeof(int);
  for (int bit = 0; bit <= kMaxDevices && next != end; ++bit) {
    if ((accessed_by >> bit & 1) == 0) continue;
    *next++ = bit == kMaxDevices ? kOnHost : bit;
  }
  while (next != end) *next++ = kNowhere;
  return CUDA_SUCCESS;
}

CUresult GetAttribute(void* value, size_t value_bytes,
                      CUmem_range_attribute attribute, CUdeviceptr address,
                      size_t bytes) {
  MemoryBlock block;
  if (value == nullptr || value_bytes == 0 ||
      !FindManaged(address, bytes, &block)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Advice advice = emucuda::Advised().Get(block.id);
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      return AnswerInt(advice.read_mostly ? 1 : 0, value, value_bytes);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      return AnswerInt(advice.preferred, value, value_bytes);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      return AnswerInt(advice.prefetched, value, value_bytes);
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      return AnswerAccessedBy(advice.accessed_by, value, value_bytes);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes,
                           unsigned int flags) {
  return CallInContext(
      Entry::cuMemAllocManaged, Logged(bytes, flags), [&](Context& context) {
        if (address == nullptr ||
            (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        return emucuda::Heap().Allocate(context,
                                        Devices().memory(context.device()),
                                        bytes, BlockKind::kManaged, address);
      });
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                     CUdevice device) {
  return CallInContext(
      Entry::cuMemAdvise, Logged(address, bytes, advice, device),
      [&](Context&) { return Advise(address, bytes, advice, device); });
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                        CUmemLocation location) {
  return CallInContext(
      Entry::cuMemAdvise_v2, Logged(address, bytes, advice), [&](Context&) {
        return Advise(address, bytes, advice, OrdinalOf(location));
      });
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device,
                            CUstream stream) {
  return CallInContext(
      Entry::cuMemPrefetchAsync, Logged(address, bytes, device, stream),
      [&](Context& context) {
        return Prefetch(context, address, bytes, device, stream);
      });
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes,
                               CUmemLocation location, unsigned int flags,
                               CUstream stream) {
  return CallInContext(Entry::cuMemPrefetchAsync_v2,
                       Logged(address, bytes, stream), [&](Context& context) {
                         if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
                         return Prefetch(context, address, bytes,
                                         OrdinalOf(location), stream);
                       });
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* addresses, size_t* bytes,
                                 size_t count, CUmemLocation* locations,
                                 size_t* location_starts, size_t location_count,
                                 unsigned long long flags, CUstream stream) {
  return CallInContext(Entry::cuMemPrefetchBatchAsync, Logged(count, stream),
                       [&](Context& context) {
                         return PrefetchBatch(context, addresses, bytes, count,
                                              locations, location_starts,
                                              location_count, flags, stream);
                       });
}

// Refuses, because discarding may lose bytes: a program must notice that the
// emulator does not do it.
CUresult cuMemDiscardBatchAsync(CUdeviceptr* addresses, size_t* bytes,
                                size_t count, unsigned long long flags,
                                CUstream stream) {
  return CallInContext(Entry::cuMemDiscardBatchAsync, Logged(count, stream),
                       [](Context&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult cuMemDiscardAndPrefetchBatchAsync(
    CUdeviceptr* addresses, size_t* bytes, size_t count,
    CUmemLocation* locations, size_t* location_starts, size_t location_count,
    unsigned long long flags, CUstream stream) {
  return CallInContext(Entry::cuMemDiscardAndPrefetchBatchAsync,
                       Logged(count, stream),
                       [](Context&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult cuMemRangeGetAttribute(void* value, size_t value_bytes,
                                CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t bytes) {
  return CallInContext(Entry::cuMemRangeGetAttribute,
                       Logged(attribute, address, bytes), [&](Context&) {
                         return GetAttribute(value, value_bytes, attribute,
                                             address, bytes);
                       });
}

CUresult cuMemRangeGetAttributes(void** values, size_t* value_bytes,
                                 CUmem_range_attribute* attributes,
                                 size_t count, CUdeviceptr address,
                                 size_t bytes) {
  return CallInContext(Entry::cuMemRangeGetAttributes,
                       Logged(count, address, bytes), [&](Context&) {
                         if (values == nullptr || value_bytes == nullptr ||
                             attributes == nullptr || count == 0) {
                           return CUDA_ERROR_INVALID_VALUE;
                         }
                         CUresult result = CUDA_SUCCESS;
                         for (size_t i = 0; i < count && result == CUDA_SUCCESS;
                              ++i) {
                           result = GetAttribute(values[i], value_bytes[i],
                                                 attributes[i], address, bytes);
                         }
                         return result;
                       });
}

}  // namespace fineserve::driver
