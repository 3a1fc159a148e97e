#include "tools/lab/device/virtual_memory/address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <set>
#include <utility>

#include "tools/lab/device/virtual_memory/range_map.h"

namespace fineserve::emucuda {
namespace {

using driver::CUmemAccess_flags;

constexpr int kNowhere = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* Pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

bool Mapped(void* result) { return result != MAP_FAILED; }

// ENOMEM also means that the process has too many mappings.
CUresult MappingError() {
  return errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
                         : CUDA_ERROR_OPERATING_SYSTEM;
}

bool IsGranular(uint64_t bytes) {
  return bytes != 0 && bytes % kGranularity == 0;
}

int HostProtection(CUmemAccess_flags access) {
  switch (access) {
    case driver::CU_MEM_ACCESS_FLAGS_PROT_READ:
      return PROT_READ;
    case driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
      return PROT_READ | PROT_WRITE;
    default:
      return PROT_NONE;
  }
}

// Reserves the range at `wanted`. Returns null if it is not free.
void* ReserveAt(CUdeviceptr wanted, uint64_t bytes) {
  void* place = mmap(Pointer(wanted), bytes, PROT_NONE,
                     kNowhere | MAP_FIXED_NOREPLACE, -1, 0);
  return Mapped(place) ? place : nullptr;
}

// Reserves an aligned range at any address: reserves too much, then trims both
// ends. Returns null on failure.
void* ReserveAligned(uint64_t bytes, uint64_t alignment) {
  const uint64_t wide = bytes + alignment;
  if (wide < bytes) return nullptr;
  void* place = mmap(nullptr, wide, PROT_NONE, kNowhere, -1, 0);
  if (!Mapped(place)) return nullptr;
  const uint64_t start = reinterpret_cast<uint64_t>(place);
  const uint64_t aligned = (start + alignment - 1) & ~(alignment - 1);
  if (aligned > start) munmap(place, aligned - start);
  munmap(Pointer(aligned + bytes), start + alignment - aligned);
  return Pointer(aligned);
}

}  // namespace

CUresult AddressSpace::Reserve(uint64_t bytes, uint64_t alignment,
                               CUdeviceptr wanted, CUdeviceptr* address) {
  if (!IsGranular(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (alignment != 0 && !std::has_single_bit(alignment)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  alignment = std::max(alignment, kGranularity);
  void* place = nullptr;
  if (wanted != 0 && wanted % alignment == 0) place = ReserveAt(wanted, bytes);
  if (place == nullptr) place = ReserveAligned(bytes, alignment);
  if (place == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(place);
  const MutexLock lock(mutex_);
  reservations_[*address] = bytes;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::Free(CUdeviceptr address, uint64_t bytes) {
  const MutexLock lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes ||
      AnyMapped(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (munmap(Pointer(address), bytes) != 0) return MappingError();
  reservations_.erase(found);
  return CUDA_SUCCESS;
}

CUresult AddressSpace::Map(CUdeviceptr address, uint64_t bytes,
                           std::shared_ptr<const MemoryObject> object) {
  const Allocation& memory = *object->allocation;
  if (bytes != memory.bytes()) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(mutex_);
  if (address % kGranularity != 0 || !IsReserved(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (AnyMapped(address, bytes)) return CUDA_ERROR_ALREADY_MAPPED;
  if (!Mapped(mmap(Pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                   memory.fd(), static_cast<off_t>(memory.offset())))) {
    return MappingError();
  }
  madvise(Pointer(address), bytes, MADV_DONTFORK);
  mappings_[address] = {bytes, std::move(object), {}};
  return CUDA_SUCCESS;
}

CUresult AddressSpace::Unmap(CUdeviceptr address, uint64_t bytes) {
  Mappings gone;  // destroyed after the lock is released: this may free memory
  const MutexLock lock(mutex_);
  if (!Tiled(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!Mapped(mmap(Pointer(address), bytes, PROT_NONE, kNowhere | MAP_FIXED, -1,
                   0))) {
    return MappingError();
  }
  auto next = mappings_.find(address);
  while (next != mappings_.end() && next->first < address + bytes) {
    gone.insert(mappings_.extract(next++));
  }
  return CUDA_SUCCESS;
}

CUresult AddressSpace::SetAccess(CUdeviceptr address, uint64_t bytes,
                                 int device, CUmemAccess_flags access) {
  const MutexLock lock(mutex_);
  if (!Tiled(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  for (auto next = mappings_.find(address);
       next != mappings_.end() && next->first < address + bytes; ++next) {
    next->second.access[device] = access;
  }
  return Protect(address, bytes);
}

int AddressSpace::Protection(const Mapping& mapping) const {
  if (windows_ == 0 && !mapping.object->managed) return PROT_NONE;
  return HostProtection(
      *std::max_element(mapping.access.begin(), mapping.access.end()));
}

// The first window opens all mappings to the host, and the last one closes
// them.
void AddressSpace::ChangeWindows(int by) {
  const MutexLock lock(mutex_);
  const int before = windows_;
  windows_ += by;
  if ((before == 0) == (windows_ == 0)) return;
  for (auto next = mappings_.begin(); next != mappings_.end();) {
    const CUdeviceptr start = next->first;
    CUdeviceptr stop = start;
    for (; next != mappings_.end() && next->first == stop; ++next) {
      stop += next->second.bytes;
    }
    Protect(start, stop - start);
  }
}

// Makes one system call per run of equal protection; usually there is one run.
CUresult AddressSpace::Protect(CUdeviceptr address, uint64_t bytes) {
  const CUdeviceptr end = address + bytes;
  CUdeviceptr start = address;
  while (start < end) {
    int protection = -1;
    CUdeviceptr stop = start;
    for (auto next = mappings_.find(start);
         next != mappings_.end() && next->first < end; ++next) {
      const int its = Protection(next->second);
      if (protection >= 0 && its != protection) break;
      protection = its;
      stop = next->first + next->second.bytes;
    }
    if (mprotect(Pointer(start), stop - start, protection) != 0) {
      return MappingError();
    }
    start = stop;
  }
  return CUDA_SUCCESS;
}

CUresult AddressSpace::Place(std::shared_ptr<const MemoryObject> object,
                             CUdeviceptr* address) {
  const uint64_t bytes = object->allocation->bytes();
  const int device = object->device;
  CUresult result = Reserve(bytes, 0, 0, address);
  if (result != CUDA_SUCCESS) return result;
  result = Map(*address, bytes, std::move(object));
  if (result == CUDA_SUCCESS) {
    result = SetAccess(*address, bytes, device,
                       driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (result != CUDA_SUCCESS) Unmap(*address, bytes);
  }
  if (result != CUDA_SUCCESS) Free(*address, bytes);
  return result;
}

void AddressSpace::Remove(CUdeviceptr address, uint64_t bytes) {
  Unmap(address, bytes);
  Free(address, bytes);
}

CUresult AddressSpace::GetAccess(CUdeviceptr address, int device,
                                 CUmemAccess_flags* access) const {
  const MutexLock lock(mutex_);
  const auto mapping = Around(mappings_, address);
  if (mapping == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  *access = mapping->second.access[device];
  return CUDA_SUCCESS;
}

CUresult AddressSpace::GetMapping(
    CUdeviceptr address, CUdeviceptr* base, uint64_t* bytes,
    std::shared_ptr<const MemoryObject>* object) const {
  const MutexLock lock(mutex_);
  const auto mapping = Around(mappings_, address);
  if (mapping == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  *base = mapping->first;
  *bytes = mapping->second.bytes;
  *object = mapping->second.object;
  return CUDA_SUCCESS;
}

bool AddressSpace::HasAliases(CUdeviceptr address, uint64_t bytes) const {
  const MutexLock lock(mutex_);
  std::set<CUmemGenericAllocationHandle> handles;
  for (auto next = mappings_.lower_bound(address);
       next != mappings_.end() && next->first - address < bytes; ++next) {
    if (!handles.insert(next->second.object->handle).second) return true;
  }
  return false;
}

bool AddressSpace::Contains(CUdeviceptr address) const {
  const MutexLock lock(mutex_);
  return IsReserved(address, 1);
}

CUresult AddressSpace::Resolve(int device, CUdeviceptr address, uint64_t bytes,
                               CUmemAccess_flags wanted,
                               std::vector<Segment>* segments) const {
  const MutexLock lock(mutex_);
  while (bytes > 0) {
    const auto found = Around(mappings_, address);
    if (found == mappings_.end()) return CUDA_ERROR_ILLEGAL_ADDRESS;
    const auto& [base, mapping] = *found;
    const int reader =
        mapping.object->handle == 0 ? mapping.object->device : device;
    if ((mapping.access[reader] & wanted) != wanted) {
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    const uint64_t skip = address - base;
    const uint64_t piece = std::min(bytes, mapping.bytes - skip);
    segments->push_back(
        {mapping.object, mapping.object->allocation->offset() + skip, piece});
    address += piece;
    bytes -= piece;
  }
  return CUDA_SUCCESS;
}

bool AddressSpace::IsReserved(CUdeviceptr address, uint64_t bytes) const {
  const auto found = Around(reservations_, address);
  return found != reservations_.end() &&
         bytes <= found->second - (address - found->first);
}

bool AddressSpace::AnyMapped(CUdeviceptr address, uint64_t bytes) const {
  if (Around(mappings_, address) != mappings_.end()) return true;
  const auto next = mappings_.lower_bound(address);
  return next != mappings_.end() && next->first - address < bytes;
}

bool AddressSpace::Tiled(CUdeviceptr address, uint64_t bytes) const {
  if (bytes == 0) return false;
  auto next = mappings_.find(address);
  while (bytes > 0) {
    if (next == mappings_.end() || next->first != address) return false;
    if (next->second.bytes > bytes) return false;
    address += next->second.bytes;
    bytes -= next->second.bytes;
    ++next;
  }
  return true;
}

}  // namespace fineserve::emucuda
