#ifndef BENCH_MICRO_FIGURE_LINES_H_
#define BENCH_MICRO_FIGURE_LINES_H_

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "tools/lab/process/child_process.h"

namespace fineserve::bench {

// "name value" lines that a program has printed.
using FigureLines = std::map<std::string, double>;

// A program that measures, and prints such lines for this process to read.
class FigureProgram {
 public:
  // Takes over the program's standard output.
  explicit FigureProgram(const process::Command& command);

  // Waits for the program's end and returns its lines. Ends the bench if the
  // program failed.
  FigureLines Finish();

 private:
  FigureProgram(const process::Command& command, process::Pipe pipe);

  std::string name_;
  process::ChildProcess child_;
  std::unique_ptr<FILE, int (*)(FILE*)> lines_;
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_FIGURE_LINES_H_
