#ifndef TESTS_INTEGRATION_SITE_H_
#define TESTS_INTEGRATION_SITE_H_

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "tools/lab/process/eventually.h"
#include "tools/lab/stage/figures.h"
#include "tools/lab/stage/http_client.h"
#include "tools/lab/stage/json_value.h"
#include "tools/lab/stage/machine.h"
#include "tools/lab/stage/process.h"

namespace fineserve::integration {

using process::Breathe;
using process::Eventually;
using process::With;
using process::Words;
using stage::Finished;
using stage::HttpClient;
using stage::HttpResponse;
using stage::IsJson;
using stage::JsonAt;
using stage::JsonInt;
using stage::JsonText;
using stage::Process;
using stage::RunToEnd;

// A separate machine for each test, whose memory is poisoned so that it is
// never zero by chance.
class Site : public ::testing::Test, protected stage::Machine {
 protected:
  Site() { Set("EMUCUDA_POISON", "165"); }

  // Returns the device's free memory, as an engine sees it.
  static uint64_t FreeBytes(Process& engine) {
    return static_cast<uint64_t>(
        stage::FigureIn(engine.Ask("checkfree"), "free"));
  }
  // Returns the host memory in the store files that these processes hold.
  static uint64_t StoreBytesIn(const std::vector<pid_t>& pids) {
    uint64_t bytes = 0;
    std::set<ino_t> counted;
    std::error_code error;
    for (const pid_t pid : pids) {
      for (const auto& fd : std::filesystem::directory_iterator(
               "/proc/" + std::to_string(pid) + "/fd", error)) {
        const std::string target =
            std::filesystem::read_symlink(fd.path(), error).string();
        struct stat st = {};
        if (target.find("fineserve-store") != std::string::npos &&
            stat(fd.path().c_str(), &st) == 0 &&
            counted.insert(st.st_ino).second) {
          bytes += static_cast<uint64_t>(st.st_blocks) * 512;
        }
      }
    }
    return bytes;
  }
  static uint64_t StoreBytesIn(pid_t pid) {
    return StoreBytesIn(std::vector<pid_t>{pid});
  }
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_SITE_H_
