#include "tools/lab/sim/bound/clairvoyant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace fineserve::sim {
namespace {

// True if all jobs can be on time on one machine: the work of every interval
// fits into its length, which is sufficient for one machine with preemption.
bool Fits(const std::vector<Job>& jobs) {
  for (const Job& from : jobs) {
    for (const Job& to : jobs) {
      double work = 0;
      for (const Job& j : jobs) {
        const bool inside =
            j.arrival >= from.arrival && j.deadline <= to.deadline;
        work += inside ? j.work_us : 0;
      }
      const Micros length = std::max<Micros>(0, to.deadline - from.arrival);
      if (work > static_cast<double>(length)) return false;
    }
  }
  return true;
}

size_t BruteForce(const std::vector<Job>& jobs) {
  size_t most = 0;
  for (uint32_t set = 0; set < 1u << jobs.size(); ++set) {
    std::vector<Job> chosen;
    for (size_t i = 0; i < jobs.size(); ++i) {
      if ((set >> i & 1) != 0) chosen.push_back(jobs[i]);
    }
    if (chosen.size() > most && Fits(chosen)) most = chosen.size();
  }
  return most;
}

TEST(ClairvoyantTest, CountsWhatFits) {
  const Job soon{0, 100, 60}, later{0, 200, 60};
  EXPECT_EQ(MostOnTime({}, 1), 0);
  EXPECT_DOUBLE_EQ(MostOnTime({soon}, 1), 1);
  EXPECT_DOUBLE_EQ(MostOnTime({soon, later}, 1), 2);
  EXPECT_DOUBLE_EQ(MostOnTime({soon, soon}, 1), 1 + 40.0 / 60);
  EXPECT_DOUBLE_EQ(MostOnTime({soon, soon}, 2), 2);
}

TEST(ClairvoyantTest, NoOrderByBruteForceExceedsIt) {
  double loose = 0;
  int overloaded = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const bool same_slo = seed % 2 == 0;
    std::vector<Job> jobs;
    for (size_t i = 0; i < 3 + random() % 8; ++i) {
      const auto at = static_cast<Micros>(random() % 300);
      const auto slo =
          static_cast<Micros>(same_slo ? 120 : 20 + random() % 200);
      jobs.push_back({at, at + slo, 1 + static_cast<double>(random() % 110)});
    }
    const auto most = static_cast<double>(BruteForce(jobs));
    const double bound = MostOnTime(jobs, 1);
    ASSERT_GE(bound + 1e-9, most) << "seed " << seed;
    ASSERT_LE(bound, static_cast<double>(jobs.size()) + 1e-9);
    overloaded += most < static_cast<double>(jobs.size());
    if (same_slo) loose = std::max(loose, bound - most);
  }
  EXPECT_GT(overloaded, 30) << "else the bound is never put to the test";
  EXPECT_LT(loose, 3) << "parts of jobs count, but few";
}

}  // namespace
}  // namespace fineserve::sim
