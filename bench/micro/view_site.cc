#include "bench/micro/view_site.h"

#include <stdio.h>

#include "absl/strings/str_cat.h"
#include "bench/micro/report.h"
#include "tests/process/child_process.h"

namespace fineserve::bench {
namespace {

struct Engine {
  process::ChildProcess child;
  FILE* lines;  // its standard output
};

Engine Start(const std::vector<std::string>& flags,
             const process::Environment& environment) {
  process::Pipe pipe = process::MakePipe();
  std::vector<std::string> words = {process::ProgramFolder() +
                                    "/bench_view_engine"};
  words.insert(words.end(), flags.begin(), flags.end());
  return {process::ChildProcess(process::Command{.words = words,
                                                 .environment = environment,
                                                 .out = pipe.write_end.get(),
                                                 .end_signal = SIGTERM}),
          fdopen(pipe.read_end.Release(), "r")};
}

ViewSite::Figures Parse(FILE* lines) {
  ViewSite::Figures figures;
  char name[128];
  double value;
  while (fscanf(lines, "%127s %lf\n", name, &value) == 2) figures[name] = value;
  return figures;
}

}  // namespace

std::vector<ViewSite::Figures> ViewSite::RunEngines(
    const std::vector<std::vector<std::string>>& flags) {
  std::vector<Engine> running;
  for (size_t i = 0; i < flags.size(); ++i) {
    running.push_back(Start(flags[i], UnderPreload(absl::StrCat("bench-", i))));
  }
  std::vector<Figures> figures;
  for (Engine& engine : running) {
    figures.push_back(Parse(engine.lines));
    fclose(engine.lines);
    const int code = engine.child.Wait();
    if (code != 0) Die(absl::StrCat("an engine ended with ", code));
  }
  return figures;
}

}  // namespace fineserve::bench
