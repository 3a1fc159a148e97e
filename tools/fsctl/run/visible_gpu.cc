#include "tools/fsctl/run/visible_gpu.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace fineserve::fsctl {
namespace {

constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES";
// cuInit takes seconds on a machine with many GPUs.
constexpr absl::Duration kDriverTimeout = absl::Seconds(30);

}  // namespace

Environment VisibleByUuid(const std::string& uuid) {
  return {{kVisible, uuid}};
}

absl::StatusOr<Environment> VisibleByIndex(const std::string& uuid,
                                           const std::string& library) {
  const absl::StatusOr<ProbedDriver> driver =
      ProbeAllDevices(library, kDriverTimeout);
  if (driver.ok()) return IndexAmong(uuid, *driver);
  return absl::UnavailableError(absl::StrCat("cannot tell the index of ", uuid,
                                             ": ", library, ": ",
                                             driver.status().message()));
}

absl::StatusOr<Environment> IndexAmong(const std::string& uuid,
                                       const ProbedDriver& driver) {
  for (size_t i = 0; i < driver.devices.size(); ++i) {
    if (driver.devices[i].uuid != uuid) continue;
    return Environment{{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                       {kVisible, absl::StrCat(i)}};
  }
  return absl::NotFoundError(absl::StrCat("the driver has no GPU ", uuid,
                                          " among its ", driver.devices.size(),
                                          " device(s)"));
}

}  // namespace fineserve::fsctl
