#ifndef TOOLS_FSCTL_PROCESSES_FABRICATED_SCOREBOARD_H_
#define TOOLS_FSCTL_PROCESSES_FABRICATED_SCOREBOARD_H_

#include "daemon/contract/abi/scoreboard_reader.h"
#include "tools/fsctl/terminal/fabricated_moment.h"

namespace fineserve::fsctl {

// A scoreboard for tests of what fsctl prints.
// Two decisions: one redirected with a stack, one denied.
inline abi::ScoreboardSnapshot FabricateScoreboard() {
  abi::ScoreboardSnapshot scoreboard;
  scoreboard.pid = 4712;
  scoreboard.epoch = 77;
  scoreboard.engine_id = 1;
  scoreboard.link_state = abi::LinkState::kConnected;
  scoreboard.program = "vllm";
  scoreboard.small_allocations = 1234;
  scoreboard.large_allocations = 40;
  scoreboard.redirected_allocations = 32;
  scoreboard.redirected_bytes = 2ull << 30;
  scoreboard.denied_allocations = 1;
  scoreboard.stacks_captured = 40;
  scoreboard.decisions_begun = 2;
  abi::DecisionSnapshot redirected;
  redirected.number = 0;
  redirected.time_ns = kTestNow.monotonic_ns - 12 * kTestSecond;
  redirected.address = 0x7f0000000000;
  redirected.bytes = 512 << 20;
  redirected.lease = 3;
  redirected.verdict = abi::Verdict::kRedirected;
  redirected.reason = abi::Reason::kDeclaredSize;
  redirected.frames = {0x1500, 0x9000};
  abi::DecisionSnapshot denied = redirected;
  denied.number = 1;
  denied.address = 0;
  denied.lease = 0;
  denied.result = 2;
  denied.verdict = abi::Verdict::kDenied;
  denied.reason = abi::Reason::kPoolExhausted;
  denied.frames.clear();
  scoreboard.decisions = {redirected, denied};
  return scoreboard;
}

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESSES_FABRICATED_SCOREBOARD_H_
