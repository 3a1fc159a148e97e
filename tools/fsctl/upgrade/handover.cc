#include "tools/fsctl/upgrade/handover.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/abi/holders.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/printable.h"
#include "daemon/contract/abi/process_start.h"
#include "daemon/contract/abi/scoreboard_reader.h"
#include "daemon/contract/abi/transport.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/upgrade/adoption.h"
#include "tools/fsctl/upgrade/program_file.h"

namespace fineserve::fsctl {
namespace {

using abi::Holder;

// Returns the scoreboard that the process itself writes; 0 if there is none.
uint64_t OwnScoreboard(uint32_t pid) {
  for (const Holder& holder : abi::FindHolders(static_cast<pid_t>(pid))) {
    if (holder.kind != Holder::Kind::kEngineScoreboard) continue;
    const absl::StatusOr<driver::Descriptor> fd = OpenHeld(holder);
    if (!fd.ok()) continue;
    const auto scoreboard = abi::ReadScoreboard(fd->get());
    if (scoreboard.ok() && scoreboard->pid == pid) return holder.inode;
  }
  return 0;
}

bool IsStopped(uint32_t pid) {
  const std::string status = ReadFile(absl::StrCat("/proc/", pid, "/status"));
  return absl::StrContains(status, "State:\tT") ||
         absl::StrContains(status, "State:\tt");
}

bool HasEnded(uint32_t pid) {
  const std::string status = ReadFile(absl::StrCat("/proc/", pid, "/status"));
  return status.empty() || absl::StrContains(status, "State:\tZ");
}

// True if the process has a thread for its view, which looks for the next
// daemon.
bool JoinsByItself(const abi::EngineSnapshot& engine, uint32_t pid) {
  return engine.view.state == abi::ViewState::kActive &&
         (engine.view.pid == pid || engine.view.runs_pool == pid);
}

// The daemon holds a request for whole slabs for up to 5 s.
constexpr absl::Duration kPatience = absl::Seconds(10);

// Sends the request and copies its answer. If the daemon refuses, returns
// Unavailable or ResourceExhausted.
template <typename Request, typename Answer>
absl::Status Ask(int socket, const Request& request, Answer* answer) {
  abi::Received received;
  int error = abi::Send(socket, request);
  if (error == 0) error = received.ReceiveFrom(socket);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("a lease got no answer: ", strerror(error)));
  }
  if (received.As(answer)) return absl::OkStatus();
  abi::Refused refused = {};
  if (!received.As(&refused)) {
    return absl::UnavailableError("a lease got an answer of the wrong kind");
  }
  const std::string why = abi::Printable(refused.text);
  return refused.code == abi::RefusalCode::kPoolExhausted
             ? absl::ResourceExhaustedError(why)
             : absl::UnavailableError(
                   absl::StrCat("a lease was refused: ", why));
}

// Leases one slab from the daemon that listens at `socket`, as an engine would,
// and returns it. Returns the outcome: a full pool or a full table is no error,
// because no slab is asked back for this. From then on, this process is a
// member of an engine "fsctl-upgrade" until it ends.
absl::StatusOr<std::string> ProbeLease(const std::string& socket,
                                       bool any_is_free) {
  if (!any_is_free) return std::string("none is free, so none was leased");
  const absl::StatusOr<abi::ObserverLink> link =
      abi::ConnectMember(socket, "fsctl-upgrade", kPatience);
  if (absl::IsResourceExhausted(link.status())) {
    return absl::StrCat("not leased: ", link.status().message());
  }
  if (!link.ok()) return link.status();
  auto request = abi::MakeMessage<abi::LeaseRequest>(1);
  request.slab_count = 1;
  abi::LeaseGrant grant = {};
  absl::Status s = Ask(link->socket.get(), request, &grant);
  if (absl::IsResourceExhausted(s)) {
    return absl::StrCat("not leased: ", s.message());
  }
  if (!s.ok()) return s;
  auto back = abi::MakeMessage<abi::ReturnRequest>(2);
  back.lease = grant.lease;
  abi::ReturnDone done = {};
  s = Ask(link->socket.get(), back, &done);
  if (!s.ok()) return s;
  return std::string("one was leased and returned");
}

using Severity = Finding::Severity;

// A process that connects in between waits at the socket, which is kept open.
constexpr absl::Duration kAnswerTimeout = absl::Milliseconds(500);
constexpr absl::Duration kPause = absl::Milliseconds(2);
// The slab words are published before the counters.
constexpr absl::Duration kForCounters = absl::Milliseconds(20);
// If a supervisor has no child for this long, it pauses after failed starts:
// each pause is twice the one before, from 10 ms on. A busy machine may take
// most of a second to start the first child.
constexpr absl::Duration kLongestWithoutChild = absl::Seconds(2);

