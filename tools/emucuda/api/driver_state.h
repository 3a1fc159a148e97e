#ifndef TOOLS_EMUCUDA_API_DRIVER_STATE_H_
#define TOOLS_EMUCUDA_API_DRIVER_STATE_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tools/emucuda/call/call_log.h"
#include "tools/emucuda/call/injection.h"
#include "tools/emucuda/heap/legacy_heap.h"
#include "tools/emucuda/heap/managed_advice.h"
#include "tools/emucuda/heap/opened_memory.h"
#include "tools/emucuda/heap/pinned_memory.h"
#include "tools/emucuda/heap/pool_table.h"
#include "tools/emucuda/linger/linger.h"
#include "tools/emucuda/machine/annotated_mutex.h"
#include "tools/emucuda/machine/device_list.h"
#include "tools/emucuda/machine/environment_settings.h"
#include "tools/emucuda/machine/handle_registry.h"
#include "tools/emucuda/machine/state_folder.h"
#include "tools/emucuda/memory/address_space.h"
#include "tools/emucuda/memory/memory_handles.h"
#include "tools/emucuda/stream/context_table.h"
#include "tools/emucuda/stream/event.h"

namespace fineserve::emucuda {

// All driver state of a process. Thread-safe. Created by the first call and
// never destroyed: workers and the program's own destructors may use it until
// the very end.
//
// A child forked after Init can never use it: ready() says so before anything
// takes a lock, so that a lock held by some thread at the fork cannot block it.
class Driver {
 public:
  static Driver& Get();

  // Opens the devices, once; later calls return the first one's result.
  CUresult Init();
  // NOT_INITIALIZED before Init, and in a child forked after it.
  CUresult ready() const;
  bool forked() const;

  const Settings& settings() const { return settings_; }
  // The devices; empty before Init.
  const DeviceList& devices() const { return devices_; }
  bool HasDevice(int ordinal) const { return devices_.Has(ordinal); }
  PhysicalMemory& memory(int ordinal) const { return devices_.memory(ordinal); }

  Injection& injection() { return injection_; }
  CallLog& log() { return log_; }
  AddressSpace& space() { return space_; }
  const AddressSpace& space() const { return space_; }
  MemoryHandles& handles() { return handles_; }
  LegacyHeap& heap() { return heap_; }
  const LegacyHeap& heap() const { return heap_; }
  PoolTable& pools() { return pools_; }
  const PoolTable& pools() const { return pools_; }
  OpenedMemory& opened() { return opened_; }
  const OpenedMemory& opened() const { return opened_; }
  PinnedMemory& pinned() { return pinned_; }
  const PinnedMemory& pinned() const { return pinned_; }
  ManagedAdvice& advice() { return advice_; }
  Linger& linger() { return linger_; }
  ContextTable& contexts() { return contexts_; }
  HandleRegistry<CUstream, Stream>& streams() { return streams_; }
  HandleRegistry<CUevent, Event>& events() { return events_; }

 private:
  enum class State { kUninitialised, kReady, kForked };

  Driver();
  CUresult OpenDevices();
  static void BeforeFork() EMUCUDA_NO_ANALYSIS;
  static void AfterForkInParent() EMUCUDA_NO_ANALYSIS;
  static void AfterForkInChild() EMUCUDA_NO_ANALYSIS;

  std::string complaint_;  // about the environment; set by the constructor
  Settings settings_;
  Injection injection_;
  CallLog log_;

  // Release in Init (publishes devices_), acquire in ready().
  std::atomic<State> state_{State::kUninitialised};
  Mutex init_mutex_;
  DeviceList devices_;  // const once state_ is kReady

  AddressSpace space_;
  MemoryHandles handles_;
  LegacyHeap heap_{space_};
  PoolTable pools_{space_};
  OpenedMemory opened_{space_};
  PinnedMemory pinned_;
  ManagedAdvice advice_;
  Linger linger_;
  ContextTable contexts_{
      [this](const Context& ended) { heap_.FreeAll(ended); }};
  HandleRegistry<CUstream, Stream> streams_;
  HandleRegistry<CUevent, Event> events_;
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_API_DRIVER_STATE_H_
