#include "shim/redirect/redirector.h"

#include <string.h>

#include <algorithm>

#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/lease_messages.h"
#include "shim/classify/stack.h"
#include "shim/host/warn.h"
#include "shim/link/seqpacket.h"
#include "shim/map/memory_account.h"
#include "shim/map/whole_mapping.h"
#include "shim/redirect/captures.h"
#include "shim/redirect/decision_records.h"
#include "shim/redirect/engine_ancestor.h"

namespace fineserve::shim {
namespace {

using abi::DecisionRecord;
using abi::Hook;
using abi::LinkState;
using abi::Reason;
using abi::Verdict;
using driver::CUDA_ERROR_NOT_SUPPORTED;
using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUDA_SUCCESS;
using driver::CUdevice;
using driver::CUdeviceptr;
using driver::CUresult;
using driver::CUuuid;

constexpr uint64_t kShortagePauseMs = 10'000;
// Heuristic: device memory that a context uses, including code and stacks.
constexpr uint64_t kMostContextBytes = uint64_t{512} << 20;
constexpr uint64_t kContextShare = 64;

bool DeviceOf(const Driver& real, const AllocationCall& call, CUdevice* out) {
  if (call.prop == nullptr) {
    return real.entry.cuCtxGetDevice(out) == CUDA_SUCCESS;
  }
  *out = call.prop->location.id;
  return call.prop->location.type == driver::CU_MEM_LOCATION_TYPE_DEVICE;
}

// Finds the device's GPU. False if the driver is too old to tell.
bool GpuOf(const Driver& real, CUdevice device, uint8_t (&out)[16]) {
  CUuuid uuid;
  if (!real.complete ||
      real.entry.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) {
    return false;
  }
  memcpy(out, uuid.bytes, sizeof(out));
  return true;
}

// True for the first try, and for a further one that is due.
bool MayJoin(const DaemonLink& link) {
  return link.state() == LinkState::kNotTried || link.is_due();
}

// Finds the GPU whose memory the call requests: the current context's, or the
// one that cuMemCreate names. False if there is none or the driver is too old.
bool GpuOf(const Driver& real, const AllocationCall& call, uint8_t (&out)[16]) {
  CUdevice device;
  return real.complete && DeviceOf(real, call, &device) &&
         GpuOf(real, device, out);
}

// `result` is the driver's answer.
void RecordPassed(CUresult result, const CUdeviceptr* out,
                  DecisionRecord* record) {
  record->verdict = Verdict::kPassThrough;
  if (result == CUDA_SUCCESS) record->address = *out;
  // A failed mapping has already set its own result, which explains more.
  if (record->reason != Reason::kDriverError) record->result = result;
}

// Records why an allocation that is KV by rule is left to the driver.
bool Decline(Reason reason, CUresult result, DecisionRecord* record) {
  record->reason = reason;
  record->result = result;
  return false;
}

bool Decline(Reason reason, DecisionRecord* record) {
  return Decline(reason, CUDA_SUCCESS, record);
}

// False for a pool of host memory or of another device, which cannot hold KV of
// this device.
bool IsOfCurrentDevice(const Driver& real, driver::CUmemoryPool pool) {
  if (pool == nullptr) return true;
  driver::CUmemLocation here = {driver::CU_MEM_LOCATION_TYPE_DEVICE, 0};
  auto access = driver::CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return real.entry.cuCtxGetDevice(&here.id) == CUDA_SUCCESS &&
         CallOptional(real.entry.cuMemPoolGetAccess, &access, pool, &here) ==
             CUDA_SUCCESS &&
         access == driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

// Returns the pool that the call takes memory from; null if the driver cannot
// tell.
driver::CUmemoryPool PoolOf(const Driver& real, const AllocationCall& call) {
  driver::CUmemoryPool pool = call.pool;
  CUdevice device = 0;
  if (pool == nullptr && real.entry.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
    CallOptional(real.entry.cuDeviceGetMemPool, &pool, device);
  }
  return pool;
}

// Returns why slabs cannot replace the memory of this call; kScope if they can.
Reason Obstacle(const Driver& real, const AllocationCall& call) {
  if (call.kind == MemoryKind::kOther) return Reason::kMemoryKind;
  if (call.prop != nullptr &&
      call.prop->location.type != driver::CU_MEM_LOCATION_TYPE_DEVICE) {
    return Reason::kMemoryKind;
  }
  if (call.kind == MemoryKind::kPlain) return Reason::kScope;
  if (IsCapturing(real.entry, call.stream)) return Reason::kCapturing;
  return IsOfCurrentDevice(real, call.pool) ? Reason::kScope
                                            : Reason::kMemoryKind;
}

const char* PoolsCure(const char* why) {
  return strstr(why, abi::kLimitWords) != nullptr
             ? "raise the limit with fsctl limit"
             : "give fineserved a larger --pool";
}

const char* DevicesCure(bool gives_room) {
  return gives_room ? "the rest of the pool is in use or promised to engines: "
                      "lower their longest requests"
                    : "give fineserved a smaller --pool";
}

}  // namespace

CUresult Redirector::Allocate(const Driver& real, const AllocationCall& call,
                              CUdeviceptr* out) {
  if (forked()) {
    ShowChild();
  } else {
    JoinDaemon(real, call);
    releaser_.CollectPassed(real);
  }
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
    const auto attempt = [&] {
      return !c.kv && MakeResident(real, call, out) ? CUDA_SUCCESS
                                                    : call.original(real.entry);
    };
    result = attempt();
    if (result == CUDA_ERROR_OUT_OF_MEMORY && IsForPool(real, call)) {
      result = TryWithRoom(call.bytes, result, attempt);
    }
    RecordPassed(result, out, &record);
    if (result == CUDA_SUCCESS) NotePassed(call, *out);
  }
  scoreboard_.Record(record);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    TellShortage(real, call, record.verdict);
  }
  return result;
}

