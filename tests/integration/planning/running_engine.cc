#include "tests/integration/planning/running_engine.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace fineserve::integration {
namespace {

// Returns the command line of a process; empty if the process has ended.
std::vector<std::string> CommandLine(const std::filesystem::path& process) {
  std::ifstream file(process / "cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) {
    words.push_back(word);
  }
  return words;
}

bool IsTinyserveOn(const std::vector<std::string>& command,
                   const std::string& port) {
  if (command.empty() ||
      std::filesystem::path(command[0]).filename() != "tinyserve") {
    return false;
  }
  const auto flag = std::find(command.begin(), command.end(), "--port");
  return flag != command.end() && flag + 1 != command.end() &&
         *(flag + 1) == port;
}

}  // namespace

pid_t TinyserveOn(uint16_t port) {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc", error)) {
    const pid_t pid = atoi(entry.path().filename().c_str());
    if (pid > 0 &&
        IsTinyserveOn(CommandLine(entry.path()), std::to_string(port))) {
      return pid;
    }
  }
  return 0;
}

}  // namespace fineserve::integration
