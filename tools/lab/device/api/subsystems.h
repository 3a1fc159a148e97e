#ifndef TOOLS_LAB_DEVICE_API_SUBSYSTEMS_H_
#define TOOLS_LAB_DEVICE_API_SUBSYSTEMS_H_

// The parts of the driver that exported functions work on, one of each in a
// process. A part is made at its first use and never destroyed: workers and the
// program's own destructors may use it until the very end.
//
// The parts are only declared here. A file includes the headers of those that
// it takes.

#include "tools/lab/device/machine/driver_types.h"

namespace fineserve::emucuda {

class AddressSpace;
class Context;
class ContextTable;
class DeviceList;
class Event;
class LegacyHeap;
class Linger;
class ManagedAdvice;
class MemoryHandles;
class OpenedMemory;
class PinnedMemory;
class PoolTable;
class Stream;
struct Settings;
template <typename Handle, typename Object>
class HandleRegistry;

const Settings& DriverSettings();
const DeviceList& Devices();  // empty before cuInit
bool NodesOpen();             // whether device nodes can be opened now
Linger& LingeringWork();

AddressSpace& Addresses();
MemoryHandles& Handles();

LegacyHeap& Heap();
PoolTable& Pools();
OpenedMemory& Opened();
PinnedMemory& Pinned();
ManagedAdvice& Advised();

ContextTable& Contexts();
// Takes the memory that a context's first kernel needs.
CUresult GrowContext(const Context& context);
HandleRegistry<CUstream, Stream>& Streams();
HandleRegistry<CUevent, Event>& Events();

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_API_SUBSYSTEMS_H_
