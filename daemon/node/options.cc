#include "daemon/node/options.h"

#include <stdio.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/cli/command_line.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/keys.h"
#include "daemon/fleet/config/config.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/machines/this_machine.h"

namespace fineserve::node {
namespace {

constexpr char kFooter[] = R"(
Examples:
  fineserve-node --fleet fleet.toml
  fineserve-node --fleet fleet.toml --check
  FINESERVE_MACHINE=a fineserve-node --fleet fleet.toml

Signals: SIGTERM and SIGINT give the lead back and end it.
Exit codes: 0 ended as asked, 1 cannot serve, 2 wrong flag or fleet.)";

}  // namespace

absl::variant<Options, int> ParseOptions(int argc, char** argv) {
  Options o;
  CLI::App app(
      "Keeps this machine's place in a fleet of several machines: registers it "
      "in etcd, takes part in the election, and carries the leader's plan.",
      "fineserve-node");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--fleet", o.fleet_path, "TOML file with the machines")
      ->required();
  app.add_option("--runtime-dir", o.runtime_dir, "fineserved's runtime folder");
  app.add_option("--log-level", o.log_level, "trace debug info warn error")
      ->capture_default_str()
      ->check(CLI::IsMember(config::LogLevels()));
  app.add_flag("--check", o.check_only, "Check the fleet file, then exit");
  app.set_version_flag("--version", "fineserve-node " FINESERVE_VERSION);
  app.footer(kFooter);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return cli::EndOf(app, e);
  }
  return o;
}

absl::StatusOr<Node::Setup> ReadSetup(const Options& options) {
  absl::StatusOr<config::Fleet> fleet = config::ReadFleet(options.fleet_path);
  if (!fleet.ok()) return fleet.status();
  if (!fleet->cluster.IsOn()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.fleet_path,
        ": [cluster] names fewer than two machines, and one needs no "
        "fineserve-node"));
  }
  const absl::StatusOr<config::Machine> machine =
      cluster::ThisMachine(fleet->cluster);
  if (!machine.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.fleet_path, ": ", machine.status().message()));
  }
  Node::Setup setup;
  setup.fleet = *std::move(fleet);
  setup.fleet_path = config::FleetPath(options.fleet_path);
  setup.machine = *machine;
  setup.folder = options.runtime_dir.empty() ? finding::RuntimeFolder()
                                             : options.runtime_dir;
  const auto own = wire::KeyFolder(wire::KeyFolder::Default()).Own();
  if (!own.ok()) return own.status();
  setup.key = own->public_key;
  return setup;
}

}  // namespace fineserve::node
