#include "tools/fsctl/status/version_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

std::vector<VersionedPart> Parts() {
  std::vector<VersionedPart> parts = {{"fsctl", 0, "0.2.0"},
                                      {"fineserved", 11, "0.1.0"},
                                      {"fineserve-proxy", 12, "0.2.0"},
                                      {"engine chat", 13, ""}};
  MarkFormer(&parts);
  return parts;
}

TEST(VersionTest, PartsOfAnotherReleaseThanFsctlAreFormer) {
  const std::vector<VersionedPart> parts = Parts();
  EXPECT_TRUE(parts[1].is_former);
  EXPECT_FALSE(parts[2].is_former);
  EXPECT_FALSE(parts[3].is_former) << "it does not say";
}

TEST(VersionTest, IsShownForEachPart) {
  EXPECT_THAT(VersionsText(Parts(), false),
              HasSubstr("fineserved        11  0.1.0"));
  const auto json = nlohmann::json::parse(VersionsJson(Parts()));
  EXPECT_EQ(json.at("same"), false);
  EXPECT_EQ(json.at("parts")[1].at("version"), "0.1.0");
  EXPECT_TRUE(json.at("parts")[3].at("version").is_null());
}

}  // namespace
}  // namespace fineserve::fsctl
