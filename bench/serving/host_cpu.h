#ifndef BENCH_SERVING_HOST_CPU_H_
#define BENCH_SERVING_HOST_CPU_H_

namespace fineserve::bench {

// Time of the host's CPUs since its start, in jiffies of all cores.
struct HostCpu {
  double busy = 0, all = 0;
  static HostCpu Now();
};

// The part of all cores that was busy between two moments, 0 … 1.
double BusyPart(const HostCpu& before, const HostCpu& after);

}  // namespace fineserve::bench

#endif  // BENCH_SERVING_HOST_CPU_H_
