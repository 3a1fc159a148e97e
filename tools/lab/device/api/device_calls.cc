// Exported functions: initialisation, errors, devices.

#include <cstdio>
#include <cstring>

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/driver_state.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/machine/device_attributes.h"
#include "tools/lab/device/machine/device_list.h"

namespace fineserve::driver {

using emucuda::Call;
using emucuda::Devices;
using emucuda::DriverSettings;
using emucuda::DriverState;
using emucuda::Entry;
using emucuda::kDeviceName;
using emucuda::Logged;
using emucuda::Require;

namespace {

struct ErrorText {
  CUresult error;
  const char* name;
  const char* text;
};
#define EMUCUDA_ERROR(error, text) \
  { error, #error, text }
constexpr ErrorText kErrors[] = {
    EMUCUDA_ERROR(CUDA_SUCCESS, "no error"),
    EMUCUDA_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    EMUCUDA_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    EMUCUDA_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    EMUCUDA_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    EMUCUDA_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    EMUCUDA_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    EMUCUDA_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    EMUCUDA_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    EMUCUDA_ERROR(CUDA_ERROR_MAP_FAILED, "mapping failed"),
    EMUCUDA_ERROR(CUDA_ERROR_UNMAP_FAILED, "unmapping failed"),
    EMUCUDA_ERROR(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    EMUCUDA_ERROR(CUDA_ERROR_NOT_MAPPED, "resource not mapped"),
    EMUCUDA_ERROR(CUDA_ERROR_OPERATING_SYSTEM,
                  "OS call failed or operation not supported on this OS"),
    EMUCUDA_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    EMUCUDA_ERROR(CUDA_ERROR_ILLEGAL_STATE,
                  "the operation cannot be performed in the present state"),
    EMUCUDA_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    EMUCUDA_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    EMUCUDA_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS,
                  "an illegal memory access was encountered"),
    EMUCUDA_ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
                  "cannot set while device is active in this process"),
    EMUCUDA_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    EMUCUDA_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    EMUCUDA_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    EMUCUDA_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    EMUCUDA_ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    EMUCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                  "operation not permitted when stream is capturing"),
    EMUCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                  "an earlier error has ended the capture"),
    EMUCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE,
                  "two captures would become one"),
    EMUCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                  "the capture was not begun on this stream"),
    EMUCUDA_ERROR(
        CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
        "the capture has work that its first stream does not wait for"),
    EMUCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                  "the capture would depend on work outside of it"),
    EMUCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                  "the default stream would wait for a capture"),
    EMUCUDA_ERROR(CUDA_ERROR_CAPTURED_EVENT,
                  "the event was last recorded in a capture"),
    EMUCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                  "the capture was begun by another thread"),
    EMUCUDA_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef EMUCUDA_ERROR

CUresult FindErrorText(CUresult error, const char* ErrorText::*member,
                       const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = nullptr;
  for (const ErrorText& row : kErrors) {
    if (row.error == error) *text = row.*member;
  }
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Runs `body()` after checking the output pointer and the device.
template <typename Body>
CUresult AskDevice(Entry entry, const void* out, CUdevice device, Body body) {
  const auto checked = [&] {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = emucuda::CheckDevice(device);
    return result == CUDA_SUCCESS ? body() : result;
  };
  return Call(entry, Require::kInit, Logged(device), checked);
}

CUresult CopyText(const char* text, char* to, int capacity) {
  if (capacity <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(to, static_cast<size_t>(capacity), "%s", text);
  return CUDA_SUCCESS;
}

CUresult GetUuid(CUuuid* uuid, CUdevice device) {
  memcpy(uuid->bytes, Devices()[device].uuid.data(), sizeof(uuid->bytes));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuInit(unsigned int flags) {
  return Call(Entry::cuInit, Require::kNothing, [flags] {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return DriverState::Get().Init();
  });
}

CUresult cuDriverGetVersion(int* version) {
  return Call(Entry::cuDriverGetVersion, Require::kNothing, [version] {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = DriverSettings().driver_version;
    return CUDA_SUCCESS;
  });
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  return Call(Entry::cuGetErrorName, Require::kNothing, [error, name] {
    return FindErrorText(error, &ErrorText::name, name);
  });
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  return Call(Entry::cuGetErrorString, Require::kNothing, [error, text] {
    return FindErrorText(error, &ErrorText::text, text);
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return AskDevice(Entry::cuDeviceGet, device, ordinal, [&] {
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetCount(int* count) {
  return Call(Entry::cuDeviceGetCount, Require::kInit, [count] {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = Devices().count();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int capacity, CUdevice device) {
  return AskDevice(Entry::cuDeviceGetName, name, device,
                   [&] { return CopyText(kDeviceName, name, capacity); });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return AskDevice(Entry::cuDeviceGetUuid, uuid, device,
                   [&] { return GetUuid(uuid, device); });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return AskDevice(Entry::cuDeviceGetUuid_v2, uuid, device,
                   [&] { return GetUuid(uuid, device); });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                              CUdevice device) {
  return AskDevice(Entry::cuDeviceGetAttribute, value, device, [&] {
    return emucuda::DeviceAttribute(attribute, Devices()[device].number,
                                    DriverSettings(), value)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return AskDevice(Entry::cuDeviceTotalMem_v2, bytes, device, [&] {
    *bytes = Devices().memory(device).TotalBytes();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetPCIBusId(char* pci_bus_id, int capacity, CUdevice device) {
  return AskDevice(Entry::cuDeviceGetPCIBusId, pci_bus_id, device, [&] {
    char text[32];
    snprintf(text, sizeof(text), "0000:%02x:00.0",
             Devices()[device].number + 1);
    return CopyText(text, pci_bus_id, capacity);
  });
}

}  // namespace fineserve::driver
