#include "daemon/proxy/options.h"

#include <stdio.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/cli/command_line.h"
#include "daemon/base/whole_file.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/fleet/config/address.h"
#include "daemon/fleet/config/config.h"
#include "daemon/fleet/config/fleet_places.h"

namespace fineserve::proxy {
namespace {

constexpr char kFooter[] = R"(
Examples:
  fineserve-proxy --fleet fleet.toml
  fineserve-proxy --fleet fleet.toml --listen 0.0.0.0:8000
  fineserve-proxy --fleet fleet.toml --listen 127.0.0.1:0    # any port, printed
  fineserve-proxy --fleet fleet.toml --check
  fineserve-proxy --fleet fleet.toml --access-log /var/log/fineserve/access.log
  fineserve-proxy --fleet fleet.toml --otlp-endpoint http://127.0.0.1:4318

Signals: SIGHUP reloads the fleet and the keys. SIGUSR1 opens the access log
again. SIGTERM and SIGINT let running requests finish, within the fleet's drain;
a second one ends the proxy at once.
Exit codes: 0 ended as asked, 1 cannot serve, 2 wrong flag or fleet.)";

// Sizes as the user typed them; empty: the default.
struct SizeWords {
  std::string max_body, max_bodies;
};

void Declare(CLI::App* app, Options* o, SizeWords* sizes) {
  // Lets a user override a wrapper script's flags by appending others.
  app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app->add_option("--fleet", o->fleet_path,
                  "TOML file with the models and engines")
      ->required();
  app->add_option("--listen", o->listen,
                  "Listen address; overrides the fleet file");
  app->add_option("--admin", o->admin,
                  "Admin address; overrides the fleet file");
  app->add_option("--runtime-dir", o->runtime_dir,
                  "fineserved's runtime folder");
  app->add_option("--max-body", sizes->max_body,
                  "Largest request body (default: 32MiB)");
  app->add_option("--max-bodies", sizes->max_bodies,
                  "Most that large request bodies hold together (default: "
                  "512MiB)");
  app->add_option("--max-connections", o->limits.connections,
                  "Most client connections at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app->add_flag_callback(
      "--no-page-logs", [o] { o->limits.log_s = 0; },
      "Show no engine's log on the admin port's page: logs may have prompts");
  app->add_option("--log-level", o->log_level, "trace debug info warn error")
      ->capture_default_str()
      ->check(CLI::IsMember(config::LogLevels()));
  app->add_flag("--check", o->check_only,
                "Check the fleet and the keys, then exit");
  app->set_version_flag("--version", "fineserve-proxy " FINESERVE_VERSION);
  app->footer(kFooter);
}

void DeclareFollow(CLI::App* app, FollowOptions* o) {
  const char* kGroup = "Following requests";
  app->add_option("--access-log", o->access_log,
                  "File for a line of JSON about each request; - is standard "
                  "output; SIGUSR1 opens the file again")
      ->group(kGroup);
  app->add_option("--recent-requests", o->recent_requests,
                  "Requests that ended, to keep for fsctl requests --follow "
                  "and fsctl trace; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000))
      ->group(kGroup);
  app->add_option("--otlp-endpoint", o->otlp_endpoint,
                  "Collector of traces, as http://HOST[:4318][/v1/traces]")
      ->group(kGroup);
  app->add_option("--trace-sample", o->trace_sample,
                  "Part of the traces that begin here to send, from 0 to 1")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0))
      ->group(kGroup);
}

// Empty: not given.
absl::Status SetSize(absl::string_view flag, const std::string& words,
                     uint64_t* bytes) {
  if (words.empty()) return absl::OkStatus();
  const absl::Status s = config::SetByteSize(words, bytes);
  if (s.ok()) return s;
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", s.message()));
}

int Fail(absl::string_view message) {
  fprintf(stderr, "fineserve-proxy: %s\n", std::string(message).c_str());
  return 2;
}

// Empty: not given.
absl::Status SetAddress(absl::string_view flag, const std::string& text,
                        std::string* host, uint16_t* port) {
  if (text.empty()) return absl::OkStatus();
  const absl::Status s = config::SplitAddress(text, host, port);
  if (s.ok()) return s;
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", s.message()));
}

