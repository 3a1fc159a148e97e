
#include <fcntl.h>
#include <string.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/version.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/finding.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/upgrade/handover.h"
#include "tools/fsctl/upgrade/program_file.h"
#include "tools/fsctl/upgrade/release.h"

namespace fineserve::fsctl {
namespace {

using Severity = Finding::Severity;

// Beside those of exit_code.h.
constexpr int kExitWentBack = 4;  // the former release serves again
constexpr int kExitNoneServes = 5;

struct UpgradeOptions {
  bool check = false;  // changes nothing
  std::string binary;  // empty: what is installed now
  double timeout_s = 30;
};

constexpr char kFailedSuffix[] = ".failed";
constexpr char kFormerSuffix[] = ".former";
// The way back gets at least this time, since no daemon would be left without
// it.
constexpr absl::Duration kLeastForTheWayBack = absl::Seconds(30);

// One run of the command. Each step reports its result and returns whether the
// next step may follow.
class Upgrade {
 public:
  Upgrade(const UpgradeOptions& options, ServingDaemon daemon, ServedPool pool)
      : options_(options),
        daemon_(std::move(daemon)),
        pool_(std::move(pool)),
        path_(options.binary.empty()
                  ? daemon_.program
                  : std::filesystem::absolute(options.binary).string()) {}

  void Run();
  int Report(const Globals& globals) const;

 private:
  bool CheckProgram(int table);
  bool CheckTakeover(int table);
  bool Install();
  void Take(Handover handover);
  void GoBack();
  void Conclude(int code, const char* outcome, const std::string& words) {
    code_ = code;
    outcome_ = outcome;
    words_ = words;
  }
  void Add(Severity result, const char* name, absl::string_view found,
           absl::string_view fix = "") {
    checks_.push_back({result, name, std::string(found), std::string(fix)});
  }
  absl::Duration timeout() const { return absl::Seconds(options_.timeout_s); }

