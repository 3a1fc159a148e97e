#include "tests/gpu/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace fineserve::gpu {

void Figure(const std::string& name, double value) {
  char text[32];
  snprintf(text, sizeof(text), "%.6g", value);
  ::testing::Test::RecordProperty(name, text);
}

uint64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2];
}

}  // namespace fineserve::gpu
