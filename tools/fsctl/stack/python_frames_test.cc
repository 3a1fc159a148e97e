#include "tools/fsctl/stack/python_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tools/fsctl/stack/process_stacks.h"
#include "tools/fsctl/stack/stack_command.h"
#include "tools/fsctl/stack/traced_child.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::fsctl {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Waits for a byte in a method, below a generator, C code and a lambda. A
// second thread waits, too.
constexpr char kWaits[] = R"(
import os, sys, threading
class Engine:
    def step(self, fd):
        return os.read(
            fd, 1)
def wait_for_ever():
    threading.Event().wait()
def steps(fd):
    yield Engine().step(fd)
threading.Thread(target=wait_for_ever, daemon=True).start()
sys.exit(len(list(map(lambda fd: list(steps(fd)), [int(sys.argv[1])]))))
)";

// Sets the caller of its own frame to another address: the frame itself, or an
// address where there is nothing. Offsets as in python_frames.cc.
constexpr char kBreaksItself[] = R"(
import ctypes, os, sys
def broken(fd, caller):
    frame = ctypes.c_size_t.from_address(id(sys._getframe()) + 24).value
    previous = 48 if sys.version_info < (3, 12) else 8
    ctypes.c_size_t.from_address(frame + previous).value = caller or frame
    os.read(fd, 1)
broken(int(sys.argv[1]), int(sys.argv[2]))
)";

std::string Output(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text(256, '\0');
  text.resize(pipe == nullptr ? 0 : fread(text.data(), 1, text.size(), pipe));
  if (pipe != nullptr) pclose(pipe);
  return text.substr(0, text.find('\n'));
}

// Returns the interpreters of this machine: Debian's and pyenv's.
std::vector<std::string> Interpreters() {
  std::vector<std::string> found;
  const auto add = [&](const std::filesystem::path& path) {
    std::error_code none;
    if (std::filesystem::exists(path, none)) found.push_back(path.string());
  };
  add("/usr/bin/python3");
  const char* const home = getenv("HOME");
  std::error_code none;
  for (const auto& version : std::filesystem::directory_iterator(
           std::string(home == nullptr ? "" : home) + "/.pyenv/versions",
           none)) {
    if (version.path().filename().string().rfind("3.1", 0) == 0) {
      add(version.path() / "bin/python3");
    }
  }
  return found;
}

class PythonFramesTest : public testing::Test {
 protected:
  PythonFramesTest() { EXPECT_EQ(pipe(pipe_), 0); }
  ~PythonFramesTest() override {
    close(pipe_[0]);
    close(pipe_[1]);
  }
  void SetUp() override {
    for (const std::string& path : Interpreters()) {
      const std::string version =
          Output(path + " -c 'import sys; print(sys.version_info[1])'");
      const int minor = atoi(version.c_str());
      (minor >= 11 && minor <= 13 ? known_ : unknown_).push_back(path);
    }
    if (known_.empty()) GTEST_SKIP() << "no Python of 3.11 to 3.13 here";
    TracedChild child([] { pause(); });
    if (absl::IsPermissionDenied(StacksOf(child.pid()).status())) {
      GTEST_SKIP() << "this machine does not permit ptrace";
    }
  }
  // Does not return.
  void Run(const std::string& python, const std::string& program,
           const std::string& argument = "") const {
    std::ofstream(script_) << program;
    execl(python.c_str(), python.c_str(), script_.c_str(),
          std::to_string(pipe_[0]).c_str(), argument.c_str(), nullptr);
  }
  // Returns the stack once a thread of the process is in the function.
  ThreadStack Await(pid_t pid, const std::string& function) const {
    ThreadStack found;
    EXPECT_TRUE(process::Eventually([&] {
      const auto stacks = StacksOf(pid);
      if (!stacks.ok()) return false;
      for (const ThreadStack& thread : stacks->threads) {
        for (const PythonFrame& frame : thread.python) {
          if (frame.function != function) continue;
          found = thread;
          return thread.thread.state == 'S';
        }
      }
      return false;
    })) << function;
    return found;
  }

  const process::TemporaryFolder folder_;
  const std::string script_ = folder_.path() + "/engine.py";
  std::vector<std::string> known_, unknown_;
  int pipe_[2];
};

