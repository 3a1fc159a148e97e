#ifndef TOOLS_FSCTL_TERMINAL_QUANTITIES_H_
#define TOOLS_FSCTL_TERMINAL_QUANTITIES_H_

#include <cstdint>
#include <string>

namespace fineserve::fsctl {

// Time of an observation, on two clocks. Passed to the code that prints, so
// that tests can compare its output.
struct Moment {
  uint64_t monotonic_ns = 0;
  uint64_t realtime_ns = 0;
};
Moment Now();

// "512 MiB".
std::string Size(uint64_t bytes);

// Age of an event: "850 ms", "12 s", "3 min", "5 h", "2 d"; "-" if `then` is 0
// (unknown) or, as a peer may claim, in the future.
std::string Age(uint64_t now_ns, uint64_t then_ns);

// Age in seconds; negative if Age returns "-".
double SecondsSince(uint64_t now_ns, uint64_t then_ns);

// Age in whole seconds, for JSON; 0 if Age returns "-".
uint64_t AgeSeconds(uint64_t now_ns, uint64_t then_ns);

// "1st", "22nd", "113th".
std::string Ordinal(uint64_t n);

// "83.33 %".
std::string Percent(double fraction, int decimals = 2);

std::string Hex(uint64_t value);
std::string GpuName(const uint8_t (&uuid)[16]);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_QUANTITIES_H_
