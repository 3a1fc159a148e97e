#ifndef TESTS_INTEGRATION_EVICTION_EVICTION_SITE_H_
#define TESTS_INTEGRATION_EVICTION_EVICTION_SITE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tests/integration/site.h"

namespace fineserve::integration {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
// The 40 MiB of weights are 1 MiB of small tensors and four tensors of 9.75
// MiB. The four and 4 MiB of workspace are resident, in granules of 2 MiB.
inline constexpr uint64_t kResidentBytes = (4 * 10 + 4) * kMiB;

// A site with engines that may leave the GPU.
class EvictionSite : public Site {
 protected:
  std::unique_ptr<Process> StartEvictable(const std::string& name,
                                          const std::string& weights = "40MiB",
                                          Process::Environment more = {}) {
    more.insert({{"FINESERVE_EVICT", "auto"}, {"FINESERVE_ENGINE", name}});
    return StartEngine("4MiB", {"--weights", weights}, more);
  }
  // Runs fsctl's `command` for the engine, which must exit with `code`. Returns
  // what it printed on that stream.
  std::string Move(const std::string& command, const std::string& engine,
                   int code = 0) {
    const Finished done = Fsctl({command, engine});
    EXPECT_EQ(done.code, code) << done.out << done.err;
    return code == 0 ? done.out : done.err;
  }
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_EVICTION_EVICTION_SITE_H_
