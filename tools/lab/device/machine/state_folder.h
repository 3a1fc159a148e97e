#ifndef TOOLS_LAB_DEVICE_MACHINE_STATE_FOLDER_H_
#define TOOLS_LAB_DEVICE_MACHINE_STATE_FOLDER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "tools/lab/device/machine/driver_types.h"

namespace fineserve::emucuda {

using Uuid = std::array<unsigned char, 16>;

// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as NVML prints it.
std::string FormatUuid(const Uuid& uuid);

// The folder of one emulated machine. It is immutable once opened, and
// therefore thread-safe. For each device N it holds:
//   gpuN.memory    device memory, a sparse file; OFD read locks on it are the
//                  references of all processes (physical_memory.h)
//   gpuN.control   header, client slots, granule directory (control_file.h)
//   gpuN.errors    a byte for each uncorrectable error of its memory
//   gpuN.link      until when its link to the host is taken (host_link.h)
// and, until all its ranks have joined, nccl-ID for a communicator
// (nccl/shared_region.h).
class StateFolder {
 public:
  // Creates `path` (0700) if it does not exist. Refuses a folder that other
  // users can enter, because they could read or replace device memory. If it
  // returns nullopt, `complaint` gives the reason.
  static std::optional<StateFolder> Open(const std::string& path,
                                         std::string* complaint);

  // Opens gpu<device>.<suffix> as a new file description; creates the file
  // (0600) if it does not exist.
  Descriptor OpenFile(int device, const char* suffix) const;

  // Removes that file, if it exists; a process that has it open keeps it.
  void Remove(int device, const char* suffix) const;

  const std::string& path() const { return path_; }

  Uuid DeviceUuid(int device) const;

 private:
  explicit StateFolder(std::string path) : path_(std::move(path)) {}
  std::string FileName(int device, const char* suffix) const;

  std::string path_;  // real path
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_STATE_FOLDER_H_
