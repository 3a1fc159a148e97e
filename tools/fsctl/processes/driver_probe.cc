#include "tools/fsctl/processes/driver_probe.h"

#include <stdlib.h>
#include <string.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "daemon/contract/abi/printable.h"
#include "kernels/driver/driver.h"
#include "tools/fsctl/processes/child.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

int Attribute(const driver::EntryPoints& call, driver::CUdevice device,
              driver::CUdevice_attribute attribute) {
  int value = 0;
  call.cuDeviceGetAttribute(&value, attribute, device);
  return value;
}

std::string UuidOf(const driver::EntryPoints& call, driver::CUdevice device) {
  driver::CUuuid uuid = {};
  call.cuDeviceGetUuid_v2(&uuid, device);
  uint8_t bytes[16];
  memcpy(bytes, uuid.bytes, sizeof(bytes));
  return GpuName(bytes);
}

std::string DeviceLine(const driver::EntryPoints& call, int ordinal) {
  driver::CUdevice device = 0;
  char name[128] = {};
  call.cuDeviceGet(&device, ordinal);
  call.cuDeviceGetName(name, sizeof(name) - 1, device);
  return absl::StrCat(
      "device ",
      Attribute(
          call, device,
          driver::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
      " ",
      Attribute(
          call, device,
          driver::
              CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
      " ", UuidOf(call, device), " ", abi::Printable(name), "\n");
}

std::string Probe(const std::string& library) {
  const absl::StatusOr<driver::Driver> loaded = driver::Driver::Load(library);
  if (!loaded.ok()) {
    return absl::StrCat("error ", loaded.status().message(), "\n");
  }
  int count = 0;
  loaded->call().cuDeviceGetCount(&count);
  std::string answer = absl::StrCat("version ", loaded->version(), "\n");
  for (int i = 0; i < count; ++i) answer += DeviceLine(loaded->call(), i);
  return answer;
}

absl::StatusOr<ProbedDriver> AnswerOf(const ChildResult& child,
                                      absl::Duration timeout) {
  if (child.timed_out) {
    return absl::DeadlineExceededError(
        absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
  }
  if (child.signal != 0) {
    return absl::UnavailableError(
        absl::StrCat("crashed: ", strsignal(child.signal)));
  }
  return ParseProbe(child.output);
}

}  // namespace

absl::StatusOr<ProbedDriver> ParseProbe(const std::string& answer) {
  ProbedDriver driver;
  for (absl::string_view line : absl::StrSplit(answer, '\n')) {
    if (absl::ConsumePrefix(&line, "error ")) {
      return absl::UnavailableError(line);
    }
    if (absl::ConsumePrefix(&line, "version ")) {
      if (!absl::SimpleAtoi(line, &driver.version)) break;
    } else if (absl::ConsumePrefix(&line, "device ")) {
      const std::vector<std::string> words =
          absl::StrSplit(line, absl::MaxSplits(' ', 3));
      if (words.size() < 4) break;
      driver.devices.push_back(
          {words[3], words[0] == "1", words[1] == "1", words[2]});
    }
  }
  if (driver.version == 0) return absl::InternalError("no answer");
  return driver;
}

absl::StatusOr<ProbedDriver> ProbeDriver(const std::string& library,
                                         absl::Duration timeout) {
  return AnswerOf(AskChild([&] { return Probe(library); }, timeout), timeout);
}

absl::StatusOr<ProbedDriver> ProbeAllDevices(const std::string& library,
                                             absl::Duration timeout) {
  const auto probe = [&] {
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    return Probe(library);
  };
  return AnswerOf(AskChild(probe, timeout), timeout);
}

}  // namespace fineserve::fsctl
