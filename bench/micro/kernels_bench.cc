// The cost of our kernel on the host: see kQuestion.

#include <string.h>
#include <time.h>

#include <vector>

#include "bench/report/report.h"
#include "kernels/fingerprint.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(What does a fingerprint cost on the host, where the emulated device and tests
run the kernel's twin?

Baseline, on the same buffer in the same run: memcpy, which reads as much, and
also writes.)";

constexpr uint64_t kBytes = 64 << 20;  // of a slab; larger than caches
constexpr int kRounds = 21;

double NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 +
         static_cast<double>(now.tv_nsec);
}

template <typename Work>
double GigabytesPerSecond(const Work& work) {
  const double start = NowNs();
  work();
  return static_cast<double>(kBytes) / (NowNs() - start);
}

int Main(int argc, char** argv) {
  const Arguments arguments =
      Arguments::ReadOrExit(argc, argv, {"kernels", kQuestion});
  std::vector<char> bytes(kBytes + 64, 1), other(kBytes);
  const kernels::ByteRange aligned = {
      (reinterpret_cast<uint64_t>(bytes.data()) + 15) & ~uint64_t{15}, kBytes};
  const kernels::ByteRange unaligned = {aligned.address + 3, kBytes};
  auto* const begin = reinterpret_cast<char*>(aligned.address);
  std::vector<double> digest, odd, copy;
  volatile uint64_t sink = 0;
  for (int i = 0; i < kRounds; ++i) {
    copy.push_back(
        GigabytesPerSecond([&] { memcpy(other.data(), begin, kBytes); }));
    digest.push_back(GigabytesPerSecond(
        [&] { sink = kernels::FingerprintOnHost(aligned).low; }));
    odd.push_back(GigabytesPerSecond(
        [&] { sink = kernels::FingerprintOnHost(unaligned).low; }));
  }
  Report report("kernels");
  report.Figure("memcpy (GB/s)", Median(copy));
  report.Figure("fingerprint (GB/s)", Median(digest));
  report.Figure("fingerprint, unaligned (GB/s)", Median(odd));
  report.Claim("fingerprint / memcpy (ratio)", Median(digest) / Median(copy),
               0.3, Compare::kAtLeast);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
