#ifndef TESTS_GPU_TEARDOWN_H_
#define TESTS_GPU_TEARDOWN_H_

namespace fineserve::gpu {

// Kills a process that has work in flight and notes how long the driver lists
// it, and when its memory is free again. Skips the test where NVML does not
// list this machine's processes.
void MeasureTeardown();

}  // namespace fineserve::gpu

#endif  // TESTS_GPU_TEARDOWN_H_
