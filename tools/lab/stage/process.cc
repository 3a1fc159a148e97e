#include "tools/lab/stage/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"

namespace fineserve::stage {
namespace {

constexpr int kPatienceMs =
    std::chrono::milliseconds(process::kPatience).count();

constexpr size_t kShownBytes = 1500;

std::string LogOf(const process::TemporaryFolder& folder) {
  return folder.path() + "/stderr";
}

process::ChildProcess Start(const std::vector<std::string>& command,
                            const Process::Environment& environment,
                            const std::string& log_file, int in,
                            absl::optional<int> out) {
  const driver::Descriptor log(
      open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  // A supervisor that is killed would leave its daemon or engines running.
  const bool supervises =
      std::any_of(command.begin(), command.end(), [](const std::string& word) {
        return word == "--supervise" || word == "up";
      });
  return process::ChildProcess(
      process::Command{.words = command,
                       .environment = environment,
                       .in = in,
                       .out = out.value_or(log.get()),
                       .err = log.get(),
                       .end_signal = supervises ? SIGTERM : SIGKILL});
}

}  // namespace

Process::Process(const std::vector<std::string>& command,
                 const Environment& environment, Stdout out)
    : Process(command, environment, out, Pipes()) {}

Process::Process(const std::vector<std::string>& command,
                 const Environment& environment, Stdout out, Pipes pipes)
    : command_(command),
      child_(Start(command, environment, LogOf(folder_),
                   pipes.to_child.read_end.get(),
                   out == Stdout::kPipe
                       ? absl::make_optional(pipes.from_child.write_end.get())
                       : absl::nullopt)),
      stdin_(std::move(pipes.to_child.write_end)),
      stdout_(std::move(pipes.from_child.read_end)) {}

bool Process::Fill() {
  pollfd ready = {stdout_.get(), POLLIN, 0};
  if (poll(&ready, 1, kPatienceMs) <= 0) {
    ADD_FAILURE() << "pid " << pid() << " printed nothing in " << kPatienceMs
                  << " ms; stderr: " << Stderr();
    return false;
  }
  char chunk[4096];
  const ssize_t n = read(stdout_.get(), chunk, sizeof(chunk));
  if (n <= 0) return false;
  buffered_.append(chunk, static_cast<size_t>(n));
  return true;
}

std::string Process::ReadLine() {
  size_t end;
  while ((end = buffered_.find('\n')) == std::string::npos) {
    if (!Fill()) return std::exchange(buffered_, "");
  }
  std::string line = buffered_.substr(0, end);
  buffered_.erase(0, end + 1);
  return line;
}

std::string Process::ReadLineWith(const std::string& prefix) {
  for (;;) {
    std::string line = ReadLine();
    if (line.empty() || line.rfind(prefix, 0) == 0) return line;
  }
}

void Process::Tell(const std::string& line) {
  const std::string text = line + "\n";
  EXPECT_EQ(write(stdin_.get(), text.data(), text.size()),
            static_cast<ssize_t>(text.size()))
      << "pid " << pid() << " takes no input; stderr: " << Stderr();
}

std::string Process::Ask(const std::string& line) {
  Tell(line);
  return ReadLine();
}

std::string Process::ReadAll() {
  while (Fill()) {
  }
  return std::exchange(buffered_, "");
}

std::string Process::Stderr() const {
  std::ifstream file(LogOf(folder_));
  return {std::istreambuf_iterator<char>(file), {}};
}

bool Process::Logs(const std::string& text) {
  bool logged = false;
  process::Eventually([&] {
    const bool ended = !alive();
    logged = HasLogged(text);
    return logged || ended;
  });
  return logged;
}

std::string Process::About() const {
  std::string logged = Stderr();
  if (logged.size() > kShownBytes) {
    logged = "..." + logged.substr(logged.size() - kShownBytes);
  }
  return absl::StrCat("pid ", pid(), ": ", absl::StrJoin(command_, " "),
                      "\nwhich logged:\n", logged);
}

int Process::Wait() {
  if (!child_.EndsWithin(process::kPatience)) {
    ADD_FAILURE() << "pid " << pid() << " does not end; stderr: " << Stderr();
    Signal(SIGKILL);
  }
  return child_.Wait();
}

Finished RunToEnd(const std::vector<std::string>& command,
                  const Process::Environment& environment) {
  Process process(command, environment);
  process.CloseStdin();
  std::string out = process.ReadAll();
  const int code = process.Wait();
  return {code, std::move(out), process.Stderr()};
}

}  // namespace fineserve::stage