absl::StatusOr<abi::TableSnapshot> Read(const std::string& socket) {
  const auto link = abi::ConnectObserver(socket, kAnswerTimeout);
  if (!link.ok()) return link.status();
  return abi::ReadTable(link->table.get());
}

bool RunsProgramOf(uint32_t pid, const ServingDaemon& daemon) {
  const driver::Descriptor executable(
      open(absl::StrCat("/proc/", pid, "/exe").c_str(), O_RDONLY | O_CLOEXEC));
  return executable.valid() && IsSameFile(executable.get(), daemon.program);
}

bool ProgramLives(uint32_t pid, uint64_t image) {
  const driver::Descriptor pidfd =
      abi::OpenPidfd(static_cast<pid_t>(pid), abi::StartOf(image));
  pollfd ended = {pidfd.get(), POLLIN, 0};
  return pidfd.valid() && poll(&ended, 1, 0) == 0 &&
         abi::IsSameImage(image, abi::ProcessImage(static_cast<pid_t>(pid)));
}

// Waits until another process than `former` serves and runs the right program.
// `has_children`: whether the kernel lists the keeper's children.
absl::StatusOr<abi::TableSnapshot> AwaitNext(const ServingDaemon& daemon,
                                             const std::string& socket,
                                             uint32_t former, bool has_children,
                                             absl::Time deadline) {
  absl::Time had_child = SteadyNow();
  absl::Status last = absl::UnavailableError("no daemon answers");
  while (SteadyNow() < deadline) {
    const absl::Time now = SteadyNow();
    if (!has_children || !ChildrenOf(daemon.keeper_pid).empty()) {
      had_child = now;
    }
    if (now - had_child > kLongestWithoutChild) {
      return absl::UnavailableError(
          "it ends again and again without serving; see its log");
    }
    absl::StatusOr<abi::TableSnapshot> table = Read(socket);
    if (table.ok() && table->daemon_pid != former &&
        RunsProgramOf(table->daemon_pid, daemon)) {
      return table;
    }
    if (!table.ok()) last = table.status();
    absl::SleepFor(kPause);
  }
  return absl::UnavailableError(
      absl::StrCat("it did not serve in time: ", last.message()));
}

// On a busy machine, a serving daemon may be late with one answer.
absl::StatusOr<abi::TableSnapshot> ReadBefore(absl::Time deadline,
                                              const std::string& socket) {
  absl::StatusOr<abi::TableSnapshot> table = Read(socket);
  while (!table.ok() && SteadyNow() < deadline) {
    absl::SleepFor(kPause);
    table = Read(socket);
  }
  return table;
}

// The daemon that will end, if it still lives, and its table.
struct FormerDaemon {
  driver::Descriptor pidfd;
  driver::Descriptor table;
};

FormerDaemon OpenFormer(const ServedPool& pool) {
  FormerDaemon former;
  former.pidfd =
      abi::OpenPidfd(static_cast<pid_t>(pool.table.daemon_pid), /*start=*/0);
  if (!former.pidfd.valid()) return former;
  auto link = abi::ConnectObserver(pool.socket, kAnswerTimeout);
  if (link.ok()) former.table = std::move(link->table);
  return former;
}

// Waits for the daemon's end, and returns the table that it left, which is
// valid until the next daemon serves. If the end was missed, returns the last
// known table.
abi::TableSnapshot AwaitEnd(const FormerDaemon& former, const ServedPool& pool,
                            absl::Time deadline) {
  pollfd ended = {former.pidfd.get(), POLLIN, 0};
  if (former.pidfd.valid()) {
    const auto ms = absl::ToInt64Milliseconds(deadline - SteadyNow());
    poll(&ended, 1, static_cast<int>(std::max<int64_t>(ms, 0)));
  }
  if (!former.table.valid()) return pool.table;
  absl::StatusOr<abi::TableSnapshot> left = abi::ReadTable(former.table.get());
  return left.ok() && left->daemon_pid == pool.table.daemon_pid
             ? *std::move(left)
             : pool.table;
}

Finding CheckLeases(const abi::TableSnapshot& left,
                    const abi::TableSnapshot& found) {
  const Adoption adoption = CompareTables(left, found, ProgramLives);
  if (adoption.problems.empty()) {
    return {Severity::kOk, "leases",
            absl::StrCat(adoption.slabs, " slabs of ", adoption.engines,
                         " engines were adopted"),
            ""};
  }
  return {Severity::kWrong, "leases",
          absl::StrCat(absl::StrJoin(adoption.problems.begin(),
                                     adoption.problems.begin() +
                                         std::min<std::ptrdiff_t>(
                                             3, adoption.problems.size()),
                                     "; "),
                       adoption.problems.size() > 3 ? "; and more" : ""),
          "report this with fsctl support"};
}

