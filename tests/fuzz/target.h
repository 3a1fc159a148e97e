#ifndef TESTS_FUZZ_TARGET_H_
#define TESTS_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <vector>

// Every fuzz target defines libFuzzer's entry point, and valid inputs to start
// from. A target aborts if one of its invariants is broken.

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count);

namespace fineserve::fuzz {

std::vector<std::vector<uint8_t>> Seeds();

}  // namespace fineserve::fuzz

#endif  // TESTS_FUZZ_TARGET_H_
