#include "bench/serving/host_cpu.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace fineserve::bench {

HostCpu HostCpu::Now() {
  std::ifstream in("/proc/stat");
  std::string name;
  in >> name;
  HostCpu t;
  double value;
  for (int field = 0; field < 8 && in >> value; ++field) {
    t.all += value;
    if (field != 3 && field != 4) t.busy += value;  // idle, iowait
  }
  return t;
}

double BusyPart(const HostCpu& before, const HostCpu& after) {
  return (after.busy - before.busy) / std::max(1.0, after.all - before.all);
}

}  // namespace fineserve::bench
