#include "tools/lab/sim/bound/clairvoyant.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace fineserve::sim {
namespace {

// An array of values, with the minimum of a range and the addition of a number
// to a range.
class LeastTree {
 public:
  explicit LeastTree(const std::vector<double>& values) {
    while (leaves_ < values.size()) leaves_ *= 2;
    least_.assign(2 * leaves_, std::numeric_limits<double>::infinity());
    added_.assign(2 * leaves_, 0);
    std::copy(values.begin(), values.end(),
              least_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (size_t n = leaves_ - 1; n >= 1; --n) {
      least_[n] = std::min(least_[2 * n], least_[2 * n + 1]);
    }
  }

  // Adds `value` to the values from `first` on.
  void AddFrom(size_t first, double value) { Add(1, 0, leaves_, first, value); }
  // Returns the minimum over the values in [first, end).
  double Least(size_t first, size_t end) const {
    return Least(1, 0, leaves_, first, end);
  }

 private:
  void Add(size_t n, size_t low, size_t high, size_t first, double value) {
    if (high <= first) return;
    if (low >= first) {
      least_[n] += value;
      added_[n] += value;
      return;
    }
    const size_t middle = (low + high) / 2;
    Add(2 * n, low, middle, first, value);
    Add(2 * n + 1, middle, high, first, value);
    least_[n] = std::min(least_[2 * n], least_[2 * n + 1]) + added_[n];
  }

  double Least(size_t n, size_t low, size_t high, size_t first,
               size_t end) const {
    if (high <= first || low >= end) {
      return std::numeric_limits<double>::infinity();
    }
    if (low >= first && high <= end) return least_[n];
    const size_t middle = (low + high) / 2;
    return added_[n] + std::min(Least(2 * n, low, middle, first, end),
                                Least(2 * n + 1, middle, high, first, end));
  }

  size_t leaves_ = 1;
  std::vector<double> least_, added_;  // added_: to all below, not in `least_`
};

// Sorts the jobs by arrival, and raises deadlines so that they are in the same
// order.
void PutInOrder(std::vector<Job>* jobs) {
  std::stable_sort(jobs->begin(), jobs->end(), [](const Job& a, const Job& b) {
    return a.arrival < b.arrival;
  });
  Micros latest = 0;
  for (Job& job : *jobs) {
    latest = std::max(latest, job.deadline);
    job.deadline = latest;
  }
}

}  // namespace

double MostOnTime(std::vector<Job> jobs, double speed) {
  PutInOrder(&jobs);
  std::vector<double> ends, begins;
  for (const Job& job : jobs) {
    ends.push_back(speed * static_cast<double>(job.deadline));
    begins.push_back(-speed * static_cast<double>(job.arrival));
  }
  LeastTree end(ends);      // speed · d_v − Y_v
  LeastTree begin(begins);  // −(speed · a_u − Y_{u−1})
  std::vector<uint32_t> order(jobs.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return jobs[a].work_us < jobs[b].work_us;
  });
  double on_time = 0;
  for (const uint32_t i : order) {
    const double left =
        end.Least(i, jobs.size()) + begin.Least(0, size_t{i} + 1);
    const double given = std::clamp(left, 0.0, jobs[i].work_us);
    if (given <= 0) continue;
    on_time += given / jobs[i].work_us;
    end.AddFrom(i, -given);
    begin.AddFrom(size_t{i} + 1, given);
  }
  return on_time;
}

}  // namespace fineserve::sim
