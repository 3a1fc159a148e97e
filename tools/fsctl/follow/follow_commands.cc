#include "tools/fsctl/follow/follow_commands.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/fsctl/apply/fleet_processes.h"
#include "tools/fsctl/follow/life_output.h"
#include "tools/fsctl/follow/proxy_stream.h"
#include "tools/fsctl/follow/usage_output.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"

namespace fineserve::fsctl {
namespace {

using nlohmann::json;

int Fail(const absl::Status& status) {
  return fsctl::Fail(
      absl::IsInvalidArgument(status) ? kExitUsage : kExitNoDaemon, status);
}

// The proxy that is meant: by its address, or the only one that runs here.
absl::StatusOr<openai::Target> ProxyMeant(const std::string& address) {
  if (!address.empty()) return ProxyAt(address);
  const std::vector<std::string> here = AdminsOfProxies();
  if (here.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("several proxies run here; choose one by --admin: ",
                     absl::StrJoin(here, ", ")));
  }
  return ProxyAt(here.empty() ? kProxyAdmin : here.front());
}

// The proxy's own words, if it has any.
std::string MessageOf(const openai::Page& page) {
  const json body = json::parse(page.body, nullptr, /*allow_exceptions=*/false);
  const json::json_pointer at("/error/message");
  if (body.is_object() && body.contains(at) && body[at].is_string()) {
    return body[at];
  }
  return absl::StrCat("the proxy answers with status ", page.status);
}

// Prints the JSON object that the proxy has at `path`, as text or as it is.
int Show(const Globals& globals, const std::string& admin,
         const std::string& path, std::string (*text)(const json&, bool)) {
  const absl::StatusOr<openai::Target> proxy = ProxyMeant(admin);
  if (!proxy.ok()) return Fail(proxy.status());
  const auto page = AskProxy(*proxy, path);
  if (!page.ok()) return Fail(page.status());
  if (page->status != 200) {
    return fsctl::Fail(kExitBadAnswer, MessageOf(*page));
  }
  const json answer = json::parse(page->body, nullptr,
                                  /*allow_exceptions=*/false);
  if (!answer.is_object()) {
    return fsctl::Fail(kExitBadAnswer, "the proxy's answer is not JSON");
  }
  return Print(globals.json
                   ? JsonText(nlohmann::ordered_json::parse(page->body))
                   : text(answer, globals.color));
}

}  // namespace

int RunFollow(const Globals& globals, const FollowOptions& options) {
  const absl::StatusOr<openai::Target> proxy = ProxyMeant(options.admin);
  if (!proxy.ok()) return Fail(proxy.status());
  std::string path = "/requests/follow";
  if (!options.model.empty()) {
    absl::StrAppend(&path, "?model=", PercentEncoded(options.model));
  }
  const auto begin = [&] {
    if (!globals.json) Print(FollowHeading(globals.color));
    fflush(stdout);
  };
  const auto show = [&](const std::string& line) {
    if (globals.json) {
      Print(line + "\n");
    } else {
      Print(FollowLine(json::parse(line, nullptr, /*allow_exceptions=*/false),
                       globals.color));
    }
    fflush(stdout);
  };
  return Fail(FollowProxy(*proxy, path, begin, show));
}

int RunTrace(const Globals& globals, const TraceOptions& options) {
  return Show(globals, options.admin,
              absl::StrCat("/requests/", PercentEncoded(options.id)),
              TraceText);
}

int RunUsage(const Globals& globals, const std::string& admin) {
  return Show(globals, admin, "/usage", UsageText);
}

}  // namespace fineserve::fsctl
