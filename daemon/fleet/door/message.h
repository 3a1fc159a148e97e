#ifndef DAEMON_FLEET_DOOR_MESSAGE_H_
#define DAEMON_FLEET_DOOR_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/fleet/config/fleet_description.h"

namespace fineserve::apply {

// Traffic through a process's door (door.h): one question, one answer, each a
// JSON object of at most kMostBytes. Unknown keys in the answer of another
// version's process are ignored.

inline constexpr size_t kMostBytes = 4 << 20;
// Limit on the bytes that either end reads at once.
inline constexpr size_t kPieceBytes = 64 << 10;

struct Question {
  enum class Kind {
    kState,    // what holds, and how the process is
    kCheck,    // can it take the fleet file as it is now?
    kTake,     // take it
    kRest,     // proxies: no new requests for these engines for a while
    kRestart,  // fsctl up: drain these engines and start them again
    kStop,     // fsctl up: drain these engines and let them stay down
    kStart,    // fsctl up: start these engines unless they run
    kStarts,   // proxies: which engines that start on request are asked for?
  };
  Kind kind = Kind::kState;
  std::string fleet_path;            // absolute; all but kState
  std::string digest;                // of the fleet that the sender means
  std::vector<std::string> engines;  // kRest, kRestart, kStop, kStart
  // kRest: duration of the rest. kTake, kRestart, kStop: time that engines that
  // must end may take to finish the requests that they run.
  double seconds = 0;
  // kStarts: for each engine, the seconds that its start still takes; 0:
  // unknown; negative: it fails to serve, and requests should not be sent to it
  // until it does.
  std::map<std::string, double> starts = {};
  // kRest: the subset of the engines that an operator stopped.
  std::vector<std::string> stopped = {};
};

// An engine as the answering process sees it.
struct EngineState {
  std::string name;
  std::string state;     // fsctl up: down, starting, serving, stopped, …
  int64_t pid = 0;       // fsctl up: 0 if it does not run
  uint64_t starts = 0;   // fsctl up: number of starts since it began
  double for_s = 0;      // it has been in this state
  std::string last_end;  // fsctl up: how it ended last; empty: it has not
  uint64_t running = 0;  // proxies: requests that it has been sent
  // fsctl up: the reason why it does not serve, if that is known.
  std::string trouble = {};
  // fsctl up: the last line of its log, while it does not serve.
  std::string log_line = {};
  std::string log_path = {};  // fsctl up: absolute
  // Proxies, for an engine that starts on request: requests that wait until it
  // serves, and the seconds since a request for its model last arrived, or one
  // of its own ended; negative: it does not start on request.
  uint64_t waiting = 0;
  double idle_s = -1;
  bool operator==(const EngineState&) const = default;
};

struct Answer {
  std::string error;    // why not; empty: yes
  std::string process;  // "fineserved", "fineserve-proxy", "fsctl up"
  int64_t pid = 0;      // as it knows itself
  double runs_s = -1;   // since its start; negative: not known
  // Seconds for which the disk of the runtime folder has been full
  // (base::kFullBelowBytes), as the door sees it; negative if it is not.
  double full_disk_s = -1;
  std::string gpu;                 // fineserved: whose
  std::string fleet_path;          // absolute; empty: it has none
  config::FleetDescription fleet;  // that it runs by
  std::vector<std::string>
      notes;  // changes that kTake does not make, one line each
  std::vector<EngineState> engines;
  // Proxies: for each GPU, whether its daemon decides; requests that were
  // admitted without one.
  std::map<std::string, bool> daemons;
  // Proxies: for each GPU without a daemon that decides, the seconds that it
  // has been without one.
  std::map<std::string, double> away_s;
  uint64_t unscheduled = 0;
  std::string admin;  // proxies: the address of their admin port
  // Proxies that terminate TLS: seconds until their certificate expires.
  absl::optional<double> certificate_s;
  std::string version = {};  // its release; Encode gives its own

  bool ok() const { return error.empty(); }
};

std::string Encode(const Question& question);
std::string Encode(const Answer& answer);

// InvalidArgument if the text is not a valid message.
absl::StatusOr<Question> DecodeQuestion(absl::string_view text);
absl::StatusOr<Answer> DecodeAnswer(absl::string_view text);

}  // namespace fineserve::apply

#endif  // DAEMON_FLEET_DOOR_MESSAGE_H_
