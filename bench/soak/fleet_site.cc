#include "bench/soak/fleet_site.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/stage/fleet_text.h"
#include "tools/lab/stage/json_value.h"

namespace fineserve::bench {
namespace {

constexpr size_t kWithoutRequests = 2, kHolder = 3;  // engines

struct Format {
  int kv_token_bytes;
  const char* flags;
};
constexpr Format kFormats[FleetSite::kServing] = {
    {4096, "--page 64KiB"}, {8192, "--planes 4 --page 32KiB"}};

size_t CountOf(const std::string& what, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace

FleetSite::FleetSite(const std::string& name,
                     std::array<uint16_t, kServing> ports,
                     std::string without_daemon, Failures* failures)
    : site_(name, failures), engine_ports_(ports) {
  WriteFleet(ports, without_daemon);
}

void FleetSite::WriteFleet(const std::array<uint16_t, kServing>& ports,
                           const std::string& without_daemon) {
  stage::FleetText file;
  file.Proxy({{"without_daemon", without_daemon}});
  for (size_t i = 0; i < kServing; ++i) {
    const std::string name = Models()[i];
    // tinyserve's step times at --speed 20, an SLO that only a jam misses, and
    // a batch so small that requests have to wait.
    file.Model(name, {{"kv_token_bytes", kFormats[i].kv_token_bytes},
                      {"slo_ttft_ms", 3000},
                      {"max_batch", 3},
                      {"profile", stage::TomlValue::Profile(380, 0.8, 3.2)}});
    file.Engine(name, name, ports[i]);
  }
  file.WriteTo(fleet_path());
}

bool FleetSite::StartAll(size_t proxies) {
  if (!StartDaemon()) return false;
  for (size_t i = 0; i < kEngines; ++i) {
    if (!StartEngine(i)) return false;
  }
  for (size_t i = 0; i < proxies; ++i) {
    if (!StartProxy()) return false;
  }
  return true;
}

// 10 slabs, of which the engines' floors take 4.
bool FleetSite::StartDaemon() {
  return site_.StartDaemon({"--pool", "80MiB", "--slab", "8MiB", "--planes",
                            "4", "--fleet", fleet_path()});
}

bool FleetSite::StartEngine(size_t engine) {
  engines_[engine].reset();
  std::string command;
  std::string name = absl::StrCat("engine-", ++started_);
  process::Environment more;
  if (engine < kServing) {
    name = Models()[engine];
    command = absl::StrCat(
        "tinyserve --view --speed 20 --max-model-len 1024 --max-num-seqs 24 "
        "--model ",
        name, " --port ", engine_ports_[engine], " ", kFormats[engine].flags);
  } else if (engine == kWithoutRequests) {
    command = absl::StrCat(
        "view_engine --random 3600 --page 33792 --most 600 --watermark 100 "
        "--fill-first --seed ",
        started_);
  } else {
    command = absl::StrCat(
        "stock_engine --hold --kv 8MiB --layers 1 --weights 1MiB "
        "--workspace 1MiB --seed ",
        started_);
    more["FINESERVE_KV_SIZES"] = "8MiB";
    verified_ = 0;
  }
  engines_[engine] = site_.StartEngine(name, process::Words(command), more);
  if (engines_[engine]->Logs("ready")) return true;
  site_.Fail(Fault::kEnded,
             "an engine does not start: " + engines_[engine]->About());
  return false;
}

bool FleetSite::StartProxy() {
  auto proxy =
      site_.LaunchProgram({"fineserve-proxy", "--fleet", fleet_path()});
  constexpr char kBefore[] = "listening on 127.0.0.1:";
  const bool listens = proxy->Logs(", admin ");
  const std::string printed = proxy->Stderr();
  const size_t at = printed.find(kBefore);
  if (!listens || at == std::string::npos) {
    site_.Fail(Fault::kEnded, "a proxy does not start: " + proxy->About());
    return false;
  }
  ports_.push_back(
      static_cast<uint16_t>(atoi(printed.c_str() + at + strlen(kBefore))));
  proxies_.push_back(std::move(proxy));
  return true;
}

bool FleetSite::EnginesAreWell() {
  bool well = true;
  for (const auto& engine : engines_) {
    if (engine->alive()) continue;
    well = false;
    const bool foreign = engine->HasLogged("error ");
    site_.Fail(foreign ? Fault::kForeignBytes : Fault::kEnded,
               "an engine ended by itself: " + engine->About());
  }
  if (!well) return false;
  Process& holder = *engines_[kHolder];
  holder.Tell("verify");
  ++verified_;
  well = process::Eventually([&] {
    const std::string printed = holder.Stderr();
    return CountOf("ok verified", printed) == static_cast<size_t>(verified_) ||
           CountOf("error", printed) > 0;
  });
  if (well && !holder.HasLogged("error")) return true;
  site_.Fail(Fault::kForeignBytes,
             "an engine does not have its data: " + holder.About());
  return false;
}

bool FleetSite::AwaitNoRequests() {
  std::string said;
  const bool none = process::Eventually([&] {
    said = site_.Fsctl({"requests", "--json"}).out;
    return stage::JsonAt(said, "/total") == "0";
  });
  if (!none) {
    site_.Fail(Fault::kNotAtRest,
               "requests stay in the books: " + said + site_.daemon().About());
  }
  return none;
}

bool FleetSite::EndEngines() {
  for (auto& engine : engines_) engine.reset();
  return site_.AwaitEmpty();
}

}  // namespace fineserve::bench
