#include "shim/redirect/pointer_queries.h"

#include <string.h>

namespace fineserve::shim {
namespace {

using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using driver::CUpointer_attribute;
using driver::CUresult;
using driver::EntryPoints;

bool IsMapping(const Redirection& range) { return range.handle != 0; }

template <typename T>
bool Answer(void* value, T answer) {
  memcpy(value, &answer, sizeof(answer));
  return true;
}

// Writes attributes that the driver would give for one granule only. True if
// `value` has been set.
bool Describe(const EntryPoints& entry, const Redirection& range,
              CUpointer_attribute attribute, void* value) {
  switch (attribute) {
    case driver::CU_POINTER_ATTRIBUTE_CONTEXT:
      return !IsMapping(range) && Answer(value, range.context);
    case driver::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return !IsMapping(range) && Answer(value, range.base);
    case driver::CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return !IsMapping(range) && Answer(value, size_t{range.asked_bytes});
    case driver::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Answer(value, range.base);
    case driver::CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Answer(value, size_t{range.asked_bytes});
    case driver::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Answer(value, range.is_resident ? 1 : 0);
    case driver::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Answer(value, uint64_t{driver::CU_MEM_HANDLE_TYPE_NONE});
    case driver::CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case driver::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      // An allocation has a single number, that of its first granule.
      return CallOptional(entry.cuPointerGetAttribute, value, attribute,
                          range.base) == CUDA_SUCCESS;
    default:
      return false;
  }
}

}  // namespace

bool PointerQueries::Find(CUdeviceptr address, Redirection* out) const {
  return ranges_->Find(address, out) || mappings_->Find(address, out);
}

// For virtual memory that the program mapped itself, a driver may return the
// whole reservation or one mapping. We split a mapping into granules, so a
// result within the mapping is corrected.
CUresult PointerQueries::AddressRange(const EntryPoints& entry,
                                      CUdeviceptr* base, size_t* bytes,
                                      CUdeviceptr address,
                                      const Original& original) const {
  Redirection range;
  if (!Find(address, &range)) return original(entry);
  CUdeviceptr found_base = range.base;
  size_t found_bytes = range.asked_bytes;
  if (IsMapping(range)) {
    const CUresult result =
        entry.cuMemGetAddressRange_v2(&found_base, &found_bytes, address);
    if (result != CUDA_SUCCESS) return result;
    if (found_base >= range.base && found_bytes <= range.asked_bytes) {
      found_base = range.base;
      found_bytes = range.asked_bytes;
    }
  }
  if (base != nullptr) *base = found_base;
  if (bytes != nullptr) *bytes = found_bytes;
  return CUDA_SUCCESS;
}

CUresult PointerQueries::Attribute(const EntryPoints& entry, void* value,
                                   CUpointer_attribute attribute,
                                   CUdeviceptr address,
                                   const Original& original) const {
  Redirection range;
  const bool answered = value != nullptr && Find(address, &range) &&
                        Describe(entry, range, attribute, value);
  return answered ? CUDA_SUCCESS : original(entry);
}

CUresult PointerQueries::Attributes(const EntryPoints& entry, unsigned count,
                                    const CUpointer_attribute* attributes,
                                    void** values, CUdeviceptr address,
                                    const Original& original) const {
  const CUresult result = original(entry);
  Redirection range;
  if (result != CUDA_SUCCESS || !Find(address, &range)) return result;
  for (unsigned i = 0; i < count; ++i) {
    Describe(entry, range, attributes[i], values[i]);
  }
  return result;
}

}  // namespace fineserve::shim