CUresult Redirector::AllocateSmall(const Driver& real,
                                   const AllocationCall& call) {
  const auto attempt = [&] { return call.original(real.entry); };
  const CUresult result = attempt();
  return result == CUDA_ERROR_OUT_OF_MEMORY && IsForPool(real, call)
             ? TryWithRoom(call.bytes, result, attempt)
             : result;
}

CUresult Redirector::CreateContext(const Driver& real, CUdevice device,
                                   const Original& original) {
  const CUresult result = original(real.entry);
  uint8_t gpu[16];
  size_t total = 0;
  if (result != CUDA_ERROR_OUT_OF_MEMORY || forked() ||
      !GpuOf(real, device, gpu) ||
      real.entry.cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS) {
    return result;
  }
  if (MayJoin(link_)) link_.Join(gpu, /*reconnect=*/true);
  if (!link_.Serves(gpu)) return result;
  const uint64_t bytes = std::min(total / kContextShare, kMostContextBytes);
  return TryWithRoom(bytes, result, [&] { return original(real.entry); });
}

// Returns false if anything fails: the caller then leaves the call to the
// driver, and that memory can never leave the GPU.
bool Redirector::MakeResident(const Driver& real, const AllocationCall& call,
                              CUdeviceptr* out) {
  if (resident_ == nullptr || forked() || !real.complete ||
      call.hook != Hook::kMemAlloc || out == nullptr ||
      call.bytes < ResidentMemory::kLeastBytes) {
    return false;
  }
  Redirection range;
  if (!resident_->Allocate(real, call.bytes, &range)) return false;
  if (Placed({MapOutcome::kMapped}, real, range).outcome !=
      MapOutcome::kMapped) {
    return false;
  }
  *out = range.base;
  scoreboard_.ShowResident(resident_->sum());
  return true;
}

void Redirector::NotePassed(const AllocationCall& call, CUdeviceptr address) {
  scoreboard_.CountPassed(call.bytes);
  const bool creates =
      call.prop != nullptr &&
      call.prop->location.type == driver::CU_MEM_LOCATION_TYPE_DEVICE;
  if (creates && !forked() && created_.Add(address, call.bytes)) {
    scoreboard_.CountCreated(call.bytes);
  }
}

// Forgets the handle before it is released, since another thread may then get
// the same value.
CUresult Redirector::Release(const driver::EntryPoints& entry,
                             driver::CUmemGenericAllocationHandle handle,
                             const Original& original) {
  const uint64_t bytes = created_.Remove(handle);
  if (bytes == 0) return virtual_memory_.Release(entry, handle, original);
  const CUresult result = original(entry);
  if (result == CUDA_SUCCESS) {
    scoreboard_.CountUncreated(bytes);
  } else {
    created_.Add(handle, bytes);
  }
  return result;
}

