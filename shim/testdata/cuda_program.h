#ifndef SHIM_TESTDATA_CUDA_PROGRAM_H_
#define SHIM_TESTDATA_CUDA_PROGRAM_H_

// The rooms of cuda_program: each has the commands that its list names.

#include <stddef.h>

#include <span>

#include "kernels/driver/prototypes.h"

namespace fineserve::shim {

struct Command {
  const char* name;
  // Takes the words after its name; returns how many of them it used.
  int (*run)(char** words);
};

std::span<const Command> AllocationCommands();
std::span<const Command> LookupCommands();
std::span<const Command> ProcessCommands();
std::span<const Command> ScoreboardCommands();

// Allocates in a KV scope, if the shim is there.
driver::CUresult AllocScoped(driver::CUdeviceptr* out, size_t bytes);
// True if an address is in a range that the shim reserved.
bool IsShared(driver::CUdeviceptr address);

// To be called at the start: what `signals` compares with.
void WatchSignals();
// Sets the address that main returns to, which `callers` looks for.
void SetCallersEnd(const void* address);

}  // namespace fineserve::shim

#endif  // SHIM_TESTDATA_CUDA_PROGRAM_H_
