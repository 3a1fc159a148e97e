#include "shim/allocator.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/stack.h"
#include "shim/thread_state.h"

namespace fineserve::shim {
namespace {

using abi::Channel;
using abi::DecisionRecord;
using abi::LinkState;
using abi::Reason;
using abi::Verdict;
using driver::CUDA_ERROR_INVALID_VALUE;
using driver::CUDA_ERROR_NOT_SUPPORTED;
using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUDA_SUCCESS;
using driver::CUdevice;
using driver::CUdeviceptr;
using driver::CUresult;
using driver::CUuuid;

DecisionRecord NewRecord(Channel channel) {
  DecisionRecord r = {};
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  r.time_ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  r.channel = channel;
  r.tid = static_cast<uint32_t>(gettid());
  return r;
}

// False without a current context, or from a driver that is too old.
bool CurrentGpu(const Driver& real, uint8_t (&out)[16]) {
  CUdevice device;
  CUuuid uuid;
  if (!real.complete || real.entry.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
      real.entry.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) {
    return false;
  }
  memcpy(out, uuid.bytes, sizeof(out));
  return true;
}

CUresult PassThrough(const Driver& real, size_t bytes, CUdeviceptr* out,
                     DecisionRecord* record) {
  const CUresult result = real.entry.cuMemAlloc_v2(out, bytes);
  record->verdict = Verdict::kPassThrough;
  if (result == CUDA_SUCCESS) record->address = *out;
  // A mapping that failed left its own result, which is what wants explaining.
  if (record->reason != Reason::kDriverError) record->result = result;
  return result;
}

// Records why an allocation that is KV by rule stays the driver's.
bool Decline(Reason reason, CUresult result, DecisionRecord* record) {
  record->reason = reason;
  record->result = result;
  return false;
}

bool Decline(Reason reason, DecisionRecord* record) {
  return Decline(reason, CUDA_SUCCESS, record);
}

}  // namespace

CUresult Allocator::Allocate(const Driver& real, const AllocationCall& call,
                             CUdeviceptr* out) {
  JoinDaemon(real);
  const Classification c = Classify(call.bytes, call.in_scope, declared_);
  DecisionRecord record = NewRecord(Channel::kMemAlloc);
  record.bytes = call.bytes;
  record.reason = c.reason;
  page_.CountLarge();
  if (call.bytes >= kLargeBytes) {
    record.frame_count = CaptureStack(call.caller, record.frames);
    page_.CountStack();
  }
  CUresult result;
  if (c.kv && Redirect(real, call, &record, out)) {
    result = static_cast<CUresult>(record.result);
  } else {
    result = PassThrough(real, call.bytes, out, &record);
  }
  page_.Record(record);
  return result;
}

// At every large allocation, since an early one may find no current context.
void Allocator::JoinDaemon(const Driver& real) {
  if (forked_.load(std::memory_order_relaxed)) {
    if (page_.has_page() || !page_.CreateOwn()) return;
    page_.SetLink(LinkState::kNoDaemon, "forked child: it asks for no lease");
    return;
  }
  uint8_t gpu[16];
  if (link_.state() == LinkState::kNotTried && CurrentGpu(real, gpu)) {
    link_.Join(gpu, /*reconnect=*/false);
  }
}

// True if the program has its answer (record->result, *out); false if the
// driver is to answer.
bool Allocator::Redirect(const Driver& real, const AllocationCall& call,
                         DecisionRecord* record, CUdeviceptr* out) {
  if (forked_.load(std::memory_order_relaxed)) {
    return Decline(Reason::kForkedChild, record);
  }
  if (!real.complete) {
    return Decline(Reason::kDriverError, CUDA_ERROR_NOT_SUPPORTED, record);
  }
  uint8_t gpu[16];
  // Errors of the program's own, which the driver shall name.
  if (out == nullptr || call.bytes == 0 || !CurrentGpu(real, gpu)) return false;
  const LinkState state = link_.Join(gpu, /*reconnect=*/true);
  if (state == LinkState::kRefused) return Decline(Reason::kRefused, record);
  if (state != LinkState::kConnected) return Decline(Reason::kNoDaemon, record);
  KvWhole kv(real.entry, &link_);
  Redirection range;
  MapResult mapped = kv.Map(call.bytes, &range);
  if (mapped.outcome == MapOutcome::kMapped && !ranges_->Insert(range)) {
    kv.Discard(range);
    mapped = {MapOutcome::kDriverError, CUDA_ERROR_OUT_OF_MEMORY};
  }
  return Conclude(mapped, range, record, out);
}

bool Allocator::Conclude(const MapResult& mapped, const Redirection& range,
                         DecisionRecord* record, CUdeviceptr* out) {
  switch (mapped.outcome) {
    case MapOutcome::kMapped:
      record->verdict = Verdict::kRedirected;
      record->address = *out = range.base;
      record->lease = range.lease;
      page_.CountRedirected(range.asked_bytes);
      return true;
    case MapOutcome::kExhausted:
      record->verdict = Verdict::kDenied;
      record->reason = Reason::kPoolExhausted;
      record->result = CUDA_ERROR_OUT_OF_MEMORY;
      page_.CountDenied();
      return true;
    case MapOutcome::kRefused:
      return Decline(Reason::kRefused, record);
    case MapOutcome::kNoDaemon:
      return Decline(Reason::kNoDaemon, record);
    case MapOutcome::kDriverError:
      break;
  }
  return Decline(Reason::kDriverError, mapped.result, record);
}

CUresult Allocator::Free(const Driver& real, CUdeviceptr address) {
  if (forked_.load(std::memory_order_relaxed)) {
    return real.entry.cuMemFree_v2(address);
  }
  Redirection range;
  switch (ranges_->Take(address, &range)) {
    case RangeTable::Found::kBase:
      return Release(real, range);
    case RangeTable::Found::kInside:
      return CUDA_ERROR_INVALID_VALUE;
    case RangeTable::Found::kNothing:
      break;
  }
  return real.entry.cuMemFree_v2(address);
}

CUresult Allocator::Release(const Driver& real, const Redirection& range) {
  KvWhole kv(real.entry, &link_);
  const CUresult result = kv.Unmap(range);
  DecisionRecord record = NewRecord(Channel::kMemFree);
  record.address = range.base;
  record.bytes = range.asked_bytes;
  record.lease = range.lease;
  record.result = result;
  record.verdict = Verdict::kReleased;
  record.reason =
      result == CUDA_SUCCESS ? Reason::kFreed : Reason::kDriverError;
  if (result == CUDA_SUCCESS) {
    page_.CountReleased(range.asked_bytes);
  } else {
    ranges_->Insert(range);  // still the program's, still leased
  }
  page_.Record(record);
  return result;
}

void Allocator::AfterForkInChild() {
  page_.AbandonInChild();
  if (!link_.engaged()) return;
  forked_.store(true, std::memory_order_relaxed);
  link_.AbandonInChild();
}

}  // namespace fineserve::shim
