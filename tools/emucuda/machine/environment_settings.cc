#include "tools/emucuda/machine/environment_settings.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <limits>

#include "tools/emucuda/machine/driver_types.h"

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

void ReadMemory(uint64_t* bytes, std::string* complaint) {
  const std::string text = Variable("EMUCUDA_MEMORY");
  if (text.empty()) return;
  const std::optional<uint64_t> parsed = ParseBytes(text);
  // The limit keeps file offsets, locks and the granule directory small.
  if (parsed && *parsed % kGranularity == 0 && *parsed <= uint64_t{16} << 40) {
    *bytes = *parsed;
    return;
  }
  Complain(complaint, "EMUCUDA_MEMORY", text,
           "expected a multiple of 2MiB up to 16TiB, such as 512MiB");
}

void ReadUnknownKernels(bool* refuse, std::string* complaint) {
  const std::string text = Variable("EMUCUDA_UNKNOWN_KERNELS");
  *refuse = text == "refuse";
  if (text.empty() || text == "skip" || text == "refuse") return;
  Complain(complaint, "EMUCUDA_UNKNOWN_KERNELS", text,
           "expected skip or refuse");
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
  ReadNumber("EMUCUDA_GPU_DIRECT_RDMA", 0, 1, &settings.gpu_direct_rdma,
             complaint);
  ReadNumber("EMUCUDA_LINGER_MS", 0, 3600000, &settings.linger_ms, complaint);
  ReadNumber("EMUCUDA_NVML_LATENCY_US", 0, 60000000, &settings.nvml_latency_us,
             complaint);
  ReadNumber("EMUCUDA_NVML_PID_OFFSET", 0, 1000000000,
             &settings.nvml_pid_offset, complaint);
  ReadNumber("EMUCUDA_POISON", 0, 255, &settings.poison, complaint);
  ReadMemory(&settings.memory_bytes, complaint);
  ReadUnknownKernels(&settings.refuse_unknown_kernels, complaint);
  return settings;
}

}  // namespace fineserve::emucuda
