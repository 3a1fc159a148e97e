#include "shim/redirect/handle_calls.h"

#include "shim/host/warn.h"
#include "shim/redirect/decision_records.h"

namespace fineserve::shim {

using abi::DecisionRecord;
using abi::Hook;
using abi::Reason;
using abi::Verdict;
using driver::CUDA_ERROR_INVALID_VALUE;
using driver::CUDA_ERROR_NOT_SUPPORTED;
using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using driver::CUmemGenericAllocationHandle;
using driver::CUresult;

CUresult HandleCalls::Map(const Driver& real, CUdeviceptr address,
                          uint64_t bytes, uint64_t offset,
                          CUmemGenericAllocationHandle handle,
                          unsigned long long flags, const Original& original) {
  if (forked()) return original(real.entry);
  return memory_->Map(real.entry, address, bytes, offset, handle, flags,
                      original);
}

CUresult HandleCalls::Unmap(const Driver& real, CUdeviceptr address,
                            uint64_t bytes, const Original& original) {
  if (forked()) return original(real.entry);
  Ended ended;
  const CUresult result =
      memory_->Unmap(real.entry, address, bytes, original, &ended);
  RecordEnd(Hook::kMemUnmap, ended);
  return result;
}

CUresult HandleCalls::Release(const Driver& real,
                              CUmemGenericAllocationHandle handle,
                              const Original& original) {
  if (forked()) return original(real.entry);
  Ended ended;
  const CUresult result =
      memory_->Release(real.entry, handle, original, &ended);
  RecordEnd(Hook::kMemRelease, ended);
  return result;
}

void HandleCalls::RecordEnd(Hook hook, const Ended& ended) {
  if (ended.count == 0) return;
  Redirection range;
  range.asked_bytes = ended.bytes;
  range.lease = ended.lease;
  scoreboard_->CountReleased(ended.bytes);
  RecordFree(hook, range, Verdict::kReleased, CUDA_SUCCESS, scoreboard_);
}

CUresult HandleCalls::Export(const Driver& real,
                             CUmemGenericAllocationHandle handle,
                             const Original& original) {
  VirtualAllocation a;
  if (forked() || !memory_->Find(handle, &a)) {
    return original(real.entry);
  }
  return RefuseSharing(Hook::kMemExport, handle, a.bytes,
                       CUDA_ERROR_NOT_SUPPORTED);
}

CUresult HandleCalls::Retain(const Driver& real,
                             CUmemGenericAllocationHandle* out,
                             CUdeviceptr address, const Original& original) {
  if (forked()) return original(real.entry);
  Redirection range;
  // Memory of cuMemAlloc has no handle.
  if (out == nullptr || ranges_->Find(address, &range)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return memory_->Retain(address, out) ? CUDA_SUCCESS : original(real.entry);
}

CUresult HandleCalls::Properties(const Driver& real,
                                 driver::CUmemAllocationProp* out,
                                 CUmemGenericAllocationHandle handle,
                                 const Original& original) {
  VirtualAllocation a;
  if (out == nullptr || !memory_->Find(handle, &a)) {
    return original(real.entry);
  }
  *out = a.prop;
  return CUDA_SUCCESS;
}

CUresult HandleCalls::ShareAddress(const Driver& real, Hook hook,
                                   CUdeviceptr address, CUresult refusal,
                                   const Original& original) {
  Redirection range;
  if (forked() || !queries_->Find(address, &range)) return original(real.entry);
  return RefuseSharing(hook, address, range.asked_bytes, refusal);
}

// Another process or device would keep what it was handed beyond the end of the
// lease, and write into another engine's KV.
CUresult HandleCalls::RefuseSharing(Hook hook, uint64_t address, uint64_t bytes,
                                    CUresult result) {
  DecisionRecord record = NewRecord(hook);
  record.address = address;
  record.bytes = bytes;
  record.verdict = Verdict::kDenied;
  record.reason = Reason::kShared;
  record.result = result;
  scoreboard_->Record(record);
  if (!sharing_warned_.exchange(true, std::memory_order_relaxed)) {
    Warn(
        "%s refused: this memory is KV in leased slabs, which cannot be shared "
        "(configure the allocation not to be KV, or set FINESERVE_DISABLE=1)",
        abi::kHookSymbols[static_cast<size_t>(hook)]);
  }
  return result;
}

}  // namespace fineserve::shim