// Returns the ledger's path. If the fleet file names none, it is in the folder
// that systemd gives the service for its state, or else beside the keys.
std::string LedgerPath(const config::ProxySettings& at) {
  if (!at.ledger_path.empty()) return at.ledger_path;
  const char* const state = getenv("STATE_DIRECTORY");
  return state != nullptr && *state != 0
             ? absl::StrCat(state, "/ledger")
             : absl::StrCat(at.keys_path, ".ledger");
}

absl::Status CheckModels(const KeySet& keys, const config::Fleet& fleet) {
  for (const KeySet::Held& held : keys.keys()) {
    for (const std::string& model : held.second->models) {
      if (fleet.ModelIndex(model) < fleet.models.size()) continue;
      if (fleet.Outside(model) != nullptr) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(fleet.proxy.keys_path, ": models=", model,
                       ", but the fleet has no model of that name"));
    }
  }
  return absl::OkStatus();
}

// Reads the API key of each outside endpoint, which is the first line of its
// key file.
absl::StatusOr<std::map<std::string, std::string>> ReadOutsideKeys(
    const config::Fleet& fleet) {
  std::map<std::string, std::string> keys;
  for (const config::OutsideModel& outside : fleet.outside) {
    if (outside.key_path.empty()) continue;
    const absl::StatusOr<std::string> text =
        base::ReadWholeFile(outside.key_path);
    if (!text.ok()) return text.status();
    std::string& key = keys[outside.name];
    key = std::string(absl::StripAsciiWhitespace(
        absl::string_view(*text).substr(0, text->find('\n'))));
    if (!key.empty() && key.find_first_of(" \t\r") == key.npos) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        outside.key_path, ": its first line is no key for [[outside]] \"",
        outside.name, "\""));
  }
  return keys;
}

}  // namespace

absl::variant<Options, int> ParseOptions(int argc, char** argv) {
  Options options;
  SizeWords sizes;
  CLI::App app(
      "Reverse proxy for OpenAI's API: takes requests for the models of a "
      "fleet, asks admission, and relays the engines' answers as they come.",
      "fineserve-proxy");
  Declare(&app, &options, &sizes);
  DeclareFollow(&app, &options.follow);
  CLI::Option* cert = app.add_option(
      "--tls-cert", options.tls_cert,
      "Certificate (PEM, with its chain): clients' port then speaks TLS; "
      "SIGHUP reads it again");
  CLI::Option* key =
      app.add_option("--tls-key", options.tls_key, "Its private key (PEM)");
  cert->needs(key);
  key->needs(cert);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return cli::EndOf(app, e);
  }
  Limits* const limits = &options.limits;
  absl::Status s = SetSize("--max-body", sizes.max_body, &limits->body_bytes);
  s.Update(SetSize("--max-bodies", sizes.max_bodies, &limits->bodies_bytes));
  if (!s.ok()) return Fail(s.message());
  return options;
}

absl::StatusOr<Setup> ReadSetup(const Options& options) {
  absl::StatusOr<config::Fleet> fleet = config::ReadFleet(options.fleet_path);
  if (!fleet.ok()) return fleet.status();
  Setup setup;
  setup.written = config::Describe(*fleet);
  config::ProxySettings& at = fleet->proxy;
  absl::Status s =
      SetAddress("--listen", options.listen, &at.listen_host, &at.listen_port);
  s.Update(
      SetAddress("--admin", options.admin, &at.admin_host, &at.admin_port));
  for (const config::FleetEngine& engine : fleet->engines) {
    s.Update(config::CheckIsNoProxy(engine, at));
  }
  if (!s.ok()) return s;
  if (!at.keys_path.empty()) {
    absl::StatusOr<KeySet> keys = ReadKeys(at.keys_path);
    if (!keys.ok()) return keys.status();
    setup.keys = *std::move(keys);
    setup.ledger_path = LedgerPath(at);
    s = CheckModels(setup.keys, *fleet);
    if (!s.ok()) return s;
    setup.warning = WarnOfReaders(at.keys_path);
  }
  auto outside_keys = ReadOutsideKeys(*fleet);
  if (!outside_keys.ok()) return outside_keys.status();
  setup.outside_keys = *std::move(outside_keys);
  setup.fleet = std::make_shared<const config::Fleet>(*std::move(fleet));
  return setup;
}

}  // namespace fineserve::proxy
