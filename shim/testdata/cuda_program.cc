// A program that uses the driver by its symbols. It runs the commands on its
// command line; cuda_program_*.cc list them.

#include "shim/testdata/cuda_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace fineserve::shim {
namespace {

// Null if it is in none of the lists.
const Command* Find(const char* name) {
  for (const auto commands : {AllocationCommands(), LookupCommands(),
                              ProcessCommands(), ScoreboardCommands()}) {
    for (const Command& c : commands) {
      if (strcmp(c.name, name) == 0) return &c;
    }
  }
  return nullptr;
}

// Runs the words from argv[i] on; returns the index of the next command.
int RunCommand(char** argv, int i) {
  const Command* command = Find(argv[i]);
  if (command == nullptr) {
    fprintf(stderr, "cuda_program: no command \"%s\"\n", argv[i]);
    exit(2);
  }
  return i + 1 + command->run(argv + i + 1);
}

}  // namespace
}  // namespace fineserve::shim

int main(int argc, char** argv) {
  using namespace fineserve::shim;  // NOLINT: main has no namespace
  WatchSignals();
  SetCallersEnd(__builtin_return_address(0));
  int i = 1;
  while (i < argc) i = RunCommand(argv, i);
  return 0;
}
