#include "bench/micro/view_site.h"

#include <memory>

#include "absl/strings/str_cat.h"

namespace fineserve::bench {

std::vector<FigureLines> ViewSite::RunPrograms(
    const std::string& program,
    const std::vector<std::vector<std::string>>& flags) {
  std::vector<std::unique_ptr<FigureProgram>> engines;
  for (size_t i = 0; i < flags.size(); ++i) {
    process::Command command = {
        .words = {process::ProgramFolder() + "/" + program},
        .environment = UnderPreload(absl::StrCat("bench-", i)),
        .end_signal = SIGTERM};
    command.words.insert(command.words.end(), flags[i].begin(), flags[i].end());
    engines.push_back(std::make_unique<FigureProgram>(command));
  }
  std::vector<FigureLines> figures;
  for (const auto& engine : engines) figures.push_back(engine->Finish());
  return figures;
}

}  // namespace fineserve::bench
