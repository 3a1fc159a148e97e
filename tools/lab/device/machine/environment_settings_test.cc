#include "tools/lab/device/machine/environment_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace fineserve::emucuda {
namespace {

TEST(SettingsTest, BytesTakeBinaryUnits) {
  EXPECT_EQ(ParseBytes("512MiB"), uint64_t{512} << 20);
  EXPECT_EQ(ParseBytes("16GiB"), uint64_t{16} << 30);
  EXPECT_EQ(ParseBytes("2M"), uint64_t{2} << 20);
  EXPECT_EQ(ParseBytes("4096"), 4096u);
}

TEST(SettingsTest, MalformedBytesAreRefused) {
  for (const char* text : {"", "0", "GiB", "-1GiB", "1 GiB", "1XiB", "1GiB ",
                           "99999999999999999999", "99999999TiB"}) {
    EXPECT_EQ(ParseBytes(text), std::nullopt) << text;
  }
}

TEST(SettingsTest, NumbersStayInTheirBounds) {
  EXPECT_EQ(ParseNumber("8", 1, 8), 8u);
  for (const char* text : {"9", "0", "", "1x", "+1", "0x1"}) {
    EXPECT_EQ(ParseNumber(text, 1, 8), std::nullopt) << text;
  }
}

TEST(SettingsTest, HostileProfileGivesWayToSingleVariables) {
  setenv("EMUCUDA_PROFILE", "hostile", 1);
  setenv("EMUCUDA_PERSISTENCE", "on", 1);
  setenv("EMUCUDA_POISON", "7", 1);
  std::string complaint;
  const Settings settings = ReadSettings(&complaint);
  EXPECT_EQ(complaint, "");
  EXPECT_TRUE(settings.aliases_apart);
  EXPECT_TRUE(settings.strict_captures);
  EXPECT_TRUE(settings.machine_lock);
  EXPECT_TRUE(settings.unmapping_waits);
  EXPECT_TRUE(settings.unequal_contexts);
  EXPECT_GT(settings.context_growth, 0u);
  EXPECT_FALSE(settings.not_persistent);
  EXPECT_EQ(settings.poison, 7);
  for (const char* name :
       {"EMUCUDA_PROFILE", "EMUCUDA_PERSISTENCE", "EMUCUDA_POISON"}) {
    unsetenv(name);
  }
}

TEST(SettingsTest, ComplaintNamesTheVariable) {
  setenv("EMUCUDA_MEMORY", "3MiB", 1);
  std::string complaint;
  const Settings settings = ReadSettings(&complaint);
  EXPECT_NE(complaint.find("EMUCUDA_MEMORY=3MiB"), std::string::npos);
  EXPECT_EQ(settings.memory_bytes, uint64_t{80} << 30);
  unsetenv("EMUCUDA_MEMORY");
}

}  // namespace
}  // namespace fineserve::emucuda
