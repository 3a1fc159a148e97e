// Checks the architectures of this build's device code, read back from the
// image that programs ship.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>

#include <map>
#include <string>
#include <string_view>

#include "kernels/byte_range.h"

extern "C" const char fineserve_device_image[];

namespace fineserve::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::UnorderedElementsAre;

template <typename T>
T Read(const char* at) {
  T value;
  memcpy(&value, at, sizeof(value));
  return value;
}

// A fat binary is a header (magic number, u16 version, u16 header bytes, u64
// bytes of everything that follows) and entries. Each entry has a separate
// header: u16 kind (1: PTX, 2: ELF), u32 header bytes at 4, u64 content bytes
// at 8, u32 compute capability at 28. Returns the contents by "ptx 75", "sm
// 90".
std::map<std::string, std::string_view> Entries(const char* image) {
  std::map<std::string, std::string_view> entries;
  const char* at = image + Read<uint16_t>(image + 6);
  const char* const end = at + Read<uint64_t>(image + 8);
  while (at < end) {
    const auto header = Read<uint32_t>(at + 4);
    const auto content = Read<uint64_t>(at + 8);
    const std::string kind = Read<uint16_t>(at) == 1 ? "ptx " : "sm ";
    entries[kind + std::to_string(Read<uint32_t>(at + 28))] = {at + header,
                                                               content};
    at += header + content;
  }
  return entries;
}

TEST(DeviceImageTest, KernelIsThereForEachGpuSince75) {
  if (Read<uint32_t>(fineserve_device_image) != 0xba55ed50) {
    GTEST_SKIP() << "this build has no device code: run scripts/setup, then "
                    "configure again";
  }
  const auto entries = Entries(fineserve_device_image);
  EXPECT_THAT(entries, UnorderedElementsAre(Key("ptx 75"), Key("sm 80"),
                                            Key("sm 90"), Key("sm 100")));
  for (const auto& [name, content] : entries) {
    EXPECT_THAT(std::string(content), HasSubstr(kFingerprintKernel)) << name;
  }
}

}  // namespace
}  // namespace fineserve::kernels
