#include "bench/micro/figure_lines.h"

#include "bench/report/report.h"

namespace fineserve::bench {
namespace {

process::ChildProcess Start(process::Command command, int out) {
  command.out = out;
  return process::ChildProcess(command);
}

}  // namespace

FigureProgram::FigureProgram(const process::Command& command)
    : FigureProgram(command, process::MakePipe()) {}

FigureProgram::FigureProgram(const process::Command& command,
                             process::Pipe pipe)
    : name_(command.words[0]),
      child_(Start(command, pipe.write_end.get())),
      lines_(fdopen(pipe.read_end.Release(), "r"), &fclose) {}

FigureLines FigureProgram::Finish() {
  FigureLines figures;
  char name[128];
  double value;
  while (fscanf(lines_.get(), "%127s %lf\n", name, &value) == 2) {
    figures[name] = value;
  }
  const int code = child_.Wait();
  if (code != 0) Die(name_ + " ended with " + std::to_string(code));
  return figures;
}

}  // namespace fineserve::bench
