#include "tools/fsctl/plan/steer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SteerTest, PinIsAModelAndAGpu) {
  SteerOptions options;
  options.pin = "org/chat=8b=GPU-8f0c";
  const auto steer = SteerOf(options);
  ASSERT_TRUE(steer.ok()) << steer.status();
  EXPECT_EQ(steer->pin, "org/chat=8b");
  EXPECT_EQ(steer->gpu, "GPU-8f0c");
  EXPECT_FALSE(steer->freeze || steer->thaw || steer->apply);
  EXPECT_EQ(steer->unpin, "");
}

TEST(SteerTest, PinWithoutModelOrGpuIsRefusedWithTheFix) {
  for (const char* pin : {"chat", "=GPU-8f0c", "chat="}) {
    SteerOptions options;
    options.pin = pin;
    EXPECT_THAT(std::string(SteerOf(options).status().message()),
                HasSubstr("write MODEL=GPU, such as --pin chat=GPU-8f0c3f1e"))
        << pin;
  }
}

TEST(SteerTest, EveryOptionIsAFlagAndOneFieldOfTheMessage) {
  SteerOptions options;
  EXPECT_THAT(FlagsOf(options), IsEmpty());
  options.freeze = options.thaw = options.apply = true;
  options.pin = "a=b";
  options.unpin = "c";
  EXPECT_THAT(FlagsOf(options),
              ElementsAre("--freeze", "--thaw", "--apply", "--pin", "--unpin"));
  const auto steer = SteerOf(options);
  ASSERT_TRUE(steer.ok());
  EXPECT_TRUE(steer->freeze && steer->thaw && steer->apply);
  EXPECT_EQ(steer->unpin, "c");
}

TEST(SteerTest, EachIsConfirmedInItsOwnWords) {
  wire::SteerT freeze, thaw, apply, pin, unpin;
  freeze.freeze = true;
  thaw.thaw = true;
  apply.apply = true;
  pin.pin = "chat";
  pin.gpu = "GPU-8f0c";
  unpin.unpin = "chat";
  EXPECT_EQ(SteeredText(freeze),
            "frozen: no model moves until fsctl plan --thaw\n");
  EXPECT_EQ(SteeredText(thaw), "no longer frozen: models may move\n");
  EXPECT_THAT(SteeredText(apply), HasSubstr("best plan's moves"));
  EXPECT_EQ(SteeredText(pin),
            "chat: stays on GPU-8f0c until fsctl plan --unpin chat\n");
  EXPECT_EQ(SteeredText(unpin), "chat: no longer pinned, may move\n");
}

}  // namespace
}  // namespace fineserve::fsctl
