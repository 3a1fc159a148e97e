#include "tools/fsctl/run/run_plan.h"

#include <stdlib.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/messages.h"

namespace fineserve::fsctl {

namespace {

// The loader takes the first match, so ours comes first.
std::string Prepend(const std::string& ours, const char* variable) {
  const char* now = getenv(variable);
  return now != nullptr && now[0] != '\0' ? absl::StrCat(ours, ":", now) : ours;
}

bool IsSet(const char* variable) {
  const char* value = getenv(variable);
  return value != nullptr && value[0] != '\0';
}

std::string FileName(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Engines whose plugins are beside the shim, by the name of their program,
// which is also the name of their Python package.
constexpr absl::string_view kWithPlugin[] = {"vllm", "sglang"};

bool PackageHasPlugin(absl::string_view package) {
  return std::find(std::begin(kWithPlugin), std::end(kWithPlugin), package) !=
         std::end(kWithPlugin);
}

bool ProgramHasPlugin(const std::string& path) {
  return PackageHasPlugin(FileName(path));
}

bool ModuleHasPlugin(absl::string_view module) {
  return PackageHasPlugin(module.substr(0, module.find('.')));
}

// True if a Python interpreter with these arguments runs a plugin's engine. The
// interpreter's short options -c, -m, -W and -X take a value, in the same word
// or the next; the others take none.
bool PythonRunsPlugin(const std::vector<std::string>& command) {
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (word[0] != '-' || word == "-") return ProgramHasPlugin(word);
    if (absl::StartsWith(word, "--")) continue;
    const size_t at = word.find_first_of("cmWX");
    if (at == std::string::npos) continue;
    const bool in_next = at + 1 == word.size();
    if (word[at] == 'c') return false;
    if (word[at] == 'm' && !in_next) {
      return ModuleHasPlugin(word.substr(at + 1));
    }
    if (word[at] == 'm') {
      return i + 1 < command.size() && ModuleHasPlugin(command[i + 1]);
    }
    if (in_next) ++i;
  }
  return false;
}

}  // namespace

bool HasPlugin(const std::vector<std::string>& command) {
  if (command.empty()) return false;
  if (ProgramHasPlugin(command[0])) return true;
  return absl::StartsWith(FileName(command[0]), "python") &&
         PythonRunsPlugin(command);
}

std::string ChooseView(const std::vector<std::string>& command,
                       const std::vector<uint64_t>& kv_sizes) {
  for (const char* variable :
       {"FINESERVE_VIEW", "FINESERVE_DISABLE", "FINESERVE_KV_SIZES"}) {
    if (IsSet(variable)) return "";
  }
  return kv_sizes.empty() && HasPlugin(command) ? "required" : "";
}

absl::StatusOr<std::vector<uint64_t>> ParseKvSizes(
    const std::vector<std::string>& texts) {
  std::vector<uint64_t> sizes;
  for (const std::string& text : texts) {
    uint64_t bytes = 0;
    if (!abi::ParseByteSize(text.c_str(), &bytes) || bytes == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--kv-size ", text, " is not a size; write it like 64MiB"));
    }
    sizes.push_back(bytes);
  }
  if (sizes.size() > abi::kDeclaredSizeCapacity) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-size may be given ", abi::kDeclaredSizeCapacity,
                     " times at most, not ", sizes.size()));
  }
  return sizes;
}

absl::Status CheckEngineName(const std::string& name) {
  const bool printable = std::all_of(
      name.begin(), name.end(), [](char c) { return c >= 0x20 && c <= 0x7e; });
  if (printable && name.size() < abi::kNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--name takes at most ", abi::kNameBytes - 1,
                   " printable ASCII characters"));
}

std::string DefaultEngineName(const std::string& command, int pid) {
  const std::string name = absl::StrCat(FileName(command), "-", pid);
  const size_t most = abi::kNameBytes - 1;
  return name.size() <= most ? name : name.substr(name.size() - most);
}

Environment PlanEnvironment(const RunPlan& plan) {
  Environment environment = {{"LD_PRELOAD", Prepend(plan.shim, "LD_PRELOAD")},
                             {"FINESERVE_ENGINE", plan.engine}};
  if (!plan.kv_sizes.empty()) {
    environment.emplace_back("FINESERVE_KV_SIZES",
                             absl::StrJoin(plan.kv_sizes, ","));
  }
  if (!plan.library_folder.empty()) {
    environment.emplace_back("LD_LIBRARY_PATH",
                             Prepend(plan.library_folder, "LD_LIBRARY_PATH"));
  }
  if (!plan.runtime_folder.empty()) {
    environment.emplace_back("FINESERVE_RUNTIME_DIR", plan.runtime_folder);
  }
  if (!plan.view.empty()) {
    environment.emplace_back("FINESERVE_VIEW", plan.view);
  }
  if (plan.may_evict) environment.emplace_back("FINESERVE_EVICT", "auto");
  environment.insert(environment.end(), plan.gpu.begin(), plan.gpu.end());
  return environment;
}

}  // namespace fineserve::fsctl
