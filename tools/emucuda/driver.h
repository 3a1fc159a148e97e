#ifndef TOOLS_EMUCUDA_DRIVER_H_
#define TOOLS_EMUCUDA_DRIVER_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tools/emucuda/address_space.h"
#include "tools/emucuda/call_log.h"
#include "tools/emucuda/context_table.h"
#include "tools/emucuda/device_memory.h"
#include "tools/emucuda/event.h"
#include "tools/emucuda/handle_registry.h"
#include "tools/emucuda/injection.h"
#include "tools/emucuda/legacy_heap.h"
#include "tools/emucuda/linger.h"
#include "tools/emucuda/managed_advice.h"
#include "tools/emucuda/memory_handles.h"
#include "tools/emucuda/mutex.h"
#include "tools/emucuda/opened_memory.h"
#include "tools/emucuda/pinned_memory.h"
#include "tools/emucuda/pool_table.h"
#include "tools/emucuda/settings.h"
#include "tools/emucuda/state_folder.h"

namespace fineserve::emucuda {

struct Device {
  int number = 0;  // in the machine; its place in devices() is its ordinal
  Uuid uuid = {};
  std::unique_ptr<DeviceMemory> memory;
};

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
  const std::vector<Device>& devices() const { return devices_; }
  bool HasDevice(int ordinal) const {
    return ordinal >= 0 && ordinal < static_cast<int>(devices_.size());
  }
  DeviceMemory& memory(int ordinal) const { return *devices_[ordinal].memory; }

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
  std::vector<Device> devices_;  // const once state_ is kReady

  AddressSpace space_;
  MemoryHandles handles_;
  LegacyHeap heap_{space_};
  PoolTable pools_{space_};
  OpenedMemory opened_{space_};
  PinnedMemory pinned_;
  ManagedAdvice advice_;
  Linger linger_;
  ContextTable contexts_{heap_};
  HandleRegistry<CUstream, Stream> streams_;
  HandleRegistry<CUevent, Event> events_;
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_DRIVER_H_
