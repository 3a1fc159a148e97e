// libnvidia-ml.so.1: the few NVML functions that FineServe and PyTorch call,
// answered from the state folder.

#include <signal.h>
#include <sys/types.h>

#include <climits>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "kernels/driver/export.h"
#include "tools/lab/device/nvml/nvml_machine.h"

using namespace fineserve::emucuda;  // NOLINT: C functions have no namespace

using nvmlDevice_t = const Device*;

namespace {

using Client = ControlFile::Client;

std::vector<Client> ClientsOf(nvmlDevice_t device) {
  return Machine::Get().pids().Of(device->number, device->memory->Clients());
}

// Returns the processes that use the device directly, with MPS servers in place
// of their clients.
std::vector<Client> DirectClients(nvmlDevice_t device) {
  std::vector<Client> direct;
  std::map<uint32_t, uint64_t> servers;
  for (const Client& client : ClientsOf(device)) {
    if (client.mps_server == 0) {
      direct.push_back(client);
    } else {
      servers[client.mps_server] += client.bytes;
    }
  }
  for (const auto& [pid, bytes] : servers) direct.push_back({pid, 0, bytes, 0});
  return direct;
}

std::vector<Client> MpsClients(nvmlDevice_t device) {
  std::vector<Client> clients = ClientsOf(device);
  const bool survives = Machine::Get().settings().mps_work_survives;
  std::erase_if(clients, [&](const Client& c) {
    const bool is_dead = kill(static_cast<pid_t>(c.pid), 0) != 0;
    return c.mps_server == 0 || (survives && is_dead);
  });
  return clients;
}

// Inserts processes after the first one, with pids that no process can have.
void AddStrangers(unsigned count, std::vector<Client>* clients) {
  constexpr uint32_t kAbovePids = 1 << 22;
  std::vector<Client> strangers;
  for (uint32_t i = 0; i < count; ++i) {
    strangers.push_back({kAbovePids + i, 0, 0, 0});
  }
  clients->insert(clients->begin() + (clients->empty() ? 0 : 1),
                  strangers.begin(), strangers.end());
}

// On entry, `count` is the number of elements that fit in `processes`; on
// return, it is the number of processes. Returns INSUFFICIENT_SIZE, with the
// count, if they do not fit.
template <typename Process, typename Describe>
nvmlReturn_t ListClients(nvmlDevice_t device, unsigned* count,
                         Process* processes,
                         std::vector<Client> (*clients_of)(nvmlDevice_t),
                         Describe describe) {
  return Ask(device, [&](Machine& machine) {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const Settings& settings = machine.settings();
    if (settings.nvml_list_error != 0) {
      return static_cast<nvmlReturn_t>(settings.nvml_list_error);
    }
    auto clients = clients_of(device);
    AddStrangers(settings.nvml_strangers, &clients);
    if (clients.size() > settings.nvml_most_listed.value_or(UINT_MAX)) {
      clients.resize(*settings.nvml_most_listed);
    }
    for (auto& client : clients) client.pid += machine.pid_offset();
    const unsigned room = *count;
    *count = static_cast<unsigned>(clients.size());
    if (clients.size() > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    if (!clients.empty() && processes == nullptr) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (size_t i = 0; i < clients.size(); ++i) {
      processes[i] = describe(clients[i]);
    }
    return NVML_SUCCESS;
  });
}

nvmlProcessInfo_t Describe(const Client& client) {
  return {client.pid, client.bytes, ~0u, ~0u};
}

}  // namespace

FINESERVE_EXPORT nvmlReturn_t nvmlInit_v2() { return Machine::Get().Init(); }

// For programs that look the symbol up by its plain, unversioned name.
FINESERVE_EXPORT nvmlReturn_t nvmlInit() { return Machine::Get().Init(); }

FINESERVE_EXPORT nvmlReturn_t nvmlShutdown() {
  return Machine::Get().Shutdown();
}

FINESERVE_EXPORT const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_UNINITIALIZED:
      return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "Driver Not Loaded";
    default:
      return "Unknown Error";
  }
}

FINESERVE_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return Ask(version, [&](Machine& machine) {
    *version = machine.driver_version();
    return NVML_SUCCESS;
  });
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  return Ask(count, [&](Machine& machine) {
    *count = static_cast<unsigned>(machine.devices().count());
    return NVML_SUCCESS;
  });
}

FINESERVE_EXPORT nvmlReturn_t
nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  return Ask(device, [&](Machine& machine) {
    const int ordinal = static_cast<int>(index);
    if (!machine.devices().Has(ordinal)) return NVML_ERROR_INVALID_ARGUMENT;
    *device = &machine.devices()[ordinal];
    return NVML_SUCCESS;
  });
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index,
                                                         nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid,
                                                        nvmlDevice_t* device) {
  return Ask(device, [&](Machine& machine) {
    if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    for (const Device& candidate : machine.devices()) {
      if (machine.UuidOf(candidate) != uuid) continue;
      *device = &candidate;
      return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
  });
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid,
                                                unsigned capacity) {
  return Ask(device, [&](Machine& machine) {
    if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const std::string text = machine.UuidOf(*device);
    if (capacity <= text.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(uuid, text.c_str(), text.size() + 1);
    return NVML_SUCCESS;
  });
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device,
                                                      nvmlMemory_t* memory) {
  return Ask(device, [&](Machine&) {
    if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    memory->total = device->memory->TotalBytes();
    memory->used = device->memory->UsedBytes();
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
  });
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device,
                                                   unsigned* current,
                                                   unsigned* pending) {
  return Ask(device, [&](Machine& machine) {
    if (current == nullptr || pending == nullptr) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    *current = *pending = machine.settings().mig_instance ? 1 : 0;
    return NVML_SUCCESS;
  });
}

// The first version of the call.
FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(
    nvmlDevice_t device, unsigned* count, nvmlProcessInfo_v1_t* processes) {
  return ListClients(device, count, processes, DirectClients,
                     [](const Client& client) {
                       return nvmlProcessInfo_v1_t{client.pid, client.bytes};
                     });
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* processes) {
  return ListClients(device, count, processes, DirectClients, Describe);
}

FINESERVE_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* processes) {
  if (Machine::Get().settings().nvml_lacks_mps_list) {
    return NVML_ERROR_NOT_SUPPORTED;
  }
  return ListClients(device, count, processes, MpsClients, Describe);
}
