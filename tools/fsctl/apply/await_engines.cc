#include "tools/fsctl/apply/await_engines.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "daemon/apply/ask_door.h"
#include "daemon/clock/steady_now.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(200);
constexpr absl::Duration kWatchPatience = absl::Seconds(10);

}  // namespace

int AwaitEngines(const std::string& door, AwaitedEngines* engines,
                 double timeout_s, bool quiet) {
  const absl::Time deadline = SteadyNow() + absl::Seconds(timeout_s);
  while (!engines->done()) {
    const absl::StatusOr<apply::Answer> up =
        apply::AskDoor(door, apply::Question(), kWatchPatience);
    if (!up.ok()) {
      return Fail(kExitBadAnswer,
                  absl::StrCat("lost fsctl up while its engines changed: ",
                               up.status().message()));
    }
    for (const std::string& news : engines->Observe(up->engines)) {
      if (!quiet) Print(news + "\n");
    }
    fflush(stdout);
    if (engines->done()) break;
    if (SteadyNow() > deadline) {
      return Fail(kExitBadAnswer,
                  absl::StrCat("not there yet after ", timeout_s,
                               " s: ", absl::StrJoin(engines->Pending(), ", "),
                               "; fsctl up goes on with it"));
    }
    absl::SleepFor(kPause);
  }
  if (engines->troubles().empty()) return kExitOk;
  return Fail(kExitBadAnswer, absl::StrJoin(engines->troubles(), "; "));
}

}  // namespace fineserve::fsctl
