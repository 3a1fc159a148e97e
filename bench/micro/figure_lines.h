#ifndef BENCH_MICRO_FIGURE_LINES_H_
#define BENCH_MICRO_FIGURE_LINES_H_

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "tests/process/child_process.h"

namespace fineserve::bench {

// What a program printed: "name value" lines.
using FigureLines = std::map<std::string, double>;

// A program that measures and prints such lines, which this process reads.
class FigureProgram {
 public:
  // Its standard output is ours.
  explicit FigureProgram(const process::Command& command);

  // What it printed once it has ended; ends the bench if it failed.
  FigureLines Finish();

 private:
  FigureProgram(const process::Command& command, process::Pipe pipe);

  std::string name_;
  process::ChildProcess child_;
  std::unique_ptr<FILE, int (*)(FILE*)> lines_;
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_FIGURE_LINES_H_
