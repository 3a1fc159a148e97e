#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/errno_status.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/processes/child.h"
#include "tools/fsctl/support/gathering.h"
#include "tools/fsctl/support/redactor.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"

namespace fineserve::fsctl {
namespace {

// A private folder that is deleted with this object.
class Scratch {
 public:
  Scratch() {
    const char* const chosen = getenv("TMPDIR");
    std::string path = absl::StrCat(chosen != nullptr ? chosen : "/tmp",
                                    "/fineserve-support-XXXXXX");
    if (mkdtemp(path.data()) != nullptr) path_ = path;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }  // empty: there is none

 private:
  std::string path_;
};

bool WriteRedacted(const Gathered& gathered, const std::string& folder) {
  const Redactor redactor(gathered.secrets);
  for (const auto& [name, text] : gathered.files) {
    const std::filesystem::path path = folder + "/" + name;
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    std::ofstream file(path);
    file << redactor.Redacted(text);
    if (!file.flush()) return false;
  }
  return true;
}

absl::Status Pack(const std::string& scratch, const std::string& name,
                  const std::string& output) {
  const ChildResult tar = RunProgram({{"tar", "--create", "--gzip", "--file",
                                       output, "--directory", scratch, name},
                                      {},
                                      "",
                                      ""},
                                     absl::Minutes(1));
  if (tar.succeeded()) return absl::OkStatus();
  unlink(output.c_str());
  return absl::UnavailableError(
      tar.exit_code == kExitNotFound
          ? "tar is not installed"
          : absl::StrCat("tar cannot write ", output, ": ", tar.output));
}

int Tell(const Globals& globals, const Gathered& gathered,
         const std::string& output) {
  if (globals.json) {
    nlohmann::ordered_json json = {{"file", output},
                                   {"holds", nlohmann::json::array()}};
    for (const auto& [name, text] : gathered.files) {
      json["holds"].push_back(name);
    }
    return Print(JsonText(json));
  }
  std::string text = absl::StrCat("wrote ", output, ", which holds\n");
  for (const auto& file : gathered.files) {
    absl::StrAppend(&text, "  ", file.first, "\n");
  }
  absl::StrAppend(&text,
                  "What looks like a key was taken out, and of logs what could "
                  "be a client's text. Look through it before you send it.\n");
  return Print(text);
}

int RunSupport(const Globals& globals, const SupportOptions& options) {
  const std::string name = absl::FormatTime("fineserve-support-%Y%m%d-%H%M%S",
                                            absl::Now(), absl::UTCTimeZone());
  const std::string output =
      options.output.empty() ? name + ".tar.gz" : options.output;
  umask(0077);
  // Creates the file before the work starts; tar writes into it.
  if (!driver::Descriptor(
           open(output.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600))
           .valid()) {
    if (errno == EEXIST) {
      return Fail(kExitUsage,
                  output + " exists already; give another --output");
    }
    return Fail(kExitBadAnswer, base::Cannot("write", output));
  }
  const Scratch scratch;
  if (scratch.path().empty()) {
    const int error = errno;
    unlink(output.c_str());
    return Fail(
        kExitBadAnswer,
        absl::StrCat("cannot make a folder in $TMPDIR: ", strerror(error)));
  }
  const Gathered gathered = Gather(globals, options, scratch.path());
  if (!WriteRedacted(gathered, scratch.path() + "/" + name)) {
    const int error = errno;
    unlink(output.c_str());
    return Fail(kExitBadAnswer, absl::StrCat("cannot write to ", scratch.path(),
                                             ": ", strerror(error)));
  }
  const absl::Status packed = Pack(scratch.path(), name, output);
  if (!packed.ok()) return Fail(kExitBadAnswer, packed);
  return Tell(globals, gathered, output);
}

}  // namespace

void AddSupport(Commands& c) {
  const auto [command, o] = c.Add(
      "support", "Write an archive of what a bug report needs",
      "  fsctl support\n"
      "  fsctl support --fleet fleet.toml --logs /var/log/fineserve\n"
      "  fsctl support --output report.tar.gz\n"
      "It holds versions, the configuration, doctor's report, the slab "
      "tables,\n"
      "what shims decided, the figures of proxies, and the ends of logs; no "
      "keys and no prompts.\n",
      RunSupport);
  command->add_option("--fleet", o->fleet_path,
                      "Fleet file (default: those of fsctl up)");
  command->add_option("--config", o->config_path,
                      "fineserved's file (default: "
                      "/etc/fineserve/fineserve.toml)");
  command->add_option("--logs", o->log_folder,
                      "Folder of the engines' output, if fsctl up was given "
                      "one");
  command->add_option("--output", o->output,
                      "File to write (default: fineserve-support-TIME.tar.gz)");
}

}  // namespace fineserve::fsctl
