#include "tools/fsctl/support/gathering.h"

#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/contract/abi/version.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/fleet/config/fleet.h"
#include "tools/fsctl/apply/fleet_processes.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/processes/child.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/processes/install_paths.h"
#include "tools/fsctl/requests/proxy_stream.h"
#include "tools/fsctl/support/redactor.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

constexpr char kUsualConfig[] = "/etc/fineserve/fineserve.toml";
constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr size_t kMostLogLines = 500;
constexpr size_t kMostExplained = 32;  // processes

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    paths.push_back(entry.path());
  }
  return paths;
}

std::string NameOf(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Runs a program and returns all of its output, however long, and how it ended.
std::string OutputOf(const std::vector<std::string>& command,
                     const std::string& scratch) {
  const std::string path = scratch + "/output";
  const ChildResult result = RunProgram({command, {}, "", path}, kPatience);
  std::string output = ReadFile(path);
  unlink(path.c_str());
  if (result.timed_out) {
    absl::StrAppend(&output, "[did not end within ",
                    absl::ToInt64Seconds(kPatience), " s]\n");
  } else if (!result.succeeded()) {
    absl::StrAppend(&output, "[exit code ", result.exit_code, "]\n");
  }
  return output;
}

std::string ThisProgram() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

// Returns the environment variables that change what FineServe does.
std::string Environment() {
  std::string text;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    for (const char* const ours :
         {"FINESERVE_", "CUDA_", "NVIDIA_", "EMUCUDA_", "LD_PRELOAD",
          "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR", "VLLM_"}) {
      if (absl::StartsWith(*variable, ours)) {
        absl::StrAppend(&text, *variable, "\n");
      }
    }
  }
  return text;
}

std::string Versions(const std::string& scratch) {
  utsname system = {};
  uname(&system);
  return absl::StrCat(
      "fsctl " FINESERVE_VERSION ", ABI ", abi::kAbiVersion, "\n",
      OutputOf({FindDaemonProgram(), "--version"}, scratch), system.sysname,
      " ", system.release, " ", system.version, " ", system.machine, "\n\n",
      ReadFile("/etc/os-release"), "\n",
      ReadFile("/proc/driver/nvidia/version"), "\n", Environment());
}

void AddPool(const Pool& pool, const std::string& scratch, Gathered* to) {
  const std::string uuid = GpuName(pool.table.gpu_uuid);
  const auto ask = [&](std::vector<std::string> words) {
    words.insert(words.begin(), ThisProgram());
    words.insert(words.end(), {"--gpu", uuid, "--color", "never"});
    return OutputOf(words, scratch);
  };
  auto& files = to->files;
  files[uuid + "/slabs.txt"] = ask({"slabs", "--all"});
  files[uuid + "/slabs.json"] = ask({"slabs", "--json"});
  files[uuid + "/engines.json"] = ask({"engines", "--json"});
  files[uuid + "/top.txt"] = ask({"top", "--once"});
  files[uuid + "/models.json"] = ask({"models", "--json"});
  files[uuid + "/requests.json"] = ask({"requests", "--json"});
  files[uuid + "/plan.txt"] = ask({"plan"});
  size_t explained = 0;
  for (const abi::EngineSnapshot& engine : pool.table.engines) {
    for (const uint32_t pid : engine.member_pids) {
      if (++explained > kMostExplained) return;
      files[absl::StrCat(uuid, "/explain-", pid, ".txt")] =
          ask({"explain", absl::StrCat(pid), "--last", "200"});
      files[absl::StrCat(uuid, "/doctor-", pid, ".txt")] =
          ask({"doctor", absl::StrCat(pid)});
      files[absl::StrCat(uuid, "/stack-", pid, ".txt")] =
          ask({"stack", absl::StrCat(pid)});
    }
  }
}

void AddPools(const Globals& globals, const std::string& scratch,
              Gathered* to) {
  std::vector<absl::Status> troubles;
  for (const Pool& pool : AllPools(&troubles)) {
    const bool wanted = globals.gpu.empty() || Pick({pool}, globals.gpu).ok();
    if (wanted) AddPool(pool, scratch, to);
  }
  for (const absl::Status& trouble : troubles) {
    absl::StrAppend(&to->files["troubles.txt"], trouble.ToString(), "\n");
  }
}

