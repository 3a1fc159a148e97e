#ifndef TESTS_GPU_TEARDOWN_H_
#define TESTS_GPU_TEARDOWN_H_

#include <cstdint>

namespace fineserve::gpu {

// Kills a process that fills memory of ours, and notes how long the driver
// lists it, and when its own memory is free again. `changed_words`: how many of
// our words were written once the list no longer had it. Skips the test where
// NVML does not list this machine's processes. `in_victim` runs before that
// process calls the driver.
void MeasureTeardown(uint64_t* changed_words, void (*in_victim)() = nullptr);

}  // namespace fineserve::gpu

#endif  // TESTS_GPU_TEARDOWN_H_
