#include "daemon/proxy/request/service_fields.h"

#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fineserve::proxy {
namespace {

// An hour. A longer SLO is a mistake.
constexpr double kMostMs = 3'600'000;
constexpr size_t kMostTenantBytes = 128;

absl::Status Bad(absl::string_view name, absl::string_view value,
                 absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is \"", absl::CHexEscape(value.substr(0, 40)),
                   "\"; it must be ", wanted));
}

absl::Status ReadMs(const RequestParser& request, absl::string_view name,
                    int64_t* us) {
  const absl::string_view value = request.Field(name);
  if (value.empty()) return absl::OkStatus();
  double ms = 0;
  // NaN compares as false.
  if (!absl::SimpleAtod(value, &ms) || !(ms > 0 && ms <= kMostMs)) {
    return Bad(name, value, "milliseconds, more than 0, at most an hour");
  }
  *us = static_cast<int64_t>(std::ceil(ms * 1000));
  return absl::OkStatus();
}

absl::Status ReadPriority(const RequestParser& request, int* priority) {
  constexpr absl::string_view kName = "x-fineserve-priority";
  const absl::string_view value = request.Field(kName);
  if (value.empty() || absl::SimpleAtoi(value, priority)) {
    return absl::OkStatus();
  }
  return Bad(kName, value, "a whole number");
}

absl::Status ReadDegrade(const RequestParser& request, bool* degrade_ok) {
  constexpr absl::string_view kName = "x-fineserve-degrade";
  const absl::string_view value = request.Field(kName);
  *degrade_ok = value == "1";
  if (value.empty() || value == "0" || value == "1") return absl::OkStatus();
  return Bad(kName, value, "0 or 1");
}

absl::Status ReadTenant(const RequestParser& request, std::string* tenant) {
  constexpr absl::string_view kName = "x-gateway-inference-fairness-id";
  absl::string_view value = request.Field(kName);
  if (value.empty()) value = request.Field("x-llm-d-inference-fairness-id");
  if (value.size() > kMostTenantBytes) {
    return Bad(kName, value,
               absl::StrCat("at most ", kMostTenantBytes, " characters"));
  }
  *tenant = std::string(value);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadServiceFields(const RequestParser& request,
                               AdmissionRequest* asked) {
  absl::Status s = ReadMs(request, "x-slo-ttft-ms", &asked->slo_ttft_us);
  s.Update(ReadMs(request, "x-slo-tpot-ms", &asked->slo_tpot_us));
  s.Update(ReadPriority(request, &asked->priority));
  s.Update(ReadDegrade(request, &asked->degrade_ok));
  s.Update(ReadTenant(request, &asked->tenant));
  return s;
}

}  // namespace fineserve::proxy
