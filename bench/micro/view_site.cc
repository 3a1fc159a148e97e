#include "bench/micro/view_site.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "bench/micro/report.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::bench {
namespace {

struct Engine {
  Process process;
  FILE* lines;  // its standard output
};

Engine Start(const std::vector<std::string>& flags,
             const std::vector<std::string>& environment) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Die("pipe2");
  const driver::Descriptor output(ends[1]);
  std::vector<std::string> words = {ProgramFolder() + "/bench_view_engine"};
  words.insert(words.end(), flags.begin(), flags.end());
  return {Process(words, environment, output.get()), fdopen(ends[0], "r")};
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
    const int status = engine.process.Wait();
    if (status != 0) Die(absl::StrCat("an engine ended with status ", status));
  }
  return figures;
}

}  // namespace fineserve::bench
