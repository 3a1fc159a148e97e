#include "shim/testdata/scoreboard_copy.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>

namespace fineserve::shim {
namespace {

using abi::Decision;
using abi::DecisionRecord;
using abi::ScoreboardHeader;

bool CopyDecision(const Decision& d, uint64_t n, DecisionRecord* out) {
  // Acquire: pairs with the writer's release of 2n + 2.
  if (d.sequence.load(std::memory_order_acquire) != 2 * n + 2) return false;
  uint64_t words[sizeof(DecisionRecord) / 8];
  for (size_t i = 0; i < sizeof(words) / 8; ++i) {
    // Acquire: a reader that sees a word of a later record also sees its odd
    // sequence.
    words[i] = d.record[i].load(std::memory_order_acquire);
  }
  if (d.sequence.load(std::memory_order_relaxed) != 2 * n + 2) return false;
  memcpy(out, words, sizeof(*out));
  return true;
}

std::vector<std::string> ScoreboardLinks(pid_t pid) {
  std::vector<std::string> links;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    if (target.string().find(abi::kScoreboardMemfdName) != std::string::npos) {
      links.push_back(entry.path());
    }
  }
  return links;
}

}  // namespace

ScoreboardCopy CopyScoreboard(const void* scoreboard) {
  const auto& h = *static_cast<const ScoreboardHeader*>(scoreboard);
  const auto* ring = reinterpret_cast<const Decision*>(&h + 1);
  ScoreboardCopy copy;
  // Acquire: pairs with ScoreboardWriter::SetLink, so that the message is
  // complete.
  copy.link_state =
      static_cast<abi::LinkState>(h.link_state.load(std::memory_order_acquire));
  copy.link_message = h.link_message;
  copy.program = h.program;
  copy.epoch = h.epoch;
  copy.pid = h.pid;
  copy.begun = h.decisions;
  copy.small_allocations = h.small_allocations;
  copy.large_allocations = h.large_allocations;
  copy.redirected_allocations = h.redirected_allocations;
  copy.redirected_bytes = h.redirected_bytes;
  copy.denied_allocations = h.denied_allocations;
  copy.stacks_captured = h.stacks_captured;
  copy.room_waits = h.room_waits;
  copy.created_bytes = h.created_bytes;
  copy.created_most_bytes = h.created_most_bytes;
  copy.deepbind_stripped = h.deepbind_stripped;
  copy.foreign_namespaces = h.foreign_namespaces;
  for (uint32_t i = 0; i < abi::kHookCount; ++i) {
    for (uint32_t n = 0; n < abi::kPathCount; ++n) {
      copy.uses[i][n] = abi::UsesOf(h, i)[n];
    }
  }
  const uint64_t first = copy.begun > abi::kDecisionCapacity
                             ? copy.begun - abi::kDecisionCapacity
                             : 0;
  for (uint64_t n = first; n < copy.begun; ++n) {
    DecisionRecord record;
    if (CopyDecision(ring[n % abi::kDecisionCapacity], n, &record)) {
      copy.decisions.push_back(record);
    }
  }
  return copy;
}

int CountScoreboards(pid_t pid) {
  return static_cast<int>(ScoreboardLinks(pid).size());
}

const void* MapScoreboardOf(pid_t pid) {
  for (const std::string& link : ScoreboardLinks(pid)) {
    // The descriptor may be gone, because a fake daemon in this process may be
    // closing its own right now.
    const int fd = open(link.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    void* scoreboard =
        mmap(nullptr, abi::kScoreboardBytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (scoreboard != MAP_FAILED) return scoreboard;
  }
  return nullptr;
}

}  // namespace fineserve::shim
