#include "tools/lab/device/machine/environment_settings.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <limits>

#include "tools/lab/device/machine/driver_types.h"

namespace fineserve::emucuda {
namespace {

struct Unit {
  std::string_view suffix;
  int shift;
};
constexpr Unit kUnits[] = {{"", 0},     {"B", 0},    {"KiB", 10}, {"MiB", 20},
                           {"GiB", 30}, {"TiB", 40}, {"K", 10},   {"M", 20},
                           {"G", 30},   {"T", 40}};

const char* Variable(const char* name) {
  const char* text = getenv(name);
  return text != nullptr ? text : "";
}

void Complain(std::string* complaint, const char* name, const std::string& text,
              const char* wanted) {
  if (complaint->empty()) {
    *complaint = std::string("emucuda: ") + name + "=" + text + ": " + wanted;
  }
}

template <typename T>
struct Unwrapped {
  using Type = T;
};
template <typename T>
struct Unwrapped<std::optional<T>> {
  using Type = T;
};
template <typename T>
using ValueOf = typename Unwrapped<T>::Type;

template <typename T>
void ReadNumber(const char* name, uint64_t low, uint64_t high, T* value,
                std::string* complaint) {
  const std::string text = Variable(name);
  if (text.empty()) return;
  const std::optional<uint64_t> number = ParseNumber(text, low, high);
  if (number) {
    *value = static_cast<ValueOf<T>>(*number);
    return;
  }
  const std::string wanted = "expected a number from " + std::to_string(low) +
                             " to " + std::to_string(high);
  Complain(complaint, name, text, wanted.c_str());
}

// The limit keeps file offsets, locks and the granule directory small.
constexpr uint64_t kMostMemory = uint64_t{16} << 40;

// Reads a number of bytes that is at least `least` and a multiple of a granule.
template <typename T>
void ReadMemory(const char* name, uint64_t least, const char* wanted, T* bytes,
                std::string* complaint) {
  const std::string text = Variable(name);
  if (text.empty()) return;
  const auto parsed =
      text == "0" ? std::optional<uint64_t>(0) : ParseBytes(text);
  if (parsed && *parsed % kGranularity == 0 && *parsed >= least &&
      *parsed <= kMostMemory) {
    *bytes = *parsed;
    return;
  }
  Complain(complaint, name, text, wanted);
}

// Sets `chosen` to true if the variable is `other`, and to false if it is
// `normal`; leaves it unchanged without the variable.
void ReadChoice(const char* name, const char* normal, const char* other,
                bool* chosen, std::string* complaint) {
  const std::string text = Variable(name);
  if (text.empty()) return;
  *chosen = text == other;
  if (text == normal || text == other) return;
  const std::string wanted = std::string("expected ") + normal + " or " + other;
  Complain(complaint, name, text, wanted.c_str());
}

// Turns on all switches of the profile; the individual variables are read
// afterwards.
void BeHostile(Settings* settings) {
  constexpr uint8_t kPoison = 0xa5;
  constexpr uint64_t kGrowth = uint64_t{32} << 20;
  settings->poison = kPoison;
  settings->not_persistent = true;
  settings->aliases_apart = true;
  settings->machine_lock = true;
  settings->unmapping_waits = true;
  settings->strict_captures = true;
  settings->reversed_order = true;
  settings->unequal_contexts = true;
  settings->context_growth = kGrowth;
  settings->mps_work_survives = true;
}

// Reads the choices between two ways in which the device can behave.
void ReadChoices(Settings* settings, std::string* complaint) {
  ReadChoice("EMUCUDA_UNKNOWN_KERNELS", "skip", "refuse",
             &settings->refuse_unknown_kernels, complaint);
  ReadChoice("EMUCUDA_NVML_MPS_LIST", "answer", "refuse",
             &settings->nvml_lacks_mps_list, complaint);
  ReadChoice("EMUCUDA_MPS_WORK", "ends", "survives",
             &settings->mps_work_survives, complaint);
  ReadChoice("EMUCUDA_SENDS", "wait", "buffered", &settings->sends_are_buffered,
             complaint);
  ReadChoice("EMUCUDA_FILLS", "work", "lose", &settings->lose_fills, complaint);
  ReadChoice("EMUCUDA_ALIASES", "together", "apart", &settings->aliases_apart,
             complaint);
  ReadChoice("EMUCUDA_LOCK", "process", "machine", &settings->machine_lock,
             complaint);
  ReadChoice("EMUCUDA_CONTEXTS", "equal", "unequal",
             &settings->unequal_contexts, complaint);
  ReadChoice("EMUCUDA_UNMAP", "at-once", "waits", &settings->unmapping_waits,
             complaint);
  ReadChoice("EMUCUDA_VMM", "on", "off", &settings->lacks_virtual_memory,
             complaint);
  ReadChoice("EMUCUDA_PEERS", "on", "off", &settings->lacks_peers, complaint);
  ReadChoice("EMUCUDA_CAPTURE", "documented", "strict",
             &settings->strict_captures, complaint);
  ReadChoice("EMUCUDA_COMPUTE_MODE", "default", "exclusive",
             &settings->exclusive, complaint);
  ReadChoice("EMUCUDA_MIG", "off", "instance", &settings->mig_instance,
             complaint);
  ReadChoice("EMUCUDA_CONFIDENTIAL", "off", "on", &settings->confidential,
             complaint);
  ReadChoice("EMUCUDA_ORDER", "pci", "reversed", &settings->reversed_order,
             complaint);
  if (Variable("CUDA_DEVICE_ORDER") == std::string_view("PCI_BUS_ID")) {
    settings->reversed_order = false;
  }
  ReadChoice("EMUCUDA_PERSISTENCE", "on", "off", &settings->not_persistent,
             complaint);
  ReadChoice("EMUCUDA_HOST_ACCESS", "fault", "allow", &settings->host_access,
             complaint);
}

}  // namespace

std::optional<uint64_t> ParseNumber(std::string_view text, uint64_t low,
                                    uint64_t high) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  if (value < low || value > high) return std::nullopt;
  return value;
}

