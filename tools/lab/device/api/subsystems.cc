#include "tools/lab/device/api/subsystems.h"

#include <algorithm>

#include "tools/lab/device/allocations/legacy_heap.h"
#include "tools/lab/device/allocations/managed_advice.h"
#include "tools/lab/device/allocations/opened_memory.h"
#include "tools/lab/device/allocations/pinned_memory.h"
#include "tools/lab/device/allocations/pool_table.h"
#include "tools/lab/device/api/driver_state.h"
#include "tools/lab/device/machine/handle_registry.h"
#include "tools/lab/device/stream/context_table.h"
#include "tools/lab/device/stream/event.h"
#include "tools/lab/device/virtual_memory/address_space.h"
#include "tools/lab/device/virtual_memory/memory_handles.h"

namespace fineserve::emucuda {
namespace {

// Returns how much memory a context takes: on a real GPU, a few hundred MiB of
// 80 GiB for code, stacks and queues; on a small device, proportionally less.
uint64_t ContextBytes(const PhysicalMemory& memory) {
  constexpr uint64_t kMost = uint64_t{500} << 20;
  constexpr uint64_t kSizes = 8;
  const Settings& settings = DriverSettings();
  if (settings.context_bytes) return *settings.context_bytes;
  const uint64_t share = memory.TotalBytes() / 64;
  const uint64_t bytes = std::min(share - share % kGranularity, kMost);
  if (!settings.unequal_contexts) return bytes;
  return bytes + memory.Clients().size() % kSizes * kGranularity;
}

}  // namespace

const Settings& DriverSettings() { return DriverState::Get().settings(); }

const DeviceList& Devices() { return DriverState::Get().devices(); }

bool NodesOpen() { return DriverState::Get().NodesOpen(); }

Linger& LingeringWork() { return DriverState::Get().linger(); }

AddressSpace& Addresses() {
  static auto& addresses = []() -> AddressSpace& {
    auto& space = *new AddressSpace;
    if (DriverSettings().host_access) new AddressSpace::HostWindow(space);
    return space;
  }();
  return addresses;
}

MemoryHandles& Handles() {
  static auto& handles = *new MemoryHandles;
  return handles;
}

LegacyHeap& Heap() {
  static auto& heap = *new LegacyHeap(Addresses());
  return heap;
}

PoolTable& Pools() {
  static auto& pools = *new PoolTable(Addresses());
  return pools;
}

OpenedMemory& Opened() {
  static auto& opened = *new OpenedMemory(Addresses());
  return opened;
}

PinnedMemory& Pinned() {
  static auto& pinned = *new PinnedMemory;
  return pinned;
}

ManagedAdvice& Advised() {
  static auto& advised = *new ManagedAdvice;
  return advised;
}

ContextTable& Contexts() {
  static auto& contexts = *new ContextTable(
      [](int device, ContextTable::Upkeep* upkeep) {
        PhysicalMemory& memory = Devices().memory(device);
        const Settings& settings = DriverSettings();
        // Clients() does not list this process's own slot.
        if (settings.exclusive && !memory.Clients().empty()) {
          return static_cast<CUresult>(46);  // CUDA_ERROR_DEVICE_UNAVAILABLE
        }
        if (settings.most_contexts &&
            memory.Clients().size() >= *settings.most_contexts) {
          return CUDA_ERROR_OUT_OF_MEMORY;
        }
        return memory.OpenContext(ContextBytes(memory), upkeep);
      },
      [](const Context& ended) { Heap().FreeAll(ended); });
  return contexts;
}

CUresult GrowContext(const Context& context) {
  const uint64_t bytes = DriverSettings().context_growth;
  if (bytes == 0) return CUDA_SUCCESS;
  PhysicalMemory& memory = Devices().memory(context.device());
  return Contexts().Grow(context, [&](ContextTable::Upkeep* growth) {
    return memory.OpenContext(bytes, growth);
  });
}

HandleRegistry<CUstream, Stream>& Streams() {
  static auto& streams = *new HandleRegistry<CUstream, Stream>;
  return streams;
}

HandleRegistry<CUevent, Event>& Events() {
  static auto& events = *new HandleRegistry<CUevent, Event>;
  return events;
}

}  // namespace fineserve::emucuda
