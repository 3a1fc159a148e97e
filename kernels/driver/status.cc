#include "kernels/driver/status.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"

namespace fineserve::driver {
namespace {

constexpr char kPayloadUrl[] = "fineserve/CUresult";

absl::StatusCode CodeOf(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return absl::StatusCode::kResourceExhausted;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
      return absl::StatusCode::kInvalidArgument;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_NOT_FOUND:
      return absl::StatusCode::kNotFound;
    case CUDA_ERROR_NOT_SUPPORTED:
      return absl::StatusCode::kUnimplemented;
    case CUDA_ERROR_NOT_PERMITTED:
      return absl::StatusCode::kPermissionDenied;
    case CUDA_ERROR_NOT_READY:
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return absl::StatusCode::kUnavailable;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_ALREADY_MAPPED:
    case CUDA_ERROR_NOT_MAPPED:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status ToStatus(const EntryPoints& driver, CUresult result,
                      absl::string_view what) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.cuGetErrorName != nullptr) driver.cuGetErrorName(result, &name);
  if (driver.cuGetErrorString != nullptr) {
    driver.cuGetErrorString(result, &text);
  }
  absl::Status status(
      CodeOf(result),
      absl::StrCat(what, ": ", name != nullptr ? name : "unknown CUDA error",
                   " (", static_cast<unsigned>(result), ")",
                   text != nullptr ? ": " : "", text != nullptr ? text : ""));
  status.SetPayload(kPayloadUrl,
                    absl::Cord(absl::StrCat(static_cast<unsigned>(result))));
  return status;
}

CUresult ToResult(const absl::Status& status) {
  if (status.ok()) return CUDA_SUCCESS;
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  unsigned number = CUDA_ERROR_UNKNOWN;
  if (!payload.has_value() ||
      !absl::SimpleAtoi(std::string(*payload), &number)) {
    return CUDA_ERROR_UNKNOWN;
  }
  return static_cast<CUresult>(number);
}

}  // namespace fineserve::driver