  const UpgradeOptions& options_;
  const ServingDaemon daemon_;
  const ServedPool pool_;
  const std::string path_;  // of the release to come
  Findings checks_;
  Release from_, to_;
  pid_t serving_ = 0;
  double silent_ms_ = 0;
  int code_ = kExitBadAnswer;
  const char* outcome_ = "refused";
  std::string words_;
};

bool Upgrade::CheckProgram(int table) {
  const absl::StatusOr<Release> from = AskRelease(daemon_);
  if (from.ok()) from_ = *from;
  Add(Severity::kOk, "daemon",
      absl::StrCat("pid ", daemon_.pid, ", ", ReleaseName(from_),
                   ", its pool is kept by ", KeeperName(daemon_)));
  const absl::StatusOr<Release> to = AskRelease(path_);
  if (!to.ok()) {
    Add(Severity::kWrong, "program", to.status().message());
    return false;
  }
  to_ = *to;
  if (to_.abi != abi::kAbiVersion) {
    Add(Severity::kWrong, "program",
        absl::StrCat(path_, " is ", ReleaseName(to_),
                     ", but the pool and its engines speak ABI ",
                     abi::kAbiVersion),
        "stop the engines, upgrade, and start them again: fsctl drain --all, "
        "then restart the daemon and the engines");
    return false;
  }
  Add(Severity::kOk, "program", absl::StrCat(path_, ": ", ReleaseName(to_)));
  return CheckTakeover(table);
}

bool Upgrade::CheckTakeover(int table) {
  const absl::Status s = AskTakeover(path_, daemon_, table);
  if (absl::IsUnimplemented(s)) {
    Add(Severity::kSkipped, "takeover", s.message());
    return true;
  }
  if (!s.ok()) {
    Add(Severity::kWrong, "takeover", s.message(),
        "mend what it says; the daemon's flags, environment and configuration "
        "are those of the one that serves");
    return false;
  }
  Add(Severity::kOk, "takeover",
      "it can go on with this pool, on this GPU, with this configuration");
  return true;
}

bool Upgrade::Install() {
  if (path_ == daemon_.program) return true;
  const driver::Descriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  const absl::Status s =
      PutInPlace(file.get(), daemon_.program, daemon_.program + kFormerSuffix);
  if (!s.ok()) {
    Add(Severity::kWrong, "install", s.message());
    return false;
  }
  Add(Severity::kOk, "install",
      absl::StrCat(daemon_.program, "; the former one is ", daemon_.program,
                   kFormerSuffix));
  return true;
}

void Upgrade::Take(Handover handover) {
  serving_ = handover.daemon;
  silent_ms_ += handover.silent_ms;
  std::move(handover.checks.begin(), handover.checks.end(),
            std::back_inserter(checks_));
}

void Upgrade::Run() {
  const auto link = abi::ConnectObserver(pool_.socket);
  const absl::Status trust = CheckTrust(daemon_);
  const absl::Status answers =
      link.ok() ? CheckAnswers(daemon_, link->socket.get()) : link.status();
  if (!answers.ok()) {
    Add(Severity::kWrong, "daemon", answers.message());
  } else if (!trust.ok()) {
    Add(Severity::kWrong, "daemon",
        absl::StrCat("root does not upgrade it: ", trust.message()),
        "run fsctl upgrade as the daemon's user, or make the program and the "
        "folders above it root's alone");
  } else if (IsSameFile(daemon_.executable.get(), path_)) {
    from_ = to_ = AskRelease(daemon_).value_or(Release());
    serving_ = daemon_.pid;
    return Conclude(
        kExitOk, "current",
        absl::StrCat("pid ", daemon_.pid, " runs ", path_,
                     " already; install another release there, or name one "
                     "with --binary"));
  } else if (CheckProgram(link->table.get())) {
    serving_ = daemon_.pid;
    if (options_.check) {
      return Conclude(kExitOk, "checked",
                      "the upgrade can be made; nothing was changed");
    }
    if (Install()) {
      Handover handover = HandOver(daemon_, pool_, false, timeout());
      const bool fine = !AnyWrong(handover.checks);
      const bool same_pool = handover.same_pool;
      Take(std::move(handover));
      if (fine) {
        return Conclude(kExitOk, "upgraded",
                        absl::StrCat("upgraded from ", ReleaseName(from_),
                                     " to ", ReleaseName(to_)));
      }
      if (same_pool) return GoBack();
      return Conclude(kExitNoneServes, "lost",
                      "the daemon began with a new pool; restart the engines "
                      "(fsctl doctor names them)");
    }
  }
  Conclude(kExitBadAnswer, "refused", "nothing was changed");
}

// Puts the former program back at the path, since the keeper starts the program
// there, now and after the next crash.
void Upgrade::GoBack() {
  const absl::Status s = PutInPlace(daemon_.executable.get(), daemon_.program,
                                    daemon_.program + kFailedSuffix);
  if (!s.ok()) {
    Add(Severity::kWrong, "go back", s.message());
  } else {
    Add(Severity::kOk, "go back",
        absl::StrCat(ReleaseName(from_), " is ", daemon_.program,
                     " again; what failed is ", daemon_.program,
                     kFailedSuffix));
    ServedPool pool = pool_;
    if (serving_ != 0) {
      pool.table.daemon_pid = static_cast<uint32_t>(serving_);
    }
    Handover back = HandOver(daemon_, pool, /*is_way_back=*/true,
                             std::max(timeout(), kLeastForTheWayBack));
    const bool fine = !AnyWrong(back.checks) && back.same_pool;
    Take(std::move(back));
    if (fine) {
      return Conclude(kExitWentBack, "went back",
                      absl::StrCat("went back to ", ReleaseName(from_),
                                   "; its engines serve on"));
    }
  }
  Conclude(kExitNoneServes, "failed",
           absl::StrCat("neither release serves as it should; the engines go "
                        "on with what they hold; see the log of ",
                        KeeperName(daemon_)));
}

int Upgrade::Report(const Globals& globals) const {
  if (!globals.json) {
    Print(checks_.empty() ? "" : ChecksText(checks_, globals.color) + "\n");
    Print(words_ + "\n");
    return code_;
  }
  const nlohmann::ordered_json out = {{"ok", code_ == kExitOk},
                                      {"outcome", outcome_},
                                      {"from", ReleaseName(from_)},
                                      {"to", ReleaseName(to_)},
                                      {"daemon_pid", serving_},
                                      {"silent_ms", silent_ms_},
                                      {"words", words_},
                                      {"checks", ChecksJson(checks_)}};
  Print(JsonText(out));
  return code_;
}

// Returns the chosen pool once its daemon answers, since a busy daemon may be
// late. If the daemon is dead or does not answer within the timeout, returns
// the pool as it is. Each look has a separate limit.
absl::StatusOr<Pool> ChooseServedPool(const std::string& gpu,
                                      absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  for (;;) {
    absl::StatusOr<Pool> pool = ChoosePool(gpu);
    const bool is_late =
        pool.ok() && !pool->daemon_answers() && pool->daemon_exists;
    if (!is_late || absl::Now() >= end) return pool;
  }
}

int RunUpgrade(const Globals& globals, const UpgradeOptions& options) {
  if (options.timeout_s < 1 || options.timeout_s > 600) {
    return Fail(kExitUsage,
                "--timeout takes 1 to 600 seconds; see fsctl upgrade --help");
  }
  absl::StatusOr<Pool> pool =
      ChooseServedPool(globals.gpu, absl::Seconds(options.timeout_s));
  if (!pool.ok()) return FailWithoutPool(pool.status());
  if (!pool->daemon_answers()) {
    return Fail(kExitNoDaemon, NeedsDaemon(*pool));
  }
  absl::StatusOr<ServingDaemon> daemon =
      FindServingDaemon(static_cast<pid_t>(pool->table.daemon_pid));
  if (!daemon.ok()) return Fail(kExitBadAnswer, daemon.status());
  ServedPool served{pool->socket, pool->table, LinksOf(pool->table)};
  Upgrade upgrade(options, *std::move(daemon), std::move(served));
  upgrade.Run();
  return upgrade.Report(globals);
}

}  // namespace

void AddUpgrade(Commands& c) {
  const auto [command, o] = c.Add(
      "upgrade", "Replace fineserved by another release while engines serve",
      "  fsctl upgrade --check           would it work? Changes nothing\n"
      "  fsctl upgrade                   starts what is installed now\n"
      "  fsctl upgrade --binary ./fineserved\n"
      "Engines serve on. The pool must be kept by systemd or by fineserved\n"
      "--supervise. If the new release does not serve this pool as the former\n"
      "one did, the former one is started again (exit code 4; 5 if neither\n"
      "serves).\n",
      RunUpgrade);
  command->add_flag("--check", o->check,
                    "Only say whether the upgrade can be made");
  command->add_option("--binary", o->binary,
                      "fineserved to install in place of the one that serves "
                      "(default: what is in its place by now)");
  command->add_option("--timeout", o->timeout_s,
                      "Seconds that the new daemon may take before the former "
                      "one is started again (default: 30)");
}

}  // namespace fineserve::fsctl
