#include "daemon/fineserved/start/options.h"

#include <stdio.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "daemon/base/cli/command_line.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/version.h"

namespace fineserve::server {
namespace {

constexpr char kDefaultConfig[] = "/etc/fineserve/fineserve.toml";
constexpr char kDefaultFleet[] = "/etc/fineserve/fleet.toml";

constexpr char kFooter[] = R"(
Examples:
  fineserved --gpu 0 --pool 16GiB
  fineserved --gpu 0 --pool auto --reserve 40%
  fineserved --gpu emulated --pool 1GiB --slab 16MiB
  fineserved --gpu 0 --pool 16GiB --fleet /etc/fineserve/fleet.toml
  fineserved --gpu 0 --pool 16GiB --metrics 127.0.0.1:9470
  fineserved --config /etc/fineserve/fineserve.toml --dry-run

Signals: SIGHUP reads the configuration again (engine rules, log level, fleet,
and the pool's size up to its maximum). SIGTERM and SIGINT stop the daemon;
engines keep what they have mapped.
Exit codes: 0 stopped by a signal, 1 cannot serve, 2 wrong flag or
configuration.)";

// The flags as typed; empty means not given.
struct Flags {
  std::string gpu, pool, reserve, headroom, max_pool, slab, store, config_path,
      runtime_dir, log_level;
  std::string fleet, metrics;
  uint32_t planes = 0;
  bool dry_run = false;
  bool supervise = false;
  bool check_takeover = false;
};

void Declare(CLI::App* app, Flags* f) {
  // Lets a user override a wrapper script's flags by appending others.
  app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app->add_option(
      "--gpu", f->gpu,
      "GPU to serve: ordinal, UUID (or its beginning), \"emulated\"");
  app->add_option(
      "--pool", f->pool,
      "Size of the KV pool, e.g. 16GiB, or \"auto\": what is free on "
      "the GPU now less --reserve, and later what engines leave to it");
  app->add_option("--reserve", f->reserve,
                  "With --pool auto: what is left to weights and activations, "
                  "e.g. 20GiB or 40% of what is free (default: a third)");
  app->add_option("--headroom", f->headroom,
                  "With --pool auto: what stays free while the pool grows, "
                  "e.g. 5GiB or 6% of the GPU's memory (default: a sixteenth)");
  app->add_option(
      "--max-pool", f->max_pool,
      "Size that the pool may grow to (default: --pool, or with auto "
      "what the GPU has, less --headroom)");
  app->add_option("--store", f->store,
                  "Host memory for what is evicted, e.g. 64GiB (default: auto, "
                  "what the host has left but for a sixteenth)");
  app->add_option("--slab", f->slab,
                  "Size of a slab (default: chosen by the daemon)");
  app->add_option("--planes", f->planes,
                  "Planes that a slab is spread over (default: 1)")
      ->check(CLI::Range(1, 1024));
  app->add_option(
      "--config", f->config_path,
      absl::StrCat("TOML file (default: ", kDefaultConfig, " if it exists)"));
  app->add_option("--fleet", f->fleet,
                  absl::StrCat("TOML file of models and engines whose requests "
                               "to admit (default, if ",
                               kDefaultConfig, " is read and names none: ",
                               kDefaultFleet, " if it exists)"));
  app->add_option("--metrics", f->metrics,
                  "HOST:PORT of Prometheus's page of metrics, or the port "
                  "alone for this machine only (default: off)");
  app->add_option("--runtime-dir", f->runtime_dir,
                  "Folder of the daemon's socket");
  app->add_option("--log-level", f->log_level, "trace debug info warn error")
      ->check(CLI::IsMember(config::LogLevels()));
  app->add_flag("--dry-run", f->dry_run,
                "Check everything, print the plan, allocate nothing");
  app->add_flag("--supervise", f->supervise,
                "Run the daemon as a child, keep its pool, and start it again "
                "when it ends: engines go on (not needed as a unit "
                "of systemd)");
  app->add_flag("--check-takeover", f->check_takeover,
                "Say whether this program can go on with the pool whose slab "
                "table it inherits, and exit (fsctl upgrade asks this)");
  app->set_version_flag(
      "--version",
      absl::StrCat("fineserved " FINESERVE_VERSION ", ABI ", abi::kAbiVersion));
  app->footer(kFooter);
}

template <typename T>
absl::Status Parse(const char* flag, const std::string& text,
                   absl::Status (*parse)(const std::string&, T*), T* out) {
  if (text.empty()) return absl::OkStatus();
  absl::Status s = parse(text, out);
  if (s.ok()) return s;
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", s.message()));
}

absl::Status MergeSizes(const Flags& f, config::Config* c) {
  for (absl::Status s :
       {Parse("--pool", f.pool, config::SetPoolSize, &c->pool),
        Parse("--reserve", f.reserve, config::SetReserve, &c->reserve),
        Parse("--headroom", f.headroom, config::SetHeadroom, &c->headroom),
        Parse("--max-pool", f.max_pool, config::SetByteSize,
              &c->max_pool_bytes),
        Parse("--store", f.store, config::SetPoolSize, &c->store),
        Parse("--slab", f.slab, config::SetByteSize, &c->slab_bytes)}) {
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status CheckPool(const Flags& f, const config::Config& c) {
  if (c.pool.bytes == 0 && !c.pool.is_auto) {
    return absl::InvalidArgumentError(
        "no pool size is set; give --pool 16GiB, --pool auto or [pool] size in "
        "the configuration");
  }
  if (!f.reserve.empty() && !c.pool.is_auto) {
    return absl::InvalidArgumentError(
        "--reserve is for --pool auto; leave it out or give --pool auto");
  }
  if (!f.headroom.empty() && !c.pool.is_auto) {
    return absl::InvalidArgumentError(
        "--headroom is for --pool auto; leave it out or give --pool auto");
  }
  if (c.max_pool_bytes != 0 && c.max_pool_bytes < c.pool.bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a pool of ", abi::SizeText(c.pool.bytes),
        " is larger than its --max-pool ", abi::SizeText(c.max_pool_bytes),
        "; raise [pool] max or --max-pool"));
  }
  return absl::OkStatus();
}

// Merges the file and the flags; flags override the file.
absl::StatusOr<config::Config> Merge(const Flags& f) {
  config::Config c;
  std::string path = f.config_path;
  if (path.empty() && access(kDefaultConfig, F_OK) == 0) path = kDefaultConfig;
  if (!path.empty()) {
    absl::StatusOr<config::Config> file = config::ReadConfig(path);
    if (!file.ok()) return file.status();
    c = *std::move(file);
  }
  if (!f.gpu.empty()) c.gpu = f.gpu;
  if (!f.runtime_dir.empty()) c.runtime_dir = f.runtime_dir;
  if (!f.fleet.empty()) c.fleet_path = f.fleet;
  const bool is_service = f.config_path.empty() && !path.empty();
  if (c.fleet_path.empty() && is_service && access(kDefaultFleet, F_OK) == 0) {
    c.fleet_path = kDefaultFleet;
  }
  if (!f.log_level.empty()) c.log_level = f.log_level;
  if (f.planes != 0) c.planes = f.planes;
  if (absl::Status s =
          Parse("--metrics", f.metrics, config::SetListenAddress, &c.metrics);
      !s.ok()) {
    return s;
  }
  if (absl::Status s = MergeSizes(f, &c); !s.ok()) return s;
  if (absl::Status s = CheckPool(f, c); !s.ok()) return s;
  if (c.fleet_path.empty()) return c;
  absl::StatusOr<config::Fleet> fleet = config::ReadFleet(c.fleet_path);
  if (!fleet.ok()) return fleet.status();
  c.fleet = *std::move(fleet);
  return c;
}

int Fail(absl::string_view message) {
  fprintf(stderr, "fineserved: %s\n", std::string(message).c_str());
  return 2;
}

}  // namespace

absl::variant<Options, int> ParseOptions(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Owns one GPU's KV pool and leases its slabs to LLM engines that run "
      "under the FineServe preload.",
      "fineserved");
  Declare(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return cli::EndOf(app, e);
  }
  absl::StatusOr<config::Config> config = Merge(flags);
  if (!config.ok()) return Fail(config.status().message());
  return Options{*std::move(config), [flags] { return Merge(flags); },
                 flags.dry_run, flags.supervise, flags.check_takeover};
}

}  // namespace fineserve::server