// True if the call asks for memory of the GPU whose daemon was joined.
bool Redirector::IsForPool(const Driver& real, const AllocationCall& call) {
  uint8_t gpu[16];
  return !forked() && GpuOf(real, call, gpu) && link_.Serves(gpu);
}

// Logs which engines hold the device's memory. Since a program may free some
// and try again, this is only one line, and a rare one.
void Redirector::TellShortage(const Driver& real, const AllocationCall& call,
                              Verdict verdict) {
  if (!IsForPool(real, call)) return;
  const uint64_t now = NowMs();
  uint64_t reported = shortage_told_ms_.load(std::memory_order_relaxed);
  if ((reported != 0 && now - reported < kShortagePauseMs) ||
      !shortage_told_ms_.compare_exchange_strong(reported, now,
                                                 std::memory_order_relaxed)) {
    return;
  }
  char account[800];
  if (!DescribeMemory(real.entry, &link_, account, sizeof(account))) return;
  char size[abi::kByteSizeText];
  abi::FormatByteSize(call.bytes, size);
  const bool ours = verdict == Verdict::kDenied;
  Why why = "out of device memory";
  if (ours) link_.CopyReason(why);
  Warn("%s of %s failed: %s: %s; %s, or run fewer engines",
       abi::kHookSymbols[static_cast<size_t>(call.hook)], size, why, account,
       ours ? PoolsCure(why) : DevicesCure(link_.GivesRoom()));
}

// True if the call must be refused. Host memory is never KV, so it is never
// refused. A process that an engine starts, such as a compiler's worker,
// inherits the engine's environment, but that does not make it an engine.
bool Redirector::IsRefused(const AllocationCall& call) {
  if (!view_required_.load(std::memory_order_relaxed) ||
      (call.prop != nullptr &&
       call.prop->location.type != driver::CU_MEM_LOCATION_TYPE_DEVICE)) {
    return false;
  }
  if (gate_closed() && call.bytes >= kGateBytes) {
    helper_.store(HasEngineAncestor(), std::memory_order_relaxed);
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
      "must not start (install and enable its FineServe plugin, or unset "
      "FINESERVE_VIEW to run without a view)",
      abi::kHookSymbols[static_cast<size_t>(call.hook)], call.bytes,
      gate_closed() ? "nothing has replaced its block pool"
                    : "its KV has no view of the pool");
}

