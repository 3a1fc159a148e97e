// `fsctl top`: the loop that observes and draws.

#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/message.h"
#include "tools/fsctl/daemons/ask_daemons.h"
#include "tools/fsctl/daemons/observation.h"
#include "tools/fsctl/slabs/top_frame.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/globals.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/signal_watch.h"
#include "tools/fsctl/terminal/terminal_screen.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

struct TopOptions {
  double interval_s = 1;
  bool once = false;  // print one frame as text and end
};

constexpr double kLeastInterval = 0.1;
constexpr double kMostInterval = 3600;
// A working daemon answers at once. Keys are not handled during the wait.
constexpr std::chrono::milliseconds kModelsPatience(500);
// If a terminal has fewer rows, no blank line is shown.
constexpr size_t kLeastRowsWithBlank = 16;

uint64_t Nanoseconds(double seconds) {
  return static_cast<uint64_t>(seconds * 1e9);
}

void SleepFor(double seconds) {
  const uint64_t until = Now().monotonic_ns + Nanoseconds(seconds);
  for (uint64_t now = Now().monotonic_ns; now < until;
       now = Now().monotonic_ns) {
    poll(nullptr, 0, static_cast<int>((until - now) / 1'000'000) + 1);
  }
}

// Keeps watching the GPU that was chosen first, since another daemon may start
// later.
std::string Pinned(const std::string& gpu, const Observation& seen) {
  return finding::IsSocketPath(gpu) ? gpu : GpuName(seen.pool.table.gpu_uuid);
}

// Returns the models as the daemon of this GPU reports them; none if it has no
// fleet or does not answer.
wire::ModelsT ModelsOf(const std::string& gpu) {
  absl::StatusOr<std::vector<FleetDaemon>> daemons = FindFleetDaemons(gpu);
  if (!daemons.ok()) return {};
  auto answers = AskDaemons(*daemons, wire::Encode(0, 0, wire::ModelsQueryT()),
                            kModelsPatience);
  for (auto& answer : answers) {
    wire::ModelsT* models = answer.ok() ? answer->body.AsModels() : nullptr;
    if (models != nullptr) return std::move(*models);
  }
  return {};
}

// Data that top shows: the latest observation and the changes since the one
// before.
class Watched {
 public:
  Watched(const std::string& gpu, Observation first)
      : gpu_(Pinned(gpu, first)), now_(std::move(first)) {
    churn_ = ChurnBetween(now_, now_);
    models_ = ModelsOf(gpu_);
  }

  // If the pool cannot be read, keeps the last observation and says why.
  void Refresh() {
    absl::StatusOr<Observation> seen = Observe(gpu_);
    if (!seen.ok()) {
      trouble_ = absl::StrCat("these figures are out of date: ",
                              seen.status().message());
      return;
    }
    trouble_.clear();
    churn_ = ChurnBetween(now_, *seen);
    now_ = *std::move(seen);
    models_ = ModelsOf(gpu_);
  }

  std::vector<Line> Frame(TopOrder order, double interval_s,
                          ScreenSize size) const {
    // Below the engines.
    const size_t own = size.rows < kLeastRowsWithBlank ? 1 : 2;
    size.rows -= std::min(size.rows, own);
    std::vector<Line> lines =
        TopFrame(now_, churn_, order, trouble_, size, models_);
    if (own == 2) lines.push_back({});
    lines.push_back({{absl::StrCat("q quit   s sort (",
                                   kTopOrders[static_cast<size_t>(order)],
                                   ")   ? help   every ", interval_s, " s"),
                      Color::kDim}});
    return lines;
  }

 private:
  const std::string gpu_;
  Observation now_;
  Churn churn_;
  wire::ModelsT models_;
  std::string trouble_;
};

