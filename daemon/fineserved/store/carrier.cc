#include "daemon/fineserved/store/carrier.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/driver/driver_handles.h"
#include "kernels/driver/status.h"

namespace fineserve::store {

using driver::Granule;
using driver::Mapping;
using driver::Reservation;
using driver::ToStatus;

absl::Status Carrier::Carry(const Transfer& whole, uint64_t offset,
                            uint64_t bytes, driver::CUstream stream) {
  const uint64_t all = whole.memory.bytes;
  if (bytes == 0 || offset > all || bytes > all - offset) {
    return absl::InvalidArgumentError("that is no part of the memory");
  }
  const absl::StatusOr<Granule> granule =
      Granule::Import(driver_, whole.memory.memory.get(), all);
  if (!granule.ok()) return granule.status();
  if (!Reaches(granule->handle())) {
    return absl::FailedPreconditionError(
        "no link of their own connects the two GPUs");
  }
  const absl::StatusOr<Reservation> range = Reservation::Create(driver_, all);
  if (!range.ok()) return range.status();
  const absl::StatusOr<Mapping> mapping =
      Mapping::Create(driver_, range->address(), *granule);
  if (!mapping.ok()) return mapping.status();
  absl::Status s =
      driver::AllowReadWrite(driver_, device_, range->address(), all);
  if (!s.ok()) return s;
  const absl::StatusOr<Copy*> copy = Find(whole);
  if (!copy.ok()) return copy.status();
  // The copy is locked only while it is carried: if two carriers kept locks on
  // a copy, each would think that the other needs it.
  if (!(*copy)->file->Lock((*copy)->range)) {
    return absl::NotFoundError("there is no such copy");
  }
  s = CopyPart(*copy, {offset, bytes}, range->address() + offset, stream);
  (*copy)->file->LetGo((*copy)->range);
  return s;
}

absl::Status Carrier::CopyPart(Copy* copy, const FileRange& part,
                               driver::CUdeviceptr to,
                               driver::CUstream stream) {
  const driver::EntryPoints& call = driver_.call();
  const auto pinned =
      copy->pinned
          .try_emplace({part.offset, part.bytes}, call, *copy->file,
                       copy->range.offset + part.offset, part.bytes)
          .first;
  if (pinned->second.base() == nullptr) {
    copy->pinned.erase(pinned);
    return absl::ResourceExhaustedError("the store's file cannot be mapped");
  }
  const absl::Status s = ToStatus(
      call,
      call.cuMemcpyHtoDAsync_v2(to, pinned->second.base(), part.bytes, stream),
      "copying to another GPU");
  const absl::Status rests = ToStatus(call, call.cuStreamSynchronize(stream),
                                      "copying to another GPU");
  return rests.ok() ? s : absl::AbortedError(rests.message());
}

// Known copies stay valid: an address of a store's file is used only once.
absl::StatusOr<Carrier::Copy*> Carrier::Find(const Transfer& whole) {
  absl::StatusOr<StoreFile> file = StoreFile::Adopt(whole.file->get());
  if (!file.ok()) return file.status();
  const std::pair<ino_t, uint64_t> key = {file->inode(), whole.file_offset};
  const FileRange range = {whole.file_offset, whole.memory.bytes};
  const auto known = copies_.find(key);
  if (known != copies_.end()) {
    if (known->second.range.bytes == range.bytes) return &known->second;
    return absl::InvalidArgumentError("there is another copy");
  }
  // One descriptor per file: a file has many copies, and a process few
  // descriptors.
  const auto other = copies_.lower_bound({key.first, 0});
  const bool has_file =
      other != copies_.end() && other->first.first == key.first;
  Copy copy = {has_file ? other->second.file
                        : std::make_shared<StoreFile>(*std::move(file)),
               range};
  return &copies_.emplace(key, std::move(copy)).first->second;
}

// True if NVLink reaches the memory, which native atomics indicate. Over PCIe
// the copy would also use the other GPU's link to the host, and gain nothing.
bool Carrier::Reaches(driver::CUmemGenericAllocationHandle memory) const {
  const driver::EntryPoints& call = driver_.call();
  driver::CUmemAllocationProp properties = {};
  int native = 0;
  return call.cuMemGetAllocationPropertiesFromHandle != nullptr &&
         call.cuDeviceGetP2PAttribute != nullptr &&
         call.cuMemGetAllocationPropertiesFromHandle(&properties, memory) ==
             driver::CUDA_SUCCESS &&
         properties.location.id != device_ &&
         call.cuDeviceGetP2PAttribute(
             &native, driver::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
             device_, properties.location.id) == driver::CUDA_SUCCESS &&
         native != 0;
}

bool Carrier::LetGoUnneeded() {
  constexpr int kMost = 8;  // at a time: others wait for this thread
  int count = 0;
  for (auto it = copies_.begin(); it != copies_.end() && count < kMost;) {
    Copy& copy = it->second;
    if (copy.file->IsLockedByOthers(copy.range)) {
      ++it;
      continue;
    }
    copy.pinned.clear();
    copy.file->LetGo(copy.range);
    it = copies_.erase(it);
    ++count;
  }
  return count > 0;
}

}  // namespace fineserve::store
