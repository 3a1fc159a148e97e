// chosen_gpu uuid|index: finds its GPU through NVML as vLLM does before it
// touches CUDA, by the first entry of CUDA_VISIBLE_DEVICES: a number is an
// index, and anything else the whole UUID (vLLM from 0.24 on; "index": older
// ones, which take nothing but a number). Prints the UUIDs of that GPU and of
// CUDA's first device, and waits to be killed.
//
// vllm/platforms/cuda.py, device_control_id_to_physical_device_id.

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

#include "daemon/contract/abi/socket_path.h"
#include "kernels/driver/driver.h"

namespace {

template <typename Signature>
Signature* Nvml(const char* name) {
  static void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) {
    fprintf(stderr, "chosen_gpu: %s\n", dlerror());
    exit(1);
  }
  return reinterpret_cast<Signature*>(dlsym(library, name));
}

void Require(int result, const std::string& call) {
  if (result == 0) return;
  printf("%s: error %d\n", call.c_str(), result);
  exit(1);
}

std::string ByNvml(const std::string& entry, bool takes_uuid) {
  char* end = nullptr;
  const auto index = static_cast<unsigned>(strtoul(entry.c_str(), &end, 10));
  const bool is_number = !entry.empty() && *end == '\0';
  if (!is_number && !takes_uuid) {
    printf("invalid literal for int(): %s\n", entry.c_str());
    exit(1);
  }
  Require(Nvml<int()>("nvmlInit_v2")(), "nvmlInit");
  void* device = nullptr;
  if (is_number) {
    Require(Nvml<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2")(
                index, &device),
            "nvmlDeviceGetHandleByIndex " + entry);
  } else {
    Require(Nvml<int(const char*, void**)>("nvmlDeviceGetHandleByUUID")(
                entry.c_str(), &device),
            "nvmlDeviceGetHandleByUUID " + entry);
  }
  char uuid[96] = "";
  Require(Nvml<int(void*, char*, unsigned)>("nvmlDeviceGetUUID")(device, uuid,
                                                                 sizeof(uuid)),
          "nvmlDeviceGetUUID");
  return uuid;
}

std::string ByCuda() {
  const auto driver = fineserve::driver::Driver::Load("libcuda.so.1");
  if (!driver.ok()) return std::string(driver.status().message());
  fineserve::driver::CUuuid uuid = {};
  const auto result = driver->call().cuDeviceGetUuid_v2(&uuid, 0);
  if (result != fineserve::driver::CUDA_SUCCESS) return "no device";
  uint8_t bytes[16];
  memcpy(bytes, uuid.bytes, sizeof(bytes));
  char text[41];
  fineserve::abi::FormatGpuUuid(bytes, text);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  const char* order = getenv("CUDA_DEVICE_ORDER");
  const std::string entries = visible == nullptr ? "" : visible;
  const bool takes_uuid = argc < 2 || strcmp(argv[1], "index") != 0;
  const std::string nvml =
      ByNvml(entries.substr(0, entries.find(',')), takes_uuid);
  printf("NVML %s, CUDA %s, order %s\n", nvml.c_str(), ByCuda().c_str(),
         order == nullptr ? "unset" : order);
  fflush(stdout);
  pause();
}
