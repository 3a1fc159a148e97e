#include "tools/up/up_preview.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/fsctl/terminal/clean_text.h"
#include "tools/fsctl/terminal/json_text.h"

namespace fineserve::fsctl {
namespace {

std::string UrlOf(const config::FleetEngine& engine) {
  const bool is_ipv6 = engine.host.find(':') != std::string::npos;
  return absl::StrCat("http://", is_ipv6 ? "[" : "", engine.host,
                      is_ipv6 ? "]" : "", ":", engine.port);
}

// A word as a shell takes it.
void AppendQuoted(std::string* out, const std::string& word) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"
      ":=@%+,";
  const bool plain =
      !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
  absl::StrAppend(out, plain ? word : ShellQuoted(word));
}

}  // namespace

std::string PreviewText(const config::Fleet& fleet) {
  std::string text;
  for (const config::FleetEngine& engine : fleet.engines) {
    if (engine.command.empty()) continue;
    absl::StrAppend(&text, engine.name, " at ", UrlOf(engine), "\n  ",
                    absl::StrJoin(engine.command, " ", AppendQuoted), "\n");
  }
  return text;
}

std::string PreviewJson(const config::Fleet& fleet) {
  nlohmann::ordered_json engines = nlohmann::ordered_json::array();
  for (const config::FleetEngine& engine : fleet.engines) {
    if (engine.command.empty()) continue;
    engines.push_back({{"name", engine.name},
                       {"model", engine.model},
                       {"url", UrlOf(engine)},
                       {"command", engine.command}});
  }
  return JsonText({{"engines", std::move(engines)}});
}

}  // namespace fineserve::fsctl
