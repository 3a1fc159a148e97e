#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/fsctl/apply/fleet_processes.h"
#include "tools/fsctl/models/models_output.h"
#include "tools/fsctl/requests/follow_output.h"
#include "tools/fsctl/requests/proxy_stream.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"

namespace fineserve::fsctl {
namespace {

using nlohmann::json;

// The admin port that is asked if no fineserve-proxy runs under this user.
constexpr char kProxyAdmin[] = "127.0.0.1:8001";

struct RequestsOptions {
  uint32_t most = 50;  // of the daemons' list
  bool follow = false;
  std::string model;  // empty: all
  std::string admin;  // empty: of the proxy that runs here
};

struct UsageOptions {
  std::string admin;  // empty: of the proxy that runs here
};

struct TraceOptions {
  std::string id;     // or how it begins
  std::string admin;  // empty: of the proxies that run here
};

int Fail(const absl::Status& status) {
  return fsctl::Fail(
      absl::IsInvalidArgument(status) ? kExitUsage : kExitNoDaemon, status);
}

// Returns the admin addresses of the proxies to ask: the given one, or all that
// run here; never empty.
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

// Returns the answer of the first proxy that knows the request; if there is
// none, the answer of the last proxy that answers.
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

// Returns the proxy's error message, if its answer has one.
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

int RunRequests(const Globals& globals, const RequestsOptions& options) {
  if (!options.follow) return PrintRequests(globals, options.most);
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

int RunUsage(const Globals& globals, const UsageOptions& options) {
  const absl::StatusOr<openai::Target> proxy = OneProxy(options.admin);
  if (!proxy.ok()) return Fail(proxy.status());
  return Show(globals, AskProxy(*proxy, "/usage"), UsageText);
}

CLI::Option* AddAdmin(CLI::App* command, std::string* address) {
  return command->add_option(
      "--admin", *address,
      absl::StrCat(
          "Admin address of the fineserve-proxy (default: of the one that runs "
          "here, else ",
          kProxyAdmin, ")"));
}

}  // namespace

void AddRequests(Commands& c) {
  const auto [command, o] =
      c.Add("requests", "List or follow requests",
            "  fsctl requests                  that wait or run now\n"
            "  fsctl requests --most 1000 --json\n"
            "  fsctl requests --follow         each as it ends\n"
            "  fsctl requests --follow --model chat --json\n",
            RunRequests);
  command
      ->add_option("--most", o->most,
                   "Maximum number of requests to list (default: 50)")
      ->check(CLI::Range(1, 10'000));
  CLI::Option* follow = command->add_flag(
      "--follow", o->follow,
      "Print each request as it ends, as a fineserve-proxy sees it");
  command->add_option("--model", o->model, "Only this model's")->needs(follow);
  AddAdmin(command, &o->admin)->needs(follow);
}

void AddTrace(Commands& c) {
  const auto [command, o] = c.Add(
      "trace", "Show the life of one request",
      "  fsctl trace 5f2c0e8d9a7b4c3f8e1d2a6b9c0f7e5d\n"
      "  fsctl trace 5f2c                if no other begins so\n"
      "  fsctl trace my-id --json | jq .waited_for\n"
      "fsctl requests shows the ids; each answer carries its own as\n"
      "x-request-id. A fineserve-proxy knows what is under way and what ended\n"
      "lately.\n",
      RunTrace);
  command
      ->add_option("ID", o->id, "The request's x-request-id, or how it begins")
      ->required();
  AddAdmin(command, &o->admin);
}

void AddUsage(Commands& c) {
  const auto [command, o] = c.Add(
      "usage", "Show what each named key has spent",
      "  fsctl usage\n"
      "  fsctl usage --json | jq '.keys[] | select(.tokens_today > 1e6)'\n"
      "A key has a name by name= in the file of keys; fineserve-fleet(5) says\n"
      "how. Days are those of UTC.\n",
      RunUsage);
  AddAdmin(command, &o->admin);
}

}  // namespace fineserve::fsctl
