// Exported functions: the control API of emucuda.h.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/lab/device/api/driver_state.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/resolver.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/kernel/kernel_table.h"
#include "tools/lab/device/linger/linger.h"
#include "tools/lab/device/stream/stream.h"
#include "tools/lab/device/virtual_memory/address_space.h"

namespace emucuda = fineserve::emucuda;

extern "C" {

void emucuda_set_stream_delay_us(unsigned microseconds) {
  emucuda::DriverState::Get();  // or its first use would overwrite the delay
  emucuda::SetStreamDelay(microseconds);
}

int emucuda_set_linger_ms(unsigned milliseconds) {
  emucuda::DriverState& driver = emucuda::DriverState::Get();
  std::string complaint;
  if (driver.ready() != fineserve::driver::CUDA_SUCCESS) return -1;
  const emucuda::Linger::Times times = {milliseconds,
                                        driver.settings().teardown_us_per_gib};
  return driver.linger().Set(times, driver.devices(),
                             driver.injection().driver_lock(), &complaint)
             ? 0
             : -1;
}

int emucuda_set_failures(const char* rules) {
  auto& injection = emucuda::DriverState::Get().injection();
  return injection.SetFailures(rules == nullptr ? "" : rules) ? 0 : -1;
}

int emucuda_set_latency_us(const char* rules) {
  auto& injection = emucuda::DriverState::Get().injection();
  return injection.SetLatencies(rules == nullptr ? "" : rules) ? 0 : -1;
}

int emucuda_register_kernel(const char* name, emucuda_kernel run,
                            void* user_data, const size_t* argument_bytes,
                            size_t arguments) {
  if (name == nullptr || run == nullptr ||
      (argument_bytes == nullptr && arguments > 0)) {
    return -1;
  }
  emucuda::HostKernel kernel;
  kernel.argument_bytes.assign(argument_bytes, argument_bytes + arguments);
  kernel.run = [run, user_data](const emucuda::AddressSpace&, int,
                                const emucuda::KernelArguments& values) {
    std::vector<const void*> pointers;
    for (const auto& value : values) pointers.push_back(value.data());
    const emucuda::AddressSpace::HostWindow window(emucuda::Addresses());
    run(pointers.data(), user_data);
    return fineserve::driver::CUDA_SUCCESS;
  };
  emucuda::RegisterHostKernel(name, std::move(kernel));
  return 0;
}

uint64_t emucuda_call_count(const char* symbol) {
  const auto entries = emucuda::FindEntries(symbol == nullptr ? "" : symbol);
  uint64_t count = 0;
  for (const emucuda::Entry entry : entries) {
    count += emucuda::DriverState::Get().log().count(entry);
  }
  return count;
}

void* emucuda_entry_point(const char* symbol) {
  const auto entries = emucuda::FindEntries(symbol == nullptr ? "" : symbol);
  return entries.empty() ? nullptr : emucuda::FunctionOf(entries.back());
}

uint64_t emucuda_used_bytes(int device) {
  const auto& driver = emucuda::DriverState::Get();
  if (driver.ready() != fineserve::driver::CUDA_SUCCESS ||
      !driver.devices().Has(device)) {
    return 0;
  }
  return driver.devices().memory(device).UsedBytes();
}

int emucuda_spoil(uint64_t address) {
  fineserve::driver::CUdeviceptr base = 0;
  uint64_t bytes = 0;
  std::shared_ptr<const emucuda::MemoryObject> object;
  if (emucuda::Addresses().GetMapping(address, &base, &bytes, &object) !=
      fineserve::driver::CUDA_SUCCESS) {
    return -1;
  }
  const emucuda::Allocation& memory = *object->allocation;
  return memory.memory().Spoil(memory.offset() + address - base) ? 0 : -1;
}

}  // extern "C"
