#ifndef TOOLS_LAB_DEVICE_MACHINE_ENVIRONMENT_SETTINGS_H_
#define TOOLS_LAB_DEVICE_MACHINE_ENVIRONMENT_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fineserve::emucuda {

// The values of the environment variables in emucuda.h. Plain data.
struct Settings {
  std::string folder;
  std::string log_file;
  std::string failures;
  std::string latencies;
  int devices = 1;
  std::optional<std::string> visible_devices;  // unset: all
  uint64_t memory_bytes = uint64_t{80} << 30;
  int driver_version = 13000;
  unsigned stream_delay_us = 0;
  std::optional<uint8_t> poison;
  std::optional<uint64_t> context_bytes;  // unset: in proportion
  uint64_t context_growth = 0;            // with its first kernel
  bool unequal_contexts = false;          // later ones take more
  std::optional<unsigned> most_contexts;  // processes with one, on a device
  bool host_access = false;
  bool not_persistent = false;
  bool aliases_apart = false;
  bool machine_lock = false;     // one for all processes and devices
  bool unmapping_waits = false;  // for the context's work
  bool lacks_virtual_memory = false;
  bool lacks_peers = false;  // no device reaches another one's memory
  bool strict_captures = false;
  bool exclusive = false;         // compute mode EXCLUSIVE_PROCESS
  bool mig_instance = false;      // each device is one
  bool confidential = false;      // computing
  bool reversed_order = false;    // of devices, unless PCI's order is asked for
  uint64_t link_bytes_per_s = 0;  // to the host, each way; 0: no limit
  unsigned linger_ms = 0;
  unsigned teardown_us_per_gib = 0;
  unsigned nvml_latency_us = 0;
  unsigned nvml_pid_offset = 0;
  unsigned nvml_list_error = 0;  // nvmlReturn_t; 0: none
  std::optional<unsigned> nvml_most_listed;
  unsigned nvml_strangers = 0;  // processes that it lists besides
  bool nvml_lacks_mps_list = false;
  bool mps_work_survives = false;
  unsigned mps_server = 0;  // its pid; 0: none
  bool refuse_unknown_kernels = false;
  int gpu_direct_rdma = 1;
  int compute_capability = 80;  // 10 × major + minor
  bool lose_fills = false;
  bool sends_are_buffered = false;  // by the emulated NCCL
};

// Parses a positive number of bytes, such as "512MiB", "16GiB" or "4096".
// Returns nullopt if the text is malformed or the number does not fit in 64
// bits.
std::optional<uint64_t> ParseBytes(std::string_view text);

// Parses a decimal number in [low, high].
std::optional<uint64_t> ParseNumber(std::string_view text, uint64_t low,
                                    uint64_t high);

// Reads the environment. If a value is malformed, the variable keeps its
// default and `complaint` receives one line that names the variable.
Settings ReadSettings(std::string* complaint);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_ENVIRONMENT_SETTINGS_H_
