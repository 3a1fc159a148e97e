#include "tools/lab/device/cudart/registered_code.h"

#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tools/lab/device/cudart/driver_calls.h"

namespace fineserve::cudart {

struct Binary {
  const void* image = nullptr;
  cudaLibrary_t library = nullptr;     // null until loaded
  std::vector<const void*> kernels;    // host functions
  std::vector<const void*> variables;  // host variables
};

namespace {

// As __fatBinC_Wrapper_t in fatbinary_section.h.
struct Wrapper {
  int magic;
  int version;
  const void* image;
  const void* files;
};
constexpr int kWrapperMagic = 0x466243b1;

struct KernelEntry {
  Binary* binary;
  const char* name;
  cudaKernel_t kernel = nullptr;  // null until first used
};

struct VariableEntry {
  Binary* binary;
  const char* name;
  size_t bytes;
};

// Never destroyed, because the program's static destructors unregister code
// after ours have run.
struct Registry {
  std::mutex mutex;  // guards all that follows
  std::unordered_map<Binary*, std::unique_ptr<Binary>> binaries;
  std::unordered_map<const void*, KernelEntry> kernels;
  std::unordered_map<const void*, VariableEntry> variables;
  std::unordered_set<cudaKernel_t> library_kernels;
};

Registry& TheRegistry() {
  static Registry* const registry = new Registry;
  return *registry;
}

cudaError_t LoadBinary(Binary& binary) {
  if (binary.library != nullptr) return cudaSuccess;
  if (const cudaError_t error = LoadDriver()) return error;
  if (binary.image == nullptr) return cudaErrorInvalidKernelImage;
  return Ask<&DriverCalls::cuLibraryLoadData>(
      &binary.library, binary.image, static_cast<int*>(nullptr),
      static_cast<void**>(nullptr), 0u, static_cast<int*>(nullptr),
      static_cast<void**>(nullptr), 0u);
}

void Unload(Binary& binary) {
  if (binary.library == nullptr) return;
  Ask<&DriverCalls::cuLibraryUnload>(binary.library);
  binary.library = nullptr;
}

cudaError_t LoadKernel(KernelEntry& entry) {
  if (entry.kernel != nullptr) return cudaSuccess;
  if (const cudaError_t error = LoadBinary(*entry.binary)) return error;
  return Ask<&DriverCalls::cuLibraryGetKernel>(
      &entry.kernel, entry.binary->library, entry.name);
}

}  // namespace

Binary* AddBinary(const void* wrapper) {
  const Wrapper* w = static_cast<const Wrapper*>(wrapper);
  auto binary = std::make_unique<Binary>();
  if (w != nullptr && w->magic == kWrapperMagic) binary->image = w->image;
  Binary* const handle = binary.get();
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.binaries.emplace(handle, std::move(binary));
  return handle;
}

void RemoveBinary(Binary* binary) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.binaries.find(binary);
  if (found == registry.binaries.end()) return;
  for (const void* function : binary->kernels) {
    registry.kernels.erase(function);
  }
  for (const void* variable : binary->variables) {
    registry.variables.erase(variable);
  }
  Unload(*binary);
  registry.binaries.erase(found);
}

void AddKernel(Binary* binary, const void* host_function, const char* name) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.kernels[host_function] = {.binary = binary, .name = name};
  binary->kernels.push_back(host_function);
}

void AddVariable(Binary* binary, const void* host_variable, const char* name,
                 size_t bytes) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.variables[host_variable] = {
      .binary = binary, .name = name, .bytes = bytes};
  binary->variables.push_back(host_variable);
}

cudaError_t FindKernel(const void* host_function, cudaKernel_t* kernel) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.kernels.find(host_function);
  if (found == registry.kernels.end()) return cudaErrorInvalidDeviceFunction;
  if (const cudaError_t error = LoadKernel(found->second)) return error;
  *kernel = found->second.kernel;
  return cudaSuccess;
}

cudaError_t KernelName(const void* host_function, const char** name) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.kernels.find(host_function);
  if (found == registry.kernels.end()) return cudaErrorInvalidDeviceFunction;
  *name = found->second.name;
  return cudaSuccess;
}

void AddLibraryKernel(cudaKernel_t kernel) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.library_kernels.insert(kernel);
}

bool IsLibraryKernel(cudaKernel_t kernel) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  return registry.library_kernels.contains(kernel);
}

cudaError_t FindVariable(const void* host_variable, Variable* variable) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.variables.find(host_variable);
  if (found == registry.variables.end()) return cudaErrorInvalidSymbol;
  const VariableEntry& entry = found->second;
  if (const cudaError_t error = LoadBinary(*entry.binary)) return error;
  CUdeviceptr address = 0;
  if (const cudaError_t error = Ask<&DriverCalls::cuLibraryGetGlobal>(
          &address, &variable->bytes, entry.binary->library, entry.name))
    return error;
  variable->address = reinterpret_cast<void*>(address);
  return cudaSuccess;
}

cudaError_t VariableBytes(const void* host_variable, size_t* bytes) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.variables.find(host_variable);
  if (found == registry.variables.end()) return cudaErrorInvalidSymbol;
  *bytes = found->second.bytes;
  return cudaSuccess;
}

void UnloadBinaries() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  for (auto& [function, entry] : registry.kernels) entry.kernel = nullptr;
  for (auto& [handle, binary] : registry.binaries) Unload(*binary);
}

}  // namespace fineserve::cudart
