#include "tools/fsctl/stack/stack_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ThreadStack Thread(pid_t tid, uint64_t address, const std::string& function) {
  ThreadStack stack;
  stack.thread.tid = tid;
  stack.thread.name = "worker";
  stack.thread.state = 'S';
  stack.thread.stopped_s = 0.0002;
  stack.frames = {{address, {function, "engine", 0x12}}};
  return stack;
}

TEST(StackOutputTest, ThreadsInTheSamePlaceAreShownOnce) {
  ProcessStacks process{
      4711,
      {Thread(4711, 1, "Serve+0x1"), Thread(4712, 2, "Idle+0x4"),
       Thread(4713, 2, "Idle+0x4")}};
  const std::string text = StacksText({process}, false);
  EXPECT_THAT(text, HasSubstr("pid 4711: 3 threads, each stopped for at most "
                              "0.2 ms\n"));
  EXPECT_THAT(text, HasSubstr("thread 4711 waits in Serve (worker)\n"
                              "    Serve+0x1  engine+0x12\n"));
  EXPECT_THAT(text, HasSubstr("thread 4712 waits in Idle (worker); the same: "
                              "4713\n"));
  EXPECT_THAT(text, Not(HasSubstr("thread 4713")));
}

TEST(StackOutputTest, AThreadWithoutAStackSaysWhy) {
  ThreadStack stuck;
  stuck.thread.tid = 4712;
  stuck.thread.state = 'D';
  stuck.thread.kernel_wait = "nfs_wait";
  stuck.thread.trouble = "it did not stop within 20 ms (state D)";
  EXPECT_THAT(
      StacksText({{4711, {stuck}}}, false),
      HasSubstr("thread 4712 waits in nfs_wait ()\n    no stack: it did "
                "not stop within 20 ms (state D)\n"));
}

TEST(StackOutputTest, PythonFunctionsAreBelowTheNativeFrames) {
  ThreadStack first = Thread(4712, 2, "os_read+0x4");
  first.python = {{"Engine.step", "/srv/engine.py", 12}};
  ThreadStack second = Thread(4713, 2, "os_read+0x4");
  second.python_trouble = "its other Python frames cannot be read";
  const std::string text = StacksText({{4711, {first, second}}}, false);
  EXPECT_THAT(text, HasSubstr("thread 4712 waits in os_read for Python's "
                              "Engine.step (engine.py:12) (worker)\n"
                              "    os_read+0x4  engine+0x12\n"
                              "    Python: Engine.step  /srv/engine.py:12\n"));
  EXPECT_THAT(text, HasSubstr("thread 4713")) << "it is elsewhere in Python";
  EXPECT_THAT(text, HasSubstr("    its other Python frames cannot be read\n"));
  const auto json = nlohmann::json::parse(StacksJson({{4711, {first}}}));
  const auto& frame = json["processes"][0]["threads"][0]["python"][0];
  EXPECT_EQ(frame["function"], "Engine.step");
  EXPECT_EQ(frame["line"], 12);
}

TEST(StackOutputTest, JsonHasEveryThreadAndFrame) {
  ThreadStack unknown = Thread(4713, 3, "");
  unknown.frames[0].place = {};
  const auto json = nlohmann::json::parse(
      StacksJson({{4711, {Thread(4711, 1, "Serve+0x1"), unknown}}}));
  const auto& process = json["processes"][0];
  EXPECT_EQ(process["pid"], 4711);
  EXPECT_EQ(process["summary"], "thread 4711 waits in Serve");
  EXPECT_DOUBLE_EQ(process["longest_stop_ms"], 0.2);
  ASSERT_EQ(process["threads"].size(), 2u);
  const auto& thread = process["threads"][0];
  EXPECT_EQ(thread["tid"], 4711);
  EXPECT_EQ(thread["in"], "Serve");
  EXPECT_EQ(thread["frames"][0]["function"], "Serve+0x1");
  EXPECT_EQ(thread["frames"][0]["module"], "engine");
  EXPECT_TRUE(thread["idle_s"].is_null());
  const auto& frame = process["threads"][1]["frames"][0];
  EXPECT_EQ(frame["address"], "0x3");
  EXPECT_TRUE(frame["function"].is_null());
  EXPECT_TRUE(frame["offset"].is_null());
}

}  // namespace
}  // namespace fineserve::fsctl
