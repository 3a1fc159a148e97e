// The cost of our kernels on the host: see kQuestion.

#include <string.h>
#include <time.h>

#include <vector>

#include "bench/micro/arguments.h"
#include "bench/micro/report.h"
#include "kernels/fingerprint.h"
#include "kernels/zero.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(What do the host's twins of our kernels cost, as the emulated device and tests
run them?

Baselines, on the same buffer in the same run: memset for the zero fill, memcpy
(which reads as much, and also writes) for the fingerprint. What the kernels
cost on a real device is measured by gpu_check.)";

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
  std::vector<double> zero, fill, digest, odd, copy;
  volatile uint64_t sink = 0;
  for (int i = 0; i < kRounds; ++i) {
    fill.push_back(GigabytesPerSecond([&] { memset(begin, 0, kBytes); }));
    zero.push_back(
        GigabytesPerSecond([&] { kernels::ZeroShare(aligned, 0, 1); }));
    copy.push_back(
        GigabytesPerSecond([&] { memcpy(other.data(), begin, kBytes); }));
    digest.push_back(GigabytesPerSecond(
        [&] { sink = kernels::FingerprintOnHost(&aligned, 1); }));
    odd.push_back(GigabytesPerSecond(
        [&] { sink = kernels::FingerprintOnHost(&unaligned, 1); }));
  }
  Report report("kernels");
  report.Figure("memset (GB/s)", Median(fill));
  report.Figure("zero (GB/s)", Median(zero));
  report.Figure("memcpy (GB/s)", Median(copy));
  report.Figure("fingerprint (GB/s)", Median(digest));
  report.Figure("fingerprint, unaligned (GB/s)", Median(odd));
  report.Claim("zero / memset (ratio)", Median(zero) / Median(fill), 0.5,
               Compare::kAtLeast);
  report.Claim("fingerprint / memcpy (ratio)", Median(digest) / Median(copy),
               0.5, Compare::kAtLeast);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
