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

// Admin addresses of the proxies that are meant: the one that is given, or all
// that run here; never empty.
std::vector<std::string> ProxiesMeant(const std::string& address) {
  if (!address.empty()) return {address};
  std::vector<std::string> here = AdminsOfProxies();
  if (here.empty()) here.emplace_back(kProxyAdmin);
  return here;
}

absl::StatusOr<openai::Target> OneProxy(const std::string& address) {
  const std::vector<std::string> meant = ProxiesMeant(address);
  if (meant.size() == 1) return ProxyAt(meant.front());
  return absl::InvalidArgumentError(
      absl::StrCat("several proxies run here; choose one by --admin: ",
                   absl::StrJoin(meant, ", ")));
}

// The answer of the first proxy that knows the request, else of the last that
// answers.
absl::StatusOr<openai::Page> AskForRequest(
    const std::vector<std::string>& proxies, const std::string& id) {
  absl::StatusOr<openai::Page> page = absl::UnavailableError("");
  for (const std::string& address : proxies) {
    const absl::StatusOr<openai::Target> proxy = ProxyAt(address);
    if (!proxy.ok()) return proxy.status();
    auto its = AskProxy(*proxy, "/requests/" + PercentEncoded(id));
    const bool knows = its.ok() && its->status != 404;
    if (its.ok() || !page.ok()) page = std::move(its);
    if (knows) break;
  }
  return page;
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

// Prints a proxy's answer, a JSON object, as text or as it is.
int Show(const Globals& globals, const absl::StatusOr<openai::Page>& page,
         std::string (*text)(const json&, bool)) {
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
  const absl::StatusOr<openai::Target> proxy = OneProxy(options.admin);
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
  return Show(globals, AskForRequest(ProxiesMeant(options.admin), options.id),
              TraceText);
}

int RunUsage(const Globals& globals, const std::string& admin) {
  const absl::StatusOr<openai::Target> proxy = OneProxy(admin);
  if (!proxy.ok()) return Fail(proxy.status());
  return Show(globals, AskProxy(*proxy, "/usage"), UsageText);
}

}  // namespace fineserve::fsctl
