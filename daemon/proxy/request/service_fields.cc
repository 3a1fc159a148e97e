#include "daemon/proxy/request/service_fields.h"

#include <climits>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fineserve::proxy {
namespace {

// Limit on an SLO: an hour. A longer one is a mistake.
constexpr double kMostMs = 3'600'000;
constexpr size_t kMostTenantBytes = 128;

absl::Status Bad(absl::string_view name, absl::string_view value,
                 absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is \"", absl::CHexEscape(value.substr(0, 40)),
                   "\"; it must be ", wanted));
}

// Reads a field in milliseconds. `least_ms` is the shortest time that is
// allowed; if it is 0, the field is ignored.
absl::Status ReadMs(const RequestParser& request, absl::string_view name,
                    double least_ms, int64_t* us) {
  const absl::string_view value = request.Field(name);
  if (value.empty() || least_ms == 0) return absl::OkStatus();
  double ms = 0;
  // NaN compares as false.
  if (!absl::SimpleAtod(value, &ms) || !(ms > 0 && ms <= kMostMs)) {
    return Bad(name, value, "milliseconds, more than 0, at most an hour");
  }
  if (ms < least_ms) {
    return Bad(name, value,
               absl::StrCat("at least ", least_ms, " with this key"));
  }
  *us = static_cast<int64_t>(std::ceil(ms * 1000));
  return absl::OkStatus();
}

absl::Status ReadPriority(const RequestParser& request, int most,
                          int* priority) {
  constexpr absl::string_view kName = "x-fineserve-priority";
  const absl::string_view value = request.Field(kName);
  int said = 0;
  if (value.empty()) return absl::OkStatus();
  if (!absl::SimpleAtoi(value, &said)) {
    return Bad(kName, value, "a whole number");
  }
  if (said > most) {
    return Bad(kName, value, absl::StrCat("at most ", most, " with this key"));
  }
  *priority = said;
  return absl::OkStatus();
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
  if (!value.empty()) *tenant = std::string(value);
  return absl::OkStatus();
}

absl::Status ReadAll(const RequestParser& request, AdmissionRequest* asked) {
  // Allows every value that is a valid duration.
  constexpr double kAny = 1e-9;
  absl::Status s = ReadMs(request, "x-slo-ttft-ms", kAny, &asked->slo_ttft_us);
  s.Update(ReadMs(request, "x-slo-tpot-ms", kAny, &asked->slo_tpot_us));
  s.Update(ReadPriority(request, INT_MAX, &asked->priority));
  s.Update(ReadDegrade(request, &asked->degrade_ok));
  s.Update(ReadTenant(request, &asked->tenant));
  return s;
}

}  // namespace

absl::Status ReadServiceFields(const RequestParser& request,
                               const Client& client, bool may_say_all,
                               AdmissionRequest* asked) {
  asked->tenant = client.name;
  asked->priority = client.priority.value_or(0);
  if (may_say_all) return ReadAll(request, asked);
  absl::Status s =
      ReadMs(request, "x-slo-ttft-ms", client.slo_ttft_ms, &asked->slo_ttft_us);
  s.Update(ReadMs(request, "x-slo-tpot-ms", client.slo_tpot_ms,
                  &asked->slo_tpot_us));
  if (client.priority) {
    s.Update(ReadPriority(request, *client.priority, &asked->priority));
  }
  return s;
}

}  // namespace fineserve::proxy
