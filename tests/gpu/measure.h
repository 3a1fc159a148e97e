#ifndef TESTS_GPU_MEASURE_H_
#define TESTS_GPU_MEASURE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace fineserve::gpu {

// Records a figure of the running test for gpu_check's report. `name` ends with
// its unit: "create_us". No test asserts on figures.
void Figure(const std::string& name, double value);

uint64_t NowNs();

// Time spent in one kind of call, summed over many.
class Timed {
 public:
  // Runs `call`, adds its time, and returns what it returned.
  template <typename Call>
  auto operator()(Call call) {
    const uint64_t start = NowNs();
    auto result = call();
    total_ns_ += NowNs() - start;
    ++calls_;
    return result;
  }
  double total_ms() const { return static_cast<double>(total_ns_) / 1e6; }
  double mean_us() const {
    return calls_ == 0 ? 0 : static_cast<double>(total_ns_) / 1e3 / calls_;
  }

 private:
  uint64_t total_ns_ = 0;
  double calls_ = 0;
};

// Returns the median; of an even number of values, the lower middle one.
// `values` is not empty.
double Median(std::vector<double> values);

}  // namespace fineserve::gpu

#endif  // TESTS_GPU_MEASURE_H_
