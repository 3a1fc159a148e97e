#include "shim/hooks/python_path.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fineserve::shim {
namespace {

TEST(PythonPathTest, InterpretersAreKnownByTheirName) {
  for (const char* yes :
       {"/usr/bin/python3.11", "/opt/venv/bin/python", "python3.13t"}) {
    EXPECT_TRUE(IsPython(yes)) << yes;
  }
  for (const char* no : {"/usr/bin/bash", "/opt/python3/bin/vllm", "",
                         "/usr/bin/ipython", "/usr/bin/"}) {
    EXPECT_FALSE(IsPython(no)) << no;
  }
}

TEST(PythonPathTest, OptionsThatHideTheEnvironmentAreFound) {
  struct Case {
    std::vector<const char*> arguments;
    bool ignores;
  };
  const Case cases[] = {
      {{}, false},
      {{"-E"}, true},
      {{"-I", "serve.py"}, true},
      {{"-sE", "-m", "vllm"}, true},
      {{"-u", "-B", "-I"}, true},
      {{"-W", "error", "-E"}, true},
      {{"-W", "-E", "serve.py"}, false},  // a value
      {{"-WE"}, false},
      {{"-Xfrozen_modules=off", "-I"}, true},
      {{"-X", "importtime", "serve.py", "-E"}, false},
      {{"-X"}, false},
      {{"-m", "vllm", "-E"}, false},
      {{"-mE"}, false},
      {{"-c", "pass", "-I"}, false},
      {{"-", "-E"}, false},
      {{"serve.py", "-I"}, false},
      {{"--version", "-E"}, true},
      {{"--check-hash-based-pycs", "-E"}, false},
  };
  for (const Case& c : cases) {
    std::vector<const char*> argv = {"python3"};
    std::string text;
    for (const char* argument : c.arguments) {
      argv.push_back(argument);
      text += argument + std::string(" ");
    }
    argv.push_back(nullptr);
    EXPECT_EQ(IgnoresPythonPath(argv.data()), c.ignores) << text;
  }
  const char* const nothing[] = {nullptr};
  EXPECT_FALSE(IgnoresPythonPath(nothing));
}

std::string Prepended(const char* folder, const char* path,
                      size_t capacity = 100) {
  char out[100] = "";
  return PrependToPath(folder, path, out, capacity) ? out : "unchanged";
}

TEST(PythonPathTest, TheFolderComesFirstAndOnce) {
  EXPECT_EQ(Prepended("/f", nullptr), "/f");
  EXPECT_EQ(Prepended("/f", ""), "/f");
  EXPECT_EQ(Prepended("/f", "/a:/b"), "/f:/a:/b");
  EXPECT_EQ(Prepended("/f", "/ff:/f/g"), "/f:/ff:/f/g");
  EXPECT_EQ(Prepended("/f", "/a::"), "/f:/a::");
  for (const char* there : {"/f", "/f:/a", "/a:/f", "/a:/f:/b"}) {
    EXPECT_EQ(Prepended("/f", there), "unchanged") << there;
  }
}

TEST(PythonPathTest, PathThatDoesNotFitChangesNothing) {
  EXPECT_EQ(Prepended("/a:b", "/c"), "unchanged");
  EXPECT_EQ(Prepended("/f", "/abc", 7), "unchanged");
  EXPECT_EQ(Prepended("/f", "/abc", 8), "/f:/abc");
}

}  // namespace
}  // namespace fineserve::shim
