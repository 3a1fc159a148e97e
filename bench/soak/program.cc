#include "bench/soak/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::bench {
namespace {

constexpr size_t kShownBytes = 1500;

process::ChildProcess Start(const std::string& log,
                            const std::vector<std::string>& words,
                            const process::Environment& environment,
                            int end_signal, int in) {
  const driver::Descriptor out(
      open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  return process::ChildProcess(process::Command{.words = words,
                                                .environment = environment,
                                                .in = in,
                                                .out = out.get(),
                                                .err = out.get(),
                                                .end_signal = end_signal});
}

}  // namespace

Program::Program(std::string log, std::vector<std::string> words,
                 const process::Environment& environment, int end_signal)
    : Program(std::move(log), std::move(words), environment, end_signal,
              process::MakePipe()) {}

Program::Program(std::string log, std::vector<std::string> words,
                 const process::Environment& environment, int end_signal,
                 process::Pipe pipe)
    : log_(std::move(log)),
      words_(std::move(words)),
      stdin_(std::move(pipe.write_end)),
      child_(
          Start(log_, words_, environment, end_signal, pipe.read_end.get())) {}

Program::~Program() {
  child_.End();
  unlink(log_.c_str());
}

void Program::Tell(const std::string& line) {
  const std::string text = line + "\n";
  // If the program is dead, the caller finds out when no answer comes.
  if (write(stdin_.get(), text.data(), text.size()) < 0) return;
}

std::string Program::Printed() const {
  std::ifstream file(log_);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool Program::Prints(const std::string& text) {
  bool printed = false;
  process::Eventually([&] {
    const bool ended = !alive();
    printed = HasPrinted(text);
    return printed || ended;
  });
  return printed;
}

std::string Program::About() const {
  std::string printed = Printed();
  if (printed.size() > kShownBytes) {
    printed = "..." + printed.substr(printed.size() - kShownBytes);
  }
  return absl::StrCat("pid ", pid(), ": ", absl::StrJoin(words_, " "),
                      "\nwhich printed:\n", printed);
}

}  // namespace fineserve::bench
