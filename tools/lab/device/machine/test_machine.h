#ifndef TOOLS_LAB_DEVICE_MACHINE_TEST_MACHINE_H_
#define TOOLS_LAB_DEVICE_MACHINE_TEST_MACHINE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "tools/lab/device/machine/physical_memory.h"
#include "tools/lab/device/machine/state_folder.h"

namespace fineserve::emucuda {

// A state folder that lives as long as one test. Each Open() acts like a
// separate process, because OFD locks belong to descriptions and not to
// processes.
class TestMachine {
 public:
  TestMachine() {
    if (mkdtemp(path_.data()) == nullptr) abort();
  }
  ~TestMachine() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  StateFolder Folder() const {
    std::string complaint;
    auto folder = StateFolder::Open(path_, &complaint);
    EXPECT_TRUE(folder.has_value()) << complaint;
    return *folder;
  }
  std::unique_ptr<PhysicalMemory> Open(uint64_t bytes,
                                       bool is_persistent = true) const {
    return PhysicalMemory::Open(Folder(), 0, bytes, std::nullopt, 0,
                                is_persistent);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/emucuda-test-XXXXXX";
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_TEST_MACHINE_H_