// Runs until the user quits or a signal arrives. Returns that signal, or 0.
int Watch(Watched* pool, TerminalScreen* screen, SignalWatch* signals,
          double interval_s) {
  const uint64_t interval_ns = Nanoseconds(interval_s);
  uint64_t due_ns = Now().monotonic_ns + interval_ns;
  TopOrder order = TopOrder::kSlabs;
  bool helps = false;
  for (;;) {
    screen->Paint(helps ? TopHelp()
                        : pool->Frame(order, interval_s, screen->size()));
    const uint64_t now_ns = Now().monotonic_ns;
    const auto input =
        signals->WaitFor(STDIN_FILENO, due_ns - std::min(due_ns, now_ns));
    if (signals->ending() != 0) return signals->ending();
    if (signals->TakeResize()) screen->Resize();
    if (input == SignalWatch::Input::kEnded) return 0;
    const char key = input == SignalWatch::Input::kReady ? screen->Key() : '\0';
    if (key == 'q') return 0;
    if (key == 's' && !helps) order = Next(order);
    if (key != '\0') helps = key == '?' && !helps;
    if (Now().monotonic_ns < due_ns) continue;
    pool->Refresh();
    due_ns = Now().monotonic_ns + interval_ns;
  }
}

int RunOnScreen(const Globals& globals, const TopOptions& options,
                Observation first) {
  int signal = 0;
  {
    SignalWatch signals;
    absl::StatusOr<TerminalScreen> screen = TerminalScreen::Open(globals.color);
    if (!screen.ok()) return Fail(kExitUsage, screen.status());
    Watched pool(globals.gpu, std::move(first));
    signal = Watch(&pool, &*screen, &signals, options.interval_s);
  }
  // Dies by the signal, as its sender expects. Ctrl-C counts as a normal way to
  // quit.
  if (signal != 0 && signal != SIGINT) raise(signal);
  return kExitOk;
}

int RunOnce(const Globals& globals, const TopOptions& options,
            Observation first) {
  Churn churn = TotalChurn(first);
  Observation now = std::move(first);
  if (options.interval_s > 0) {
    SleepFor(options.interval_s);
    absl::StatusOr<Observation> second = Observe(Pinned(globals.gpu, now));
    if (!second.ok()) return FailWithoutPool(second.status());
    churn = ChurnBetween(now, *second);
    now = *std::move(second);
  }
  const wire::ModelsT models = ModelsOf(Pinned(globals.gpu, now));
  return Print(globals.json ? TopJson(now, churn, TopOrder::kSlabs, models)
                            : Render(TopFrame(now, churn, TopOrder::kSlabs, "",
                                              {}, models),
                                     globals.color));
}

// Says what is wrong with the options; empty if nothing is wrong.
std::string UsageTrouble(const Globals& globals, const TopOptions& options) {
  if (globals.json && !options.once) return "--json needs --once";
  if (options.once && options.interval_s == 0) return "";
  if (options.interval_s >= kLeastInterval &&
      options.interval_s <= kMostInterval) {
    return "";
  }
  return absl::StrCat("--interval takes ", kLeastInterval, " to ",
                      kMostInterval, " seconds, or 0 with --once");
}

int RunTop(const Globals& globals, const TopOptions& options) {
  const std::string trouble = UsageTrouble(globals, options);
  if (!trouble.empty()) {
    return Fail(kExitUsage, absl::StrCat(trouble, "; see fsctl top --help"));
  }
  absl::StatusOr<Observation> first = Observe(globals.gpu);
  if (!first.ok()) return FailWithoutPool(first.status());
  return options.once ? RunOnce(globals, options, *std::move(first))
                      : RunOnScreen(globals, options, *std::move(first));
}

}  // namespace

void AddTop(Commands& c) {
  const auto [command, o] =
      c.Add("top", "Watch the pool, its engines and models as they change",
            "  fsctl top                       q quits, s changes the order, ? "
            "helps\n"
            "  fsctl top --interval 0.5\n"
            "  fsctl top --once                print one frame as text\n"
            "  fsctl top --once --interval 0   print totals instead of rates\n"
            "  fsctl top --once --json | jq '.engines[].leased'\n",
            RunTop);
  command->add_option("--interval", o->interval_s,
                      "Seconds between updates (default: 1)");
  command->add_flag("--once", o->once, "Print one frame as text and exit");
}

}  // namespace fineserve::fsctl
