#include "tools/fsctl/follow/usage_output.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using nlohmann::json;

bool HasCount(const json& key, const char* name) {
  return key.is_object() && key.contains(name) &&
         key[name].is_number_unsigned();
}

std::string Count(const json& key, const char* name) {
  return HasCount(key, name) ? absl::StrCat(key[name].get<uint64_t>()) : "-";
}

// The budget is spent: red; four fifths of it: yellow.
Color ColorOf(const json& key) {
  if (!HasCount(key, "tokens_per_day") || !HasCount(key, "tokens_today")) {
    return Color::kNone;
  }
  const auto budget = key["tokens_per_day"].get<uint64_t>();
  const auto spent = key["tokens_today"].get<uint64_t>();
  if (spent >= budget) return Color::kRed;
  return spent >= budget - budget / 5 ? Color::kYellow : Color::kNone;
}

}  // namespace

std::string UsageText(const json& usages, bool color) {
  const bool has_keys = usages.is_object() && usages.contains("keys") &&
                        usages["keys"].is_array();
  if (!has_keys || usages["keys"].empty()) {
    return "no key has a name; only named keys are counted "
           "(fineserve-fleet(5), keys)\n";
  }
  TextTable table({"KEY", ">REQUESTS", ">PROMPT", ">OUTPUT", ">TODAY",
                   ">OF A DAY", ">UNDER WAY"});
  for (const json& key : usages["keys"]) {
    const bool is_named =
        key.is_object() && key.contains("key") && key["key"].is_string();
    table.Add({is_named ? key["key"].get<std::string>() : "-",
               Count(key, "requests"),
               Count(key, "prompt_tokens"),
               Count(key, "output_tokens"),
               {Count(key, "tokens_today"), ColorOf(key)},
               Count(key, "tokens_per_day"),
               Count(key, "under_way")});
  }
  return table.Render(color);
}

}  // namespace fineserve::fsctl
