#include "tools/fsctl/processes/child.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace fineserve::fsctl {
namespace {

// A busy machine may be slow, but that is not an error.
constexpr absl::Duration kPatience = absl::Minutes(1);

TEST(ChildTest, OutputAndExitCodeComeBack) {
  const ChildResult r = RunChild(
      [](int output) { return write(output, "hello", 5) == 5 ? 7 : 1; },
      kPatience);
  EXPECT_EQ(r.output, "hello");
  EXPECT_EQ(r.exit_code, 7);
  EXPECT_EQ(r.signal, 0);
  EXPECT_FALSE(r.timed_out);
}

TEST(ChildTest, ProgramIsWhatExecFinds) {
  EXPECT_TRUE(IsProgram("sh"));
  EXPECT_TRUE(IsProgram("/bin/sh"));
  EXPECT_FALSE(IsProgram("fineserve-no-such-program"));
  EXPECT_FALSE(IsProgram("/bin"));
  EXPECT_FALSE(IsProgram("/etc/passwd"));
  EXPECT_FALSE(IsProgram(""));
}

TEST(ChildTest, KilledChildIsReportedBySignal) {
  const ChildResult r = RunChild([](int) { return raise(SIGKILL); }, kPatience);
  EXPECT_EQ(r.signal, SIGKILL);
  EXPECT_FALSE(r.timed_out);
}

TEST(ChildTest, ChildThatHangsIsKilledAfterTheTimeLimit) {
  const ChildResult r = RunChild(
      [](int) {
        for (;;) pause();
        return 0;
      },
      absl::Milliseconds(30));
  EXPECT_TRUE(r.timed_out);
  EXPECT_EQ(r.signal, SIGKILL);
}

TEST(ChildTest, EndlessOutputIsCutAndBounded) {
  const ChildResult r = RunChild(
      [](int output) {
        signal(SIGPIPE, SIG_DFL);
        char block[4096] = {};
        for (int i = 0; i < 100; ++i) {
          if (write(output, block, sizeof(block)) < 0) return 1;
        }
        return 0;
      },
      kPatience);
  EXPECT_EQ(r.output.size(), 64u << 10);
  EXPECT_EQ(r.exit_code, 0);
}

TEST(ChildTest, ProgramGetsItsInputAndEnvironment) {
  const ChildResult r =
      RunProgram({{"sh", "-c", "read line; echo $line $WORD; exit 3"},
                  {{"WORD", "world"}},
                  "hello\n",
                  ""},
                 absl::Seconds(20));
  EXPECT_EQ(r.output, "hello world\n");
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_FALSE(r.succeeded());
}

TEST(ChildTest, ProgramThatCannotStartIsReportedAsByAShell) {
  EXPECT_EQ(
      RunProgram({{"/nonexistent"}, {}, "", ""}, absl::Seconds(20)).exit_code,
      kExitNotFound);
  EXPECT_EQ(
      RunProgram({{"/dev/null"}, {}, "", ""}, absl::Seconds(20)).exit_code,
      kExitNotExecutable);
}

}  // namespace
}  // namespace fineserve::fsctl