// Returns the fleets that fsctl up runs or has run (EngineRegister).
std::set<std::string> FleetsOfUp() {
  std::set<std::string> fleets;
  for (const std::string& folder : FilesIn(finding::RuntimeFolder())) {
    if (!absl::StartsWith(NameOf(folder), "up-")) continue;
    const std::vector<std::string> lines =
        absl::StrSplit(ReadFile(folder + "/lock"), '\n');
    if (lines.size() > 1) fleets.insert(lines[1]);
  }
  return fleets;
}

void AddSecrets(const std::string& keys_path, Gathered* to) {
  const std::string text = ReadFile(keys_path);
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    // The key is followed by its terms. The name of a variable is not secret;
    // its value is in no gathered file.
    const absl::string_view terms = absl::StripAsciiWhitespace(line);
    const absl::string_view key = terms.substr(0, terms.find_first_of(" \t"));
    if (key.empty() || key[0] == '#' || key[0] == '$') continue;
    to->secrets.emplace_back(key);
  }
}

void AddFleet(const std::string& path, Gathered* to) {
  std::string name = "fleet-" + NameOf(path);
  while (to->files.count(name) != 0) name = "another-" + name;
  to->files[name] = ReadFile(path);
  const absl::StatusOr<config::Fleet> fleet = config::ReadFleet(path);
  if (fleet.ok()) {
    AddSecrets(fleet->proxy.keys_path, to);
    for (const config::OutsideModel& outside : fleet->outside) {
      AddSecrets(outside.key_path, to);
    }
  } else {
    absl::StrAppend(&to->files["troubles.txt"], fleet.status().ToString(),
                    "\n");
  }
}

// Adds figures and requests of the proxies that run on this machine.
void AddProxies(Gathered* to) {
  for (const std::string& admin : AdminsOfProxies()) {
    const auto ask = [&](const std::string& path) {
      const auto proxy = ProxyAt(admin);
      if (!proxy.ok()) return proxy.status().ToString();
      const auto page = AskProxy(*proxy, path);
      return page.ok() ? page->body : page.status().ToString();
    };
    const std::string folder = absl::StrCat("proxy-", admin, "/");
    to->files[folder + "metrics.txt"] = ask("/metrics");
    to->files[folder + "recent-requests.json"] = ask("/requests");
  }
}

void AddConfiguration(const SupportOptions& options, Gathered* to) {
  const std::string config =
      options.config_path.empty() ? kUsualConfig : options.config_path;
  if (access(config.c_str(), R_OK) == 0) {
    to->files["fineserved.toml"] = ReadFile(config);
  }
  std::set<std::string> fleets = FleetsOfUp();
  if (!options.fleet_path.empty()) fleets.insert(options.fleet_path);
  for (const std::string& fleet : fleets) AddFleet(fleet, to);
}

void AddLogs(const SupportOptions& options, const std::string& scratch,
             Gathered* to) {
  std::set<std::string> folders = {finding::RuntimeFolder()};
  if (!options.log_folder.empty()) folders.insert(options.log_folder);
  for (const std::string& folder : folders) {
    for (const std::string& path : FilesIn(folder)) {
      if (!absl::EndsWith(path, ".log")) continue;
      std::string name = "logs/" + NameOf(path);
      while (to->files.count(name) != 0) name += ".another";
      to->files[name] = LogTail(ReadFile(path), kMostLogLines);
    }
  }
  if (!IsProgram("journalctl")) return;
  to->files["logs/journal.txt"] = LogTail(
      OutputOf({"journalctl", "-u", "fineserved@*", "-u", "fineserve-proxy",
                "-n", absl::StrCat(kMostLogLines), "--no-pager"},
               scratch),
      kMostLogLines);
}

}  // namespace

Gathered Gather(const Globals& globals, const SupportOptions& options,
                const std::string& scratch) {
  Gathered gathered;
  gathered.files["versions.txt"] = Versions(scratch);
  for (const std::string look : {"status", "doctor"}) {
    gathered.files[look + ".txt"] =
        OutputOf({ThisProgram(), look, "--color", "never"}, scratch);
  }
  AddPools(globals, scratch, &gathered);
  AddProxies(&gathered);
  AddConfiguration(options, &gathered);
  AddLogs(options, scratch, &gathered);
  return gathered;
}

}  // namespace fineserve::fsctl