// Captures the stack of a large allocation and matches it with the rules.
RuleMatch Redirector::Inspect(const AllocationCall& call,
                              DecisionRecord* record) {
  if (call.bytes < kLargeBytes) return {};
  const bool ask = !call.in_scope && !rules_.empty() && !forked();
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

void Redirector::ShowChild() {
  if (scoreboard_.has_scoreboard() || !scoreboard_.CreateOwn()) return;
  scoreboard_.SetLink(LinkState::kForked, "a forked child leases nothing");
}

// Joins the daemon. Called at every large allocation, since early ones may have
// no current context.
void Redirector::JoinDaemon(const Driver& real, const AllocationCall& call) {
  uint8_t gpu[16];
  if (link_.has_kept_ends()) link_.Rejoin();
  if (MayJoin(link_) && GpuOf(real, call, gpu)) {
    link_.Join(gpu, /*reconnect=*/true);
  }
}

// True if the call has been handled (record->result, *out); false if the driver
// must handle it.
bool Redirector::Redirect(const Driver& real, const AllocationCall& call,
                          DecisionRecord* record, CUdeviceptr* out) {
  if (forked()) return Decline(Reason::kForkedChild, record);
  if (!real.complete) {
    return Decline(Reason::kDriverError, CUDA_ERROR_NOT_SUPPORTED, record);
  }
  const Reason obstacle = Obstacle(real, call);
  if (obstacle != Reason::kScope) return Decline(obstacle, record);
  uint8_t gpu[16];
  // Leaves these errors of the program to the driver, which returns the right
  // result.
  if (out == nullptr || call.bytes == 0 || !GpuOf(real, call, gpu))
    return false;
  if (view_.in_use()) {
    if (!call.in_scope || call.prop != nullptr) {
      return Decline(Reason::kSlabSize, record);
    }
    Redirection tensor;
    const MapResult mapped = AddTensor(real, call.bytes, &tensor);
    if (mapped.outcome == MapOutcome::kMapped) record->reason = Reason::kView;
    return Conclude(Placed(mapped, real, tensor), tensor, record, out);
  }
  const LinkState state = link_.Join(gpu, /*reconnect=*/true);
  if (state == LinkState::kRefused) return Decline(Reason::kRefused, record);
  if (!link_.Serves(gpu)) return DeclineOtherGpu(record);
  if (state != LinkState::kConnected) return Decline(Reason::kNoDaemon, record);
  Redirection range;
  const MapResult mapped = MapKv(real, call, &range);
  return Conclude(mapped, range, record, out);
}

// A process without a view shares its KV on one GPU only.
bool Redirector::DeclineOtherGpu(DecisionRecord* record) {
  if (!other_gpu_warned_.exchange(true, std::memory_order_relaxed)) {
    Warn(
        "this process has KV on several GPUs and has joined the daemon of one: "
        "on the others its KV stays the driver's (use a process for each GPU)");
  }
  return Decline(Reason::kOtherGpu, record);
}

// Maps slabs. If the pool is exhausted, waits for memory that this process has
// already freed.
MapResult Redirector::MapKv(const Driver& real, const AllocationCall& call,
                            Redirection* out) {
  MapResult mapped = MapOnce(real, call, out);
  while (mapped.outcome == MapOutcome::kExhausted &&
         releaser_.WaitForPassed(real)) {
    mapped = MapOnce(real, call, out);
  }
  return mapped;
}

MapResult Redirector::MapOnce(const Driver& real, const AllocationCall& call,
                              Redirection* out) {
  if (call.prop != nullptr) {
    return virtual_memory_.Create(real.entry, call.bytes, *call.prop, out);
  }
  WholeMapping whole(real.entry, &link_);
  const MapResult mapped = whole.Map(call.bytes, out);
  if (call.kind == MemoryKind::kStreamOrdered) out->pool = PoolOf(real, call);
  return Placed(mapped, real, *out);
}

MapResult Redirector::Placed(const MapResult& mapped, const Driver& real,
                             const Redirection& range) {
  if (mapped.outcome != MapOutcome::kMapped) return mapped;
  if (!ranges_->Insert(range)) {
    releaser_.Discard(real, range);
    return {MapOutcome::kTableFull};
  }
  if (range.is_view) return mapped;
  const CUresult opened = peers_.Open(real, range);
  if (opened == CUDA_SUCCESS) return mapped;
  Redirection closed;
  ranges_->Take(range.base, &closed);
  releaser_.Discard(real, closed);
  return DriverError(opened);
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

CUresult Redirector::ShareHandle(const driver::EntryPoints& entry, Hook hook,
                                 driver::CUmemGenericAllocationHandle handle,
                                 const Original& original) {
  VirtualAllocation a;
  if (!virtual_memory_.Find(handle, &a)) {
    return original(entry);
  }
  return RefuseSharing(hook, handle, a.bytes, CUDA_ERROR_NOT_SUPPORTED);
}

CUresult Redirector::ShareAddress(const driver::EntryPoints& entry, Hook hook,
                                  CUdeviceptr address, CUresult refusal,
                                  const Original& original) {
  Redirection range;
  if (!queries_.Find(address, &range)) return original(entry);
  if (range.is_opened) return refusal;
  if (!range.is_resident) {
    return RefuseSharing(hook, address, range.asked_bytes, refusal);
  }
  if (!resident_->Pin(range.base)) return refusal;
  scoreboard_.ShowResident(resident_->sum());
  return original(entry);
}

// Refuses to share the memory, because another process or device would keep it
// beyond the end of the lease, and write into another engine's KV.
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
        "%s refused: this memory is KV in leased slabs, which cannot be shared "
        "(configure the allocation not to be KV, or set FINESERVE_DISABLE=1)",
        abi::kHookSymbols[static_cast<size_t>(hook)]);
  }
  return result;
}

void Redirector::AfterForkInChild() {
  scoreboard_.AbandonInChild();
  if (!link_.engaged() && !group_.engaged() && !opened_.in_use()) return;
  forked_.store(true, std::memory_order_relaxed);
  link_.AbandonInChild();
  group_.AbandonInChild();
}

void Redirector::CopyEngineName(char (&name)[abi::kNameBytes]) {
  uint8_t gpu[16];
  link_.CopyIdentity(gpu, name);
  if (first_rank_.is_known()) abi::CopyText(name, first_rank_.engine_name());
}

}  // namespace fineserve::shim
