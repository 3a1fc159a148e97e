#include "shim/redirect/redirector.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "shim/classify/stack.h"
#include "shim/host/warn.h"

namespace fineserve::shim {
namespace {

using abi::DecisionRecord;
using abi::Hook;
using abi::LinkState;
using abi::Reason;
using abi::Verdict;
using driver::CUDA_ERROR_INVALID_VALUE;
using driver::CUDA_ERROR_NOT_SUPPORTED;
using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUDA_SUCCESS;
using driver::CUdevice;
using driver::CUdeviceptr;
using driver::CUevent;
using driver::CUmemGenericAllocationHandle;
using driver::CUresult;
using driver::CUstream;
using driver::CUuuid;

// Heuristic: how long an allocation waits, when the pool is exhausted, for
// frees of its own process that have not passed yet.
constexpr int kDeferredWaitMs = 1'000;

DecisionRecord NewRecord(Hook hook) {
  DecisionRecord r = {};
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  r.time_ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  r.hook = hook;
  r.tid = static_cast<uint32_t>(gettid());
  return r;
}

bool DeviceOf(const Driver& real, const AllocationCall& call, CUdevice* out) {
  if (call.prop == nullptr) {
    return real.entry.cuCtxGetDevice(out) == CUDA_SUCCESS;
  }
  *out = call.prop->location.id;
  return call.prop->location.type == driver::CU_MEM_LOCATION_TYPE_DEVICE;
}

// The GPU whose memory is asked for: the current context's, or the one that
// cuMemCreate names. False if there is none, or from a driver that is too old.
bool GpuOf(const Driver& real, const AllocationCall& call, uint8_t (&out)[16]) {
  CUdevice device;
  CUuuid uuid;
  if (!real.complete || !DeviceOf(real, call, &device) ||
      real.entry.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) {
    return false;
  }
  memcpy(out, uuid.bytes, sizeof(out));
  return true;
}

CUresult PassThrough(const Driver& real, const AllocationCall& call,
                     const CUdeviceptr* out, DecisionRecord* record) {
  const CUresult result = call.original(real.entry);
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

bool IsCapturing(const Driver& real, CUstream stream) {
  driver::CUstreamCaptureStatus status = driver::CU_STREAM_CAPTURE_STATUS_NONE;
  // A driver without the call has no captures.
  CallOptional(real.entry.cuStreamIsCapturing, stream, &status);
  return status != driver::CU_STREAM_CAPTURE_STATUS_NONE;
}

// A pool of host memory or of another device is no place for KV of this one.
bool IsOfCurrentDevice(const Driver& real, driver::CUmemoryPool pool) {
  if (pool == nullptr) return true;
  driver::CUmemLocation here = {driver::CU_MEM_LOCATION_TYPE_DEVICE, 0};
  auto access = driver::CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return real.entry.cuCtxGetDevice(&here.id) == CUDA_SUCCESS &&
         CallOptional(real.entry.cuMemPoolGetAccess, &access, pool, &here) ==
             CUDA_SUCCESS &&
         access == driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

// Why slabs cannot stand in for the memory of this call; kScope if they can.
Reason Obstacle(const Driver& real, const AllocationCall& call) {
  if (call.kind == MemoryKind::kOther) return Reason::kMemoryKind;
  if (call.prop != nullptr &&
      call.prop->location.type != driver::CU_MEM_LOCATION_TYPE_DEVICE) {
    return Reason::kMemoryKind;
  }
  if (call.kind == MemoryKind::kPlain) return Reason::kScope;
  if (IsCapturing(real, call.stream)) return Reason::kCapturing;
  return IsOfCurrentDevice(real, call.pool) ? Reason::kScope
                                            : Reason::kMemoryKind;
}

// To ask about an event may end a capture that the program has under way, in
// this thread or in another one, as CUDA's default mode of capturing has it.
// Our question concerns no capture: it is asked in the mode that forbids
// nothing.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const driver::EntryPoints& entry) : entry_(entry) {
    changed_ = Exchange() == CUDA_SUCCESS;
  }
  ~RelaxedCapture() {
    if (changed_) Exchange();
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  // A driver without the call has no captures.
  CUresult Exchange() {
    return CallOptional(entry_.cuThreadExchangeStreamCaptureMode, &mode_);
  }

  const driver::EntryPoints& entry_;
  driver::CUstreamCaptureMode mode_ = driver::CU_STREAM_CAPTURE_MODE_RELAXED;
  bool changed_;
};

void SleepMs(int ms) {
  const timespec pause = {0, ms * 1'000'000L};
  nanosleep(&pause, nullptr);
}

}  // namespace

CUresult Redirector::Allocate(const Driver& real, const AllocationCall& call,
                              CUdeviceptr* out) {
  JoinDaemon(real, call);
  CollectDeferred(real);
  DecisionRecord record = NewRecord(call.hook);
  record.bytes = call.bytes;
  scoreboard_.CountLarge();
  if (IsRefused(call)) {
    Refuse(call, &record);
    return static_cast<CUresult>(record.result);
  }
  const RuleMatch match = Inspect(call, &record);
  const Classification c =
      Classify(call.bytes, call.in_scope, match, declared_);
  record.reason = c.reason;
  CUresult result;
  if (c.kv && Redirect(real, call, &record, out)) {
    result = static_cast<CUresult>(record.result);
  } else {
    result = PassThrough(real, call, out, &record);
    if (result == CUDA_SUCCESS) scoreboard_.CountPassed(call.bytes);
  }
  scoreboard_.Record(record);
  return result;
}

// Memory of the host is nobody's KV.
bool Redirector::IsRefused(const AllocationCall& call) {
  if (!view_required_.load(std::memory_order_relaxed) ||
      (call.prop != nullptr &&
       call.prop->location.type != driver::CU_MEM_LOCATION_TYPE_DEVICE)) {
    return false;
  }
  return (gate_closed() && call.bytes >= kGateBytes) ||
         (call.in_scope && !view_.in_use());
}

void Redirector::Refuse(const AllocationCall& call, DecisionRecord* record) {
  record->verdict = Verdict::kDenied;
  record->reason = Reason::kNoPlugin;
  record->result = driver::CUDA_ERROR_NOT_PERMITTED;
  scoreboard_.CountDenied();
  scoreboard_.Record(*record);
  if (refusal_warned_.exchange(true, std::memory_order_relaxed)) return;
  Warn(
      "%s of %zu bytes refused: FINESERVE_VIEW=required, but %s; the engine "
      "must not start (is its FineServe plugin installed and enabled? unset "
      "FINESERVE_VIEW to run without a view)",
      abi::kHookSymbols[static_cast<size_t>(call.hook)], call.bytes,
      gate_closed() ? "nothing has replaced its block pool"
                    : "its KV has no view of the pool");
}

// Captures the stack of a large allocation and asks the rules about it.
RuleMatch Redirector::Inspect(const AllocationCall& call,
                              DecisionRecord* record) {
  if (call.bytes < kLargeBytes) return {};
  const bool ask = !call.in_scope && !rules_.empty() &&
                   !forked_.load(std::memory_order_relaxed);
  uint64_t frames[kNamedFrames];
  static_assert(kNamedFrames >= abi::kFrameCapacity);
  const uint16_t count = CaptureStack(call.caller, frames,
                                      ask ? kNamedFrames : abi::kFrameCapacity);
  scoreboard_.CountStack();
  record->frame_count =
      std::min(count, static_cast<uint16_t>(abi::kFrameCapacity));
  memcpy(record->frames, frames, record->frame_count * sizeof(frames[0]));
  if (!ask) return {};
  const RuleMatch match = rules_.Match(frames, count, call.bytes);
  record->unnamed_frames = match.unnamed_frames;
  memcpy(record->rule, match.name, sizeof(record->rule));
  return match;
}

// At every large allocation, since an early one may find no current context.
void Redirector::JoinDaemon(const Driver& real, const AllocationCall& call) {
  if (forked_.load(std::memory_order_relaxed)) {
    if (scoreboard_.has_scoreboard() || !scoreboard_.CreateOwn()) return;
    scoreboard_.SetLink(LinkState::kForked, "a forked child asks for no lease");
    return;
  }
  uint8_t gpu[16];
  if (link_.state() == LinkState::kNotTried && GpuOf(real, call, gpu)) {
    link_.Join(gpu, /*reconnect=*/false);
  }
}

// True if the program has its answer (record->result, *out); false if the
// driver is to answer.
bool Redirector::Redirect(const Driver& real, const AllocationCall& call,
                          DecisionRecord* record, CUdeviceptr* out) {
  if (forked_.load(std::memory_order_relaxed)) {
    return Decline(Reason::kForkedChild, record);
  }
  if (!real.complete) {
    return Decline(Reason::kDriverError, CUDA_ERROR_NOT_SUPPORTED, record);
  }
  const Reason obstacle = Obstacle(real, call);
  if (obstacle != Reason::kScope) return Decline(obstacle, record);
  uint8_t gpu[16];
  // Errors of the program's own, which the driver shall name.
  if (out == nullptr || call.bytes == 0 || !GpuOf(real, call, gpu))
    return false;
  if (view_.in_use()) {
    if (!call.in_scope || call.prop != nullptr) {
      return Decline(Reason::kSlabSize, record);
    }
    Redirection tensor;
    const MapResult mapped = view_.AddTensor(real, call.bytes, &tensor);
    if (mapped.outcome == MapOutcome::kMapped) record->reason = Reason::kView;
    return Conclude(Placed(mapped, real, tensor), tensor, record, out);
  }
  const LinkState state = link_.Join(gpu, /*reconnect=*/true);
  if (state == LinkState::kRefused) return Decline(Reason::kRefused, record);
  if (!link_.Serves(gpu)) return Decline(Reason::kOtherGpu, record);
  if (state != LinkState::kConnected) return Decline(Reason::kNoDaemon, record);
  Redirection range;
  const MapResult mapped = MapKv(real, call, &range);
  return Conclude(mapped, range, record, out);
}

bool Redirector::WaitForDeferred(const Driver& real) {
  for (int ms = 0; ms < kDeferredWaitMs && !deferred_.empty(); ++ms) {
    if (CollectDeferred(real)) return true;
    SleepMs(1);
  }
  return false;
}

// An exhausted pool gets back first what this process has freed already.
MapResult Redirector::MapKv(const Driver& real, const AllocationCall& call,
                            Redirection* out) {
  MapResult mapped = MapOnce(real, call, out);
  while (mapped.outcome == MapOutcome::kExhausted && WaitForDeferred(real)) {
    mapped = MapOnce(real, call, out);
  }
  return mapped;
}

MapResult Redirector::MapOnce(const Driver& real, const AllocationCall& call,
                              Redirection* out) {
  if (call.prop != nullptr) {
    return virtual_memory_.Create(real.entry, call.bytes, *call.prop, out);
  }
  WholeMapping kv(real.entry, &link_);
  return Placed(kv.Map(call.bytes, out), real, *out);
}

MapResult Redirector::Placed(const MapResult& mapped, const Driver& real,
                             const Redirection& range) {
  if (mapped.outcome != MapOutcome::kMapped || ranges_->Insert(range)) {
    return mapped;
  }
  Unmap(real, range, /*waits=*/false);  // the program never saw it
  return {MapOutcome::kTableFull};
}

CUresult Redirector::Unmap(const Driver& real, const Redirection& range,
                           bool waits) {
  if (range.is_view) return view_.FreeTensor(real, range);
  WholeMapping kv(real.entry, &link_);
  return waits ? kv.Unmap(range) : kv.Discard(range);
}

bool Redirector::Conclude(const MapResult& mapped, const Redirection& range,
                          DecisionRecord* record, CUdeviceptr* out) {
  switch (mapped.outcome) {
    case MapOutcome::kMapped:
      record->verdict = Verdict::kRedirected;
      record->address = *out = range.base;
      record->lease = range.lease;
      scoreboard_.CountRedirected(range.asked_bytes);
      return true;
    case MapOutcome::kExhausted:
      record->verdict = Verdict::kDenied;
      record->reason = Reason::kPoolExhausted;
      record->result = CUDA_ERROR_OUT_OF_MEMORY;
      scoreboard_.CountDenied();
      return true;
    case MapOutcome::kRefused:
      return Decline(Reason::kRefused, record);
    case MapOutcome::kNoDaemon:
      return Decline(Reason::kNoDaemon, record);
    case MapOutcome::kWrongSize:
      return Decline(Reason::kSlabSize, record);
    case MapOutcome::kWrongKind:
      return Decline(Reason::kMemoryKind, record);
    case MapOutcome::kTableFull:
      return Decline(Reason::kTableFull, record);
    case MapOutcome::kDriverError:
      break;
  }
  return Decline(Reason::kDriverError, mapped.result, record);
}

CUresult Redirector::Free(const Driver& real, CUdeviceptr address) {
  if (forked_.load(std::memory_order_relaxed)) {
    return real.entry.cuMemFree_v2(address);
  }
  CollectDeferred(real);
  Redirection range;
  switch (ranges_->Take(address, &range)) {
    case RangeTable::Found::kBase:
      return Release(real, Hook::kMemFree, range);
    case RangeTable::Found::kInside:
      return CUDA_ERROR_INVALID_VALUE;
    case RangeTable::Found::kNothing:
      break;
  }
  return real.entry.cuMemFree_v2(address);
}

CUresult Redirector::FreeInStreamOrder(const Driver& real, Hook hook,
                                       CUdeviceptr address, CUstream stream,
                                       const Original& original) {
  if (forked_.load(std::memory_order_relaxed)) return original(real.entry);
  CollectDeferred(real);
  // A graph frees only what it allocated.
  if (IsCapturing(real, stream)) return CUDA_ERROR_INVALID_VALUE;
  Redirection range;
  switch (ranges_->Take(address, &range)) {
    case RangeTable::Found::kBase:
      return Defer(real, hook, range, stream);
    case RangeTable::Found::kInside:
      return CUDA_ERROR_INVALID_VALUE;
    case RangeTable::Found::kNothing:
      break;
  }
  return original(real.entry);
}

CUresult Redirector::Release(const Driver& real, Hook hook,
                             const Redirection& range) {
  const CUresult result = Unmap(real, range, /*waits=*/true);
  RecordFree(hook, range, Verdict::kReleased, result);
  if (result == CUDA_SUCCESS) {
    scoreboard_.CountReleased(range.asked_bytes);
  } else {
    ranges_->Insert(range);  // still the program's, still leased
  }
  return result;
}

CUresult Redirector::Defer(const Driver& real, Hook hook,
                           const Redirection& range, CUstream stream) {
  CUevent passed = nullptr;
  CUresult result =
      real.entry.cuEventCreate(&passed, driver::CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) result = real.entry.cuEventRecord(passed, stream);
  if (result != CUDA_SUCCESS) {
    if (passed != nullptr) real.entry.cuEventDestroy_v2(passed);
    ranges_->Insert(range);  // nothing was freed
    return result;
  }
  if (!deferred_.Add(range, passed)) {
    real.entry.cuEventDestroy_v2(passed);
    return Release(real, hook, range);  // waits for the context instead
  }
  RecordFree(hook, range, Verdict::kDeferred, CUDA_SUCCESS);
  CollectDeferred(real);
  return CUDA_SUCCESS;
}

bool Redirector::CollectDeferred(const Driver& real) {
  if (forked_.load(std::memory_order_relaxed) || deferred_.empty()) {
    return false;
  }
  const RelaxedCapture relaxed(real.entry);
  bool any = false;
  Redirection range;
  while (deferred_.TakePassed(real.entry, &range)) {
    const CUresult result = Unmap(real, range, /*waits=*/false);
    if (result == CUDA_SUCCESS) scoreboard_.CountReleased(range.asked_bytes);
    RecordFree(Hook::kMemFreeAsync, range, Verdict::kReleased, result);
    any = any || result == CUDA_SUCCESS;
  }
  return any;
}

void Redirector::RecordFree(Hook hook, const Redirection& range,
                            Verdict verdict, CUresult result) {
  DecisionRecord record = NewRecord(hook);
  record.address = range.base;
  record.bytes = range.asked_bytes;
  record.lease = range.lease;
  record.result = result;
  record.verdict = result == CUDA_SUCCESS ? verdict : Verdict::kKept;
  record.reason =
      result == CUDA_SUCCESS ? Reason::kFreed : Reason::kDriverError;
  scoreboard_.Record(record);
}

CUresult Redirector::MapHandle(const Driver& real, CUdeviceptr address,
                               uint64_t bytes, uint64_t offset,
                               CUmemGenericAllocationHandle handle,
                               unsigned long long flags,
                               const Original& original) {
  if (forked_.load(std::memory_order_relaxed)) return original(real.entry);
  return virtual_memory_.Map(real.entry, address, bytes, offset, handle, flags,
                             original);
}

CUresult Redirector::UnmapRange(const Driver& real, CUdeviceptr address,
                                uint64_t bytes, const Original& original) {
  if (forked_.load(std::memory_order_relaxed)) return original(real.entry);
  Ended ended;
  const CUresult result =
      virtual_memory_.Unmap(real.entry, address, bytes, original, &ended);
  RecordEnd(Hook::kMemUnmap, ended);
  return result;
}

CUresult Redirector::ReleaseHandle(const Driver& real,
                                   CUmemGenericAllocationHandle handle,
                                   const Original& original) {
  if (forked_.load(std::memory_order_relaxed)) return original(real.entry);
  Ended ended;
  const CUresult result =
      virtual_memory_.Release(real.entry, handle, original, &ended);
  RecordEnd(Hook::kMemRelease, ended);
  return result;
}

void Redirector::RecordEnd(Hook hook, const Ended& ended) {
  if (ended.count == 0) return;
  Redirection range;
  range.asked_bytes = ended.bytes;
  range.lease = ended.lease;
  scoreboard_.CountReleased(ended.bytes);
  RecordFree(hook, range, Verdict::kReleased, CUDA_SUCCESS);
}

CUresult Redirector::ExportHandle(const Driver& real,
                                  CUmemGenericAllocationHandle handle,
                                  const Original& original) {
  VirtualAllocation a;
  if (forked_.load(std::memory_order_relaxed) ||
      !virtual_memory_.Find(handle, &a)) {
    return original(real.entry);
  }
  return RefuseSharing(Hook::kMemExport, handle, a.bytes,
                       CUDA_ERROR_NOT_SUPPORTED);
}

CUresult Redirector::RetainHandle(const Driver& real,
                                  CUmemGenericAllocationHandle* out,
                                  CUdeviceptr address,
                                  const Original& original) {
  if (forked_.load(std::memory_order_relaxed)) return original(real.entry);
  Redirection range;
  // Memory of cuMemAlloc has no handle.
  if (out == nullptr || ranges_->Find(address, &range)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return virtual_memory_.Retain(address, out) ? CUDA_SUCCESS
                                              : original(real.entry);
}

CUresult Redirector::HandleProperties(const Driver& real,
                                      driver::CUmemAllocationProp* out,
                                      CUmemGenericAllocationHandle handle,
                                      const Original& original) {
  VirtualAllocation a;
  if (out == nullptr || !virtual_memory_.Find(handle, &a)) {
    return original(real.entry);
  }
  *out = a.prop;
  return CUDA_SUCCESS;
}

CUresult Redirector::ShareAddress(const Driver& real, Hook hook,
                                  CUdeviceptr address, CUresult refusal,
                                  const Original& original) {
  Redirection range;
  if (forked() || !queries_.Find(address, &range)) return original(real.entry);
  return RefuseSharing(hook, address, range.asked_bytes, refusal);
}

// Another process or device would keep what it was handed after the lease has
// ended, and write into another engine's KV.
CUresult Redirector::RefuseSharing(Hook hook, uint64_t address, uint64_t bytes,
                                   CUresult result) {
  DecisionRecord record = NewRecord(hook);
  record.address = address;
  record.bytes = bytes;
  record.verdict = Verdict::kDenied;
  record.reason = Reason::kShared;
  record.result = result;
  scoreboard_.Record(record);
  if (!sharing_warned_.exchange(true, std::memory_order_relaxed)) {
    Warn(
        "%s refused: this memory is KV in leased slabs, which cannot be "
        "shared (let the allocation not be KV, or set FINESERVE_DISABLE=1)",
        abi::kHookSymbols[static_cast<size_t>(hook)]);
  }
  return result;
}

void Redirector::AfterForkInChild() {
  scoreboard_.AbandonInChild();
  if (!link_.engaged()) return;
  forked_.store(true, std::memory_order_relaxed);
  link_.AbandonInChild();
}

}  // namespace fineserve::shim
