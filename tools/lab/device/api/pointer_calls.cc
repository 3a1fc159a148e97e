// Exported functions: attributes of pointers.

#include <cstring>

#include "tools/lab/device/allocations/mem_pool.h"
#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/find_block.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/machine/environment_settings.h"
#include "tools/lab/device/stream/context.h"
#include "tools/lab/device/virtual_memory/address_space.h"

namespace fineserve::driver {

using emucuda::BlockKind;
using emucuda::Call;
using emucuda::Context;
using emucuda::Entry;
using emucuda::Logged;
using emucuda::MemoryBlock;
using emucuda::Require;

namespace {

template <typename T>
CUresult Answer(void* value, T answer) {
  memcpy(value, &answer, sizeof(answer));
  return CUDA_SUCCESS;
}

bool IsHost(const MemoryBlock& block) { return block.kind == BlockKind::kHost; }

// Returns the handle types as which the memory can be exported, as a bit set.
uint64_t HandleTypes(const MemoryBlock& block) {
  if (block.kind == BlockKind::kPool) return block.pool->props().handleTypes;
  if (block.kind != BlockKind::kVirtual) return CU_MEM_HANDLE_TYPE_NONE;
  return block.object->prop.requestedHandleTypes;
}

// True for memory that the driver places if the device is RDMA-capable, and for
// mapped memory if it was created as such.
bool RdmaCapable(const MemoryBlock& block) {
  if (block.kind == BlockKind::kVirtual) {
    return block.object->prop.allocFlags.gpuDirectRDMACapable != 0;
  }
  return block.kind == BlockKind::kDevice &&
         emucuda::DriverSettings().gpu_direct_rdma != 0;
}

unsigned AccessFlags(const MemoryBlock& block) {
  CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const Context* context = emucuda::CurrentContext();
  const int device = context != nullptr ? context->device() : block.device;
  if (!IsHost(block) && emucuda::Addresses().GetAccess(
                            block.base, device, &access) != CUDA_SUCCESS) {
    return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
  }
  return access;
}

// The host sees managed and pinned memory at the same address.
CUresult HostPointer(const MemoryBlock& block, CUdeviceptr address,
                     void* value) {
  if (!IsHost(block) && block.kind != BlockKind::kManaged) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Answer(value, reinterpret_cast<void*>(address));
}

CUresult MappingOf(const MemoryBlock& block, CUpointer_attribute attribute,
                   void* value) {
  const bool whole = block.object == nullptr;
  if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR) {
    return Answer(
        value, reinterpret_cast<void*>(whole ? block.base : block.object_base));
  }
  return Answer(value, whole ? block.bytes : block.object->allocation->bytes());
}

// Writes one attribute of the block around `address` to `value`.
CUresult Describe(const MemoryBlock& block, CUdeviceptr address,
                  CUpointer_attribute attribute, void* value) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Answer(value, block.owner);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Answer(value,
                    IsHost(block) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Answer(value, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return HostPointer(block, address, value);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Answer(value, 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return Answer(value, RdmaCapable(block) ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Answer(value, block.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Answer(value, block.kind == BlockKind::kManaged ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Answer(value, block.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Answer(value, block.kind == BlockKind::kDevice ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return Answer(value, reinterpret_cast<void*>(block.base));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return Answer(value, static_cast<size_t>(block.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Answer(value, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Answer(value, HandleTypes(block));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Answer(value, AccessFlags(block));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      if (block.kind != BlockKind::kPool) return CUDA_ERROR_INVALID_VALUE;
      return Answer(value, block.pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return MappingOf(block, attribute, value);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Returns the size of the attribute's value in bytes.
size_t AnswerBytes(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return sizeof(int);
    default:
      return sizeof(uint64_t);
  }
}

CUresult GetAll(unsigned count, const CUpointer_attribute* attributes,
                void** values, CUdeviceptr address) {
  if (count == 0 || attributes == nullptr || values == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MemoryBlock block;
  const bool known = emucuda::FindBlock(address, &block);
  for (unsigned i = 0; i < count; ++i) {
    if (values[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (known &&
        Describe(block, address, attributes[i], values[i]) == CUDA_SUCCESS) {
      continue;
    }
    memset(values[i], 0, AnswerBytes(attributes[i]));
    // -2 is CU_DEVICE_INVALID in cuda.h.
    if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
      Answer(values[i], -2);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

// Returns INVALID_VALUE for an address that the driver does not know, and for
// attributes that the memory there does not have.
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  return Call(Entry::cuPointerGetAttribute, Require::kHealthy,
              Logged(attribute, address), [&] {
                MemoryBlock block;
                if (value == nullptr || !emucuda::FindBlock(address, &block)) {
                  return CUDA_ERROR_INVALID_VALUE;
                }
                return Describe(block, address, attribute, value);
              });
}

// Writes zeros for an unknown address or attribute instead of failing.
CUresult cuPointerGetAttributes(unsigned int count,
                                CUpointer_attribute* attributes, void** values,
                                CUdeviceptr address) {
  return Call(Entry::cuPointerGetAttributes, Require::kHealthy,
              Logged(count, address),
              [&] { return GetAll(count, attributes, values, address); });
}

// Only SYNC_MEMOPS can be set, and it is not emulated.
CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  return Call(Entry::cuPointerSetAttribute, Require::kHealthy,
              Logged(attribute, address), [&] {
                MemoryBlock block;
                if (value == nullptr ||
                    attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
                    !emucuda::FindBlock(address, &block)) {
                  return CUDA_ERROR_INVALID_VALUE;
                }
                return CUDA_ERROR_NOT_SUPPORTED;
              });
}

}  // namespace fineserve::driver
