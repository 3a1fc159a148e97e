#ifndef SHIM_TESTDATA_PROCESS_FIXTURE_H_
#define SHIM_TESTDATA_PROCESS_FIXTURE_H_

// Runs our test programs under the preload, on the null driver by default.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "shim/testdata/fake_daemon.h"

namespace fineserve::shim {

using Words = std::vector<std::string>;

inline constexpr uint8_t kNullGpu[16] = {'f', 'i', 'n', 'e', 's', 'e',
                                         'r', 'v', 'e', '-', 'n', 'u',
                                         'l', 'l', '-', '0'};

inline std::string OwnFolder() {
  char path[PATH_MAX] = "";
  if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0) return ".";
  const std::string own(path);
  return own.substr(0, own.rfind('/'));
}

inline std::string Lib(const std::string& name) {
  return OwnFolder() + "/../lib/" + name;
}

inline std::string Absolute(const std::string& name,
                            const std::string& folder) {
  return name[0] == '/' ? name : folder + name;
}

struct Ran {
  int status;
  std::string out;
  std::string err;
};

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

inline std::vector<char*> Pointers(const Words& words) {
  std::vector<char*> pointers;
  for (const std::string& w : words)
    pointers.push_back(const_cast<char*>(w.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

class ProcessTest : public testing::Test {
 protected:
  // Runs a test program under these preloads, with nothing else from this
  // process's environment.
  Ran Run(const std::string& program, const Words& words, const Words& preloads,
          const Words& more_environment = {}) {
    Words argv = {program};
    argv.insert(argv.end(), words.begin(), words.end());
    std::string preload;
    for (const std::string& p : preloads) preload += Absolute(p, Lib("")) + ":";
    Words environment = {"LD_PRELOAD=" + preload,
                         "LD_LIBRARY_PATH=" + Lib(driver_),
                         "FINESERVE_RUNTIME_DIR=" + folder_.path()};
    environment.insert(environment.end(), more_environment.begin(),
                       more_environment.end());
    const std::string out = folder_.path() + "/out";
    const std::string err = folder_.path() + "/err";
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&files, 1, out.c_str(), kFlags, 0600);
    posix_spawn_file_actions_addopen(&files, 2, err.c_str(), kFlags, 0600);
    pid_t child = -1;
    const std::string path = Absolute(program, OwnFolder() + "/");
    EXPECT_EQ(posix_spawn(&child, path.c_str(), &files, nullptr,
                          Pointers(argv).data(), Pointers(environment).data()),
              0);
    posix_spawn_file_actions_destroy(&files);
    int status = -1;
    waitpid(child, &status, 0);
    return {status, ReadAll(out), ReadAll(err)};
  }

  Ran RunCuda(const Words& words, const Words& environment = {}) {
    return Run("shim_cuda_program", words, {"libfineserve_shim.so"},
               environment);
  }
  std::string RunDlsym(const Words& words,
                       const Words& preloads = {"libfineserve_shim.so"}) {
    const Ran ran = Run("shim_dlsym_program", words, preloads);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.err, "");
    return ran.out;
  }
  void StartDaemon(const FakeDaemon::Options& options = {}) {
    daemon_ = std::make_unique<FakeDaemon>(folder_.path(), kNullGpu, options);
  }

  std::string driver_ = "nulldriver";  // the folder of the libcuda.so.1
  TemporaryFolder folder_;
  std::unique_ptr<FakeDaemon> daemon_;
};

}  // namespace fineserve::shim

#endif  // SHIM_TESTDATA_PROCESS_FIXTURE_H_