Finding CheckEngines(const ServedPool& before, bool is_way_back,
                     absl::Time deadline) {
  Joining joining = JoinedSince(before.links, before.table);
  while (!joining.missing.empty() && SteadyNow() < deadline) {
    absl::SleepFor(kForCounters);
    joining = JoinedSince(before.links, before.table);
  }
  std::string found = absl::StrCat(joining.joined, " processes joined again");
  if (joining.later > 0) {
    absl::StrAppend(&found, ", ", joining.later,
                    " will when they next ask for something");
  }
  if (joining.missing.empty()) return {Severity::kOk, "engines", found, ""};
  return {is_way_back ? Severity::kNote : Severity::kWrong, "engines",
          absl::StrCat(found,
                       "; not joined: ", absl::StrJoin(joining.missing, ", ")),
          "see fsctl explain PID, and the engine's log"};
}

Finding CheckLeasing(const std::string& socket,
                     const abi::TableSnapshot& table) {
  const bool any =
      std::any_of(table.slabs.begin(), table.slabs.end(), [](const auto& slab) {
        return slab.word.state == abi::SlabState::kFree;
      });
  const absl::StatusOr<std::string> probed = ProbeLease(socket, any);
  if (probed.ok()) return {Severity::kOk, "slabs", *probed, ""};
  return {Severity::kWrong, "slabs", std::string(probed.status().message()),
          "see the daemon's log"};
}

}  // namespace

Links LinksOf(const abi::TableSnapshot& table) {
  Links links;
  for (const abi::EngineSnapshot& engine : table.engines) {
    if (engine.state != abi::EngineState::kAlive) continue;
    for (uint32_t pid : engine.member_pids) {
      const uint64_t scoreboard = OwnScoreboard(pid);
      if (scoreboard != 0) links[pid] = scoreboard;
    }
  }
  return links;
}

Joining JoinedSince(const Links& before, const abi::TableSnapshot& table) {
  Joining joining;
  for (const abi::EngineSnapshot& engine : table.engines) {
    if (engine.state != abi::EngineState::kAlive) continue;
    for (uint32_t pid : engine.member_pids) {
      const auto former = before.find(pid);
      if (former == before.end() || HasEnded(pid)) continue;
      const uint64_t now = OwnScoreboard(pid);
      if (now != 0 && now != former->second) {
        ++joining.joined;
      } else if (JoinsByItself(engine, pid) && !IsStopped(pid)) {
        joining.missing.push_back(
            absl::StrCat("pid ", pid, " (engine ", engine.name, ")"));
      } else {
        ++joining.later;
      }
    }
  }
  return joining;
}

Handover HandOver(const ServingDaemon& daemon, const ServedPool& pool,
                  bool is_way_back, absl::Duration timeout) {
  Handover result;
  const absl::Time deadline = SteadyNow() + timeout;
  const auto fail = [&](const char* name, absl::string_view found) {
    result.checks.push_back({Severity::kWrong, name, std::string(found), ""});
    return result;
  };
  const FormerDaemon former = OpenFormer(pool);
  // On the way back, the keeper may still be pausing after the failed release.
  const bool has_children =
      daemon.keeper == ServingDaemon::Keeper::kSupervisor && !is_way_back &&
      !ChildrenOf(daemon.keeper_pid).empty();
  const absl::Status reported = StartNext(daemon);
  if (!reported.ok()) return fail("start", reported.message());
  const abi::TableSnapshot left = AwaitEnd(former, pool, deadline);
  const absl::Time ended_at = SteadyNow();
  absl::StatusOr<abi::TableSnapshot> next = AwaitNext(
      daemon, pool.socket, pool.table.daemon_pid, has_children, deadline);
  if (!next.ok()) return fail("start", next.status().message());
  result.daemon = static_cast<pid_t>(next->daemon_pid);
  result.silent_ms = absl::ToDoubleMilliseconds(SteadyNow() - ended_at);
  result.same_pool = next->epoch == left.epoch;
  absl::SleepFor(kForCounters);
  const absl::StatusOr<abi::TableSnapshot> later =
      ReadBefore(deadline, pool.socket);
  if (!later.ok()) return fail("start", later.status().message());
  next->counters = later->counters;
  result.checks.push_back({Severity::kOk, "start",
                           absl::StrCat("pid ", result.daemon, " serves since ",
                                        static_cast<int>(result.silent_ms),
                                        " ms after the former daemon ended"),
                           ""});
  result.checks.push_back(CheckLeases(left, *next));
  if (!result.same_pool) return result;
  result.checks.push_back(CheckEngines(pool, is_way_back, deadline));
  result.checks.push_back(CheckLeasing(pool.socket, *later));
  // The daemon has served without interruption.
  const absl::StatusOr<abi::TableSnapshot> last =
      ReadBefore(deadline, pool.socket);
  if (!last.ok()) return fail("start", last.status().message());
  if (last->daemon_pid != next->daemon_pid) {
    return fail("start", "it has ended again");
  }
  return result;
}

}  // namespace fineserve::fsctl
