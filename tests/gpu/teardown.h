#ifndef TESTS_GPU_TEARDOWN_H_
#define TESTS_GPU_TEARDOWN_H_

#include <cstdint>

namespace fineserve::gpu {

// Kills a process that fills memory of ours, and records how long the driver
// still lists the process, and when the process's own memory is free again.
// `changed_words`: how many of our words were written after the driver had
// stopped listing it. Skips the test if NVML does not list this machine's
// processes. `in_victim` runs before the killed process calls the driver.
void MeasureTeardown(uint64_t* changed_words, void (*in_victim)() = nullptr);

}  // namespace fineserve::gpu

#endif  // TESTS_GPU_TEARDOWN_H_
