#include "tools/lab/device/call/injection.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "tools/lab/device/machine/environment_settings.h"

namespace fineserve::emucuda {
namespace {

constexpr uint64_t kAnyNumber = ~uint64_t{0};

// Heuristic: a sleep overshoots by about 50 µs, so shorter waits spin.
constexpr auto kSpinLimit = std::chrono::microseconds(200);

// Splits at the first `separator`. Without one it returns the whole text and
// "".
std::pair<std::string_view, std::string_view> Split(std::string_view text,
                                                    char separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + 1)};
}

// Calls `parse` with each comma-separated rule until it refuses one.
template <typename Parse>
bool ForEachRule(std::string_view rules, Parse parse) {
  while (!rules.empty()) {
    const auto [first, rest] = Split(rules, ',');
    if (!parse(first)) return false;
    rules = rest;
  }
  return true;
}

// True if the kernel-mode part of the driver does the work of a call.
bool ChangesMemory(Entry entry) {
  switch (entry) {
    case Entry::cuCtxCreate_v2:
    case Entry::cuCtxCreate_v3:
    case Entry::cuCtxCreate_v4:
    case Entry::cuDevicePrimaryCtxRetain:
    case Entry::cuMemAlloc_v2:
    case Entry::cuMemFree_v2:
    case Entry::cuMemCreate:
    case Entry::cuMemRelease:
    case Entry::cuMemMap:
    case Entry::cuMemUnmap:
    case Entry::cuMemSetAccess:
    case Entry::cuMemExportToShareableHandle:
    case Entry::cuMemImportFromShareableHandle:
    case Entry::cuMemGetInfo_v2:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool Injection::ParseFailure(std::string_view text, std::vector<Rule>* rules) {
  const auto [left, error_text] = Split(text, '=');
  const auto [word, call_text] = Split(left, '@');
  const auto error = ParseNumber(error_text, 1, 99999);
  const auto call = call_text == "*" ? std::optional<uint64_t>(0)
                                     : ParseNumber(call_text, 1, kAnyNumber);
  const std::vector<Entry> entries = FindEntries(word);
  if (!error || !call || entries.empty()) return false;
  for (const Entry entry : entries) {
    rules->push_back({entry, *call, static_cast<CUresult>(*error), 0});
  }
  return true;
}

bool Injection::SetFailures(std::string_view rules) {
  std::vector<Rule> parsed;
  const bool ok = ForEachRule(rules, [&parsed](std::string_view rule) {
    return ParseFailure(rule, &parsed);
  });
  if (!ok) return false;
  const MutexLock lock(mutex_);
  armed_.store(!parsed.empty(), std::memory_order_relaxed);
  rules_ = std::move(parsed);
  return true;
}

bool Injection::SetLatencies(std::string_view rules) {
  std::array<uint32_t, kEntries> parsed = {};
  const bool ok = ForEachRule(rules, [&parsed](std::string_view rule) {
    const auto [word, number] = Split(rule, '=');
    const auto latency = ParseNumber(number, 0, 60'000'000);
    const auto value = static_cast<uint32_t>(latency.value_or(0));
    if (word == "*") {
      parsed.fill(value);
      return latency.has_value();
    }
    const std::vector<Entry> entries = FindEntries(word);
    for (const Entry entry : entries) {
      parsed[static_cast<size_t>(entry)] = value;
    }
    return latency && !entries.empty();
  });
  if (!ok) return false;
  for (size_t i = 0; i < kEntries; ++i) {
    latency_us_[i].store(parsed[i], std::memory_order_relaxed);
  }
  return true;
}

CUresult Injection::NextFailure(Entry entry) {
  if (!armed_.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  CUresult error = CUDA_SUCCESS;
  const MutexLock lock(mutex_);
  for (Rule& rule : rules_) {
    if (rule.entry != entry) continue;
    ++rule.seen;
    if (rule.call == 0 || rule.call == rule.seen) error = rule.error;
  }
  return error;
}

void Injection::Delay(Entry entry) {
  const std::chrono::microseconds latency(
      latency_us_[static_cast<size_t>(entry)].load(std::memory_order_relaxed));
  const bool waits = driver_lock_.is_shared() && ChangesMemory(entry);
  if (latency.count() == 0 && !waits) return;
  const DriverLock::Held lock(&driver_lock_);
  if (latency > kSpinLimit) {
    std::this_thread::sleep_for(latency);
    return;
  }
  const auto end = std::chrono::steady_clock::now() + latency;
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace fineserve::emucuda