TEST_F(PythonFramesTest, EachThreadShowsItsFunctionsWithTheirLines) {
  for (const std::string& python : known_) {
    SCOPED_TRACE(python);
    TracedChild child([&] { Run(python, kWaits); });
    EXPECT_THAT(Await(child.pid(), "wait_for_ever").python_trouble, IsEmpty());
    const ThreadStack main = Await(child.pid(), "Engine.step");
    const auto at = [&](const char* function, uint32_t line) {
      return PythonFrame{function, script_, line};
    };
    EXPECT_THAT(main.python,
                ElementsAre(at("Engine.step", 5), at("steps", 10),
                            at("<lambda>", 12), at("<module>", 12)));
    EXPECT_THAT(main.python_trouble, IsEmpty());
    EXPECT_THAT(Sentence(main),
                HasSubstr(" for Python's Engine.step (engine.py:5)"));
    // The process continues as if it had not been stopped.
    ASSERT_EQ(write(pipe_[1], "x", 1), 1);
    EXPECT_EQ(WEXITSTATUS(child.Await()), 1);
  }
}

TEST_F(PythonFramesTest, ChainThatNeverEndsIsLeft) {
  for (const std::string& python : known_) {
    SCOPED_TRACE(python);
    TracedChild child([&] { Run(python, kBreaksItself, "0"); });
    ThreadStack broken;
    EXPECT_TRUE(process::Eventually([&] {
      broken = Await(child.pid(), "broken");
      return !broken.python_trouble.empty();
    }));
    EXPECT_LE(broken.python.size(), PythonReader::kMostFrames);
    EXPECT_THAT(broken.python_trouble,
                AnyOf(HasSubstr("more than 256"), HasSubstr("too long")));
  }
}

TEST_F(PythonFramesTest, CallerThatIsNowhereEndsTheFrames) {
  for (const std::string& python : known_) {
    SCOPED_TRACE(python);
    TracedChild child([&] { Run(python, kBreaksItself, "8"); });
    ThreadStack broken;
    EXPECT_TRUE(process::Eventually([&] {
      broken = Await(child.pid(), "broken");
      return !broken.python_trouble.empty();
    }));
    EXPECT_THAT(broken.python, SizeIs(1));
    EXPECT_THAT(broken.frames, testing::Not(IsEmpty())) << "as before";
  }
}

TEST_F(PythonFramesTest, UnknownVersionSaysSoAndShowsNativeFrames) {
  if (unknown_.empty()) GTEST_SKIP() << "every Python here is known";
  TracedChild child([&] { Run(unknown_.front(), kWaits); });
  ProcessStacks stacks;
  EXPECT_TRUE(process::Eventually([&] {
    auto now = StacksOf(child.pid());
    if (now.ok()) stacks = *std::move(now);
    return !stacks.python_trouble.empty();
  }));
  EXPECT_THAT(stacks.threads.front().python, IsEmpty());
  EXPECT_THAT(StacksText({stacks}, false),
              HasSubstr("its functions are not shown\n"));
}

TEST_F(PythonFramesTest, ProcessThatIsNoPythonShowsNone) {
  TracedChild child([] { pause(); });
  const auto stacks = StacksOf(child.pid());
  ASSERT_TRUE(stacks.ok()) << stacks.status();
  EXPECT_THAT(stacks->python_trouble, IsEmpty());
  EXPECT_THAT(stacks->threads.front().python, IsEmpty());
}

// The table follows CPython's Objects/locations.md: two units of line 10, one
// without a line, three of line 7 (a long form), eight of line 8.
TEST(PythonLineTest, LineIsThatOfTheInstruction) {
  const std::string table =
      "\xd1\x01\x02"          // one line form, delta 0, two units
      "\xf8"                  // no line, one unit
      "\xf2\x07\x01\x01\x01"  // long form, delta -3, three units
      "\xdf\x01\x02";         // one line form, delta +1, eight units
  EXPECT_EQ(PythonLine(table, 10, -1), 10u) << "not begun";
  EXPECT_EQ(PythonLine(table, 10, 1), 10u);
  EXPECT_EQ(PythonLine(table, 10, 2), 0u);
  EXPECT_EQ(PythonLine(table, 10, 3), 7u);
  EXPECT_EQ(PythonLine(table, 10, 13), 8u);
  EXPECT_EQ(PythonLine(table, 10, 14), 0u) << "behind the last";
  EXPECT_EQ(PythonLine("", 10, 0), 0u);
  EXPECT_EQ(PythonLine("\xf2\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f", 10, 0), 0u)
      << "a number that does not end";
}

}  // namespace
}  // namespace fineserve::fsctl
