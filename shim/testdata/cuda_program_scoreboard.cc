// cuda_program's commands that print what the shim has posted on the
// scoreboard.
// clang-format off
//
//   scoreboard        "scoreboard small N large N stacks N scoreboards N"
//   callers           "callers whole" if the latest allocation's stack was
//                     captured up to main's caller
//   uses NAME         "uses N…", one number per path (daemon/abi/hooks.h)
//   loads             "deepbind N foreign N"
//
// clang-format on

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "shim/testdata/cuda_program.h"
#include "shim/testdata/scoreboard_copy.h"

namespace fineserve::shim {
namespace {

const void* g_callers_end = nullptr;

void PrintScoreboard() {
  const void* mapped = MapScoreboardOf(getpid());
  const int scoreboards = CountScoreboards(getpid());
  if (mapped == nullptr) {
    printf("scoreboard none\n");
    return;
  }
  const auto p = CopyScoreboard(mapped);
  printf("scoreboard small %lu large %lu stacks %lu scoreboards %d\n",
         p.small_allocations, p.large_allocations, p.stacks_captured,
         scoreboards);
}

void PrintCallers() {
  const auto p = CopyScoreboard(MapScoreboardOf(getpid()));
  const auto& last = p.decisions.back();
  const uint64_t* const end = last.frames + last.frame_count;
  const bool whole =
      std::find(last.frames, end, reinterpret_cast<uint64_t>(g_callers_end)) !=
      end;
  printf("callers %s\n", whole ? "whole" : "cut");
}

void PrintUses(const std::string& symbol) {
  const auto p = CopyScoreboard(MapScoreboardOf(getpid()));
  printf("uses");
  for (uint32_t i = 0; i < abi::kHookCount; ++i) {
    if (symbol != abi::kHookSymbols[i]) continue;
    for (uint32_t n : p.uses[i]) printf(" %u", n);
  }
  printf("\n");
}

void PrintLoads() {
  const auto p = CopyScoreboard(MapScoreboardOf(getpid()));
  printf("deepbind %lu foreign %lu\n", p.deepbind_stripped,
         p.foreign_namespaces);
}

constexpr Command kScoreboardCommands[] = {
    {"scoreboard", [](char**) { return PrintScoreboard(), 0; }},
    {"callers", [](char**) { return PrintCallers(), 0; }},
    {"uses", [](char** words) { return PrintUses(words[0]), 1; }},
    {"loads", [](char**) { return PrintLoads(), 0; }},
};

}  // namespace

std::span<const Command> ScoreboardCommands() { return kScoreboardCommands; }

void SetCallersEnd(const void* address) { g_callers_end = address; }

}  // namespace fineserve::shim