std::optional<uint64_t> ParseBytes(std::string_view text) {
  const size_t digits = text.find_first_not_of("0123456789");
  const std::string_view suffix =
      digits == std::string_view::npos ? "" : text.substr(digits);
  for (const Unit& unit : kUnits) {
    if (unit.suffix != suffix) continue;
    const auto count =
        ParseNumber(text.substr(0, digits), 1,
                    std::numeric_limits<uint64_t>::max() >> unit.shift);
    if (!count) return std::nullopt;
    return *count << unit.shift;
  }
  return std::nullopt;
}

Settings ReadSettings(std::string* complaint) {
  Settings settings;
  bool hostile = false;
  ReadChoice("EMUCUDA_PROFILE", "plain", "hostile", &hostile, complaint);
  if (hostile) BeHostile(&settings);
  settings.folder = Variable("EMUCUDA_DIR");
  if (settings.folder.empty()) {
    settings.folder = "/dev/shm/emucuda-" + std::to_string(geteuid());
  }
  if (const char* visible = getenv("CUDA_VISIBLE_DEVICES")) {
    settings.visible_devices = visible;
  }
  settings.log_file = Variable("EMUCUDA_LOG");
  settings.failures = Variable("EMUCUDA_FAIL");
  settings.latencies = Variable("EMUCUDA_LATENCY_US");
  ReadNumber("EMUCUDA_DEVICES", 1, 8, &settings.devices, complaint);
  ReadNumber("EMUCUDA_DRIVER_VERSION", 1, 1000000, &settings.driver_version,
             complaint);
  ReadNumber("EMUCUDA_STREAM_DELAY_US", 0, 1000000000,
             &settings.stream_delay_us, complaint);
  uint64_t link_mb_per_s = 0;
  ReadNumber("EMUCUDA_LINK_MB_S", 1, 1000000, &link_mb_per_s, complaint);
  settings.link_bytes_per_s = link_mb_per_s * 1000000;
  ReadNumber("EMUCUDA_GPU_DIRECT_RDMA", 0, 1, &settings.gpu_direct_rdma,
             complaint);
  // Tensor maps would be for 90.
  ReadNumber("EMUCUDA_COMPUTE_CAPABILITY", 80, 89, &settings.compute_capability,
             complaint);
  ReadNumber("EMUCUDA_LINGER_MS", 0, 3600000, &settings.linger_ms, complaint);
  ReadNumber("EMUCUDA_TEARDOWN_US_PER_GIB", 0, 3600000000,
             &settings.teardown_us_per_gib, complaint);
  ReadNumber("EMUCUDA_MOST_CONTEXTS", 0, 1024, &settings.most_contexts,
             complaint);
  ReadNumber("EMUCUDA_NVML_LATENCY_US", 0, 60000000, &settings.nvml_latency_us,
             complaint);
  ReadNumber("EMUCUDA_NVML_PID_OFFSET", 0, 1000000000,
             &settings.nvml_pid_offset, complaint);
  ReadNumber("EMUCUDA_NVML_LIST_ERROR", 0, 999, &settings.nvml_list_error,
             complaint);
  ReadNumber("EMUCUDA_NVML_MOST_LISTED", 0, 1024, &settings.nvml_most_listed,
             complaint);
  ReadNumber("EMUCUDA_NVML_STRANGERS", 0, 1024, &settings.nvml_strangers,
             complaint);
  ReadNumber("EMUCUDA_MPS_SERVER", 0, 1000000000, &settings.mps_server,
             complaint);
  ReadNumber("EMUCUDA_POISON", 0, 255, &settings.poison, complaint);
  ReadMemory("EMUCUDA_MEMORY", kGranularity,
             "expected a multiple of 2MiB up to 16TiB, such as 512MiB",
             &settings.memory_bytes, complaint);
  ReadMemory("EMUCUDA_CONTEXT_MEMORY", 0,
             "expected 0 or a multiple of 2MiB, such as 256MiB",
             &settings.context_bytes, complaint);
  ReadMemory("EMUCUDA_CONTEXT_GROWTH", 0,
             "expected 0 or a multiple of 2MiB, such as 64MiB",
             &settings.context_growth, complaint);
  ReadChoices(&settings, complaint);
  return settings;
}

}  // namespace fineserve::emucuda
