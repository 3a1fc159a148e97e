#include "daemon/proxy/request/engine_paths.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace fineserve::proxy {
namespace {

// Operators' paths, each with all paths below it.
constexpr absl::string_view kOperators[] = {
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/load_lora_adapter",
    "/unload_lora_adapter",
    "/start_profile",
    "/stop_profile",
    "/server_info",
    "/get_server_info",
    "/get_load",
    "/load",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/flush_cache",
    "/collective_rpc",
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/release_kv_cache_memory",
    "/release_memory_occupation",
    "/resume_memory_occupation",
    "/kv_event_sources",
    "/scale_elastic_ep",
    "/is_scaling_elastic_ep",
    "/fault_tolerance",
    "/pause",
    "/resume",
    "/is_paused",
    "/pause_generation",
    "/continue_generation",
    "/abort_request",
    "/abort_requests",
    "/init_weight_transfer_engine",
    "/shutdown_weight_transfer_engine",
    "/start_weight_update",
    "/start_draft_weight_update",
    "/finish_weight_update",
    "/update_weights",
    "/update_weights_from_disk",
    "/update_weights_from_tensor",
    "/update_weights_from_distributed",
    "/init_weights_update_group",
    "/update_weight_version",
    "/weight_info",
    "/weight_checker",
    "/get_world_size",
    "/set_internal_state",
    "/configure_logging",
    "/docs",
    "/redoc",
    "/openapi.json",
};

bool IsAtOrBehind(absl::string_view path, absl::string_view known) {
  return absl::ConsumePrefix(&path, known) && (path.empty() || path[0] == '/');
}

// True if `path` matches `listed`: "/v1/tools/*" matches all paths below
// "/v1/tools".
bool Matches(absl::string_view path, absl::string_view listed) {
  if (!absl::ConsumeSuffix(&listed, "/*")) return path == listed;
  return path.size() > listed.size() + 1 && IsAtOrBehind(path, listed);
}

bool IsPlainSegment(absl::string_view segment) {
  const std::string decoded = PercentDecoded(segment);
  if (decoded.empty() || decoded == "." || decoded == "..") return false;
  return std::none_of(decoded.begin(), decoded.end(), [](char c) {
    return c == '/' || c == '\\' ||
           absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
}

}  // namespace

std::string PercentDecoded(absl::string_view text) {
  if (!absl::StrContains(text, '%')) return std::string(text);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() &&
        absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) &&
        absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]))) {
      absl::StrAppend(&out, absl::HexStringToBytes(text.substr(i + 1, 2)));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

bool IsPlainPath(absl::string_view path) {
  if (!absl::ConsumePrefix(&path, "/")) return false;
  const auto segments = absl::StrSplit(path, '/');
  return std::all_of(segments.begin(), segments.end(), IsPlainSegment);
}

bool IsOperators(absl::string_view path) {
  const std::string decoded = PercentDecoded(path);
  return std::any_of(
      std::begin(kOperators), std::end(kOperators),
      [&](absl::string_view known) { return IsAtOrBehind(decoded, known); });
}

bool IsPassedOn(absl::string_view path, const config::OtherPaths& others) {
  const auto listed = [&](const std::string& one) {
    return Matches(path, one);
  };
  if (std::any_of(others.listed.begin(), others.listed.end(), listed)) {
    return true;
  }
  return others.all && !IsOperators(path);
}

}  // namespace fineserve::proxy
