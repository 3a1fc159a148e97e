#include <stdio.h>

#include <fstream>

#include "tools/lab/loadgen/options.h"
#include "tools/lab/loadgen/report.h"
#include "tools/lab/loadgen/run.h"

namespace fineserve::loadgen {
namespace {

bool Write(const std::string& path, const std::string& text) {
  if (path.empty()) return true;
  std::ofstream file(path);
  file << text;
  if (file.flush()) return true;
  fprintf(stderr, "loadgen: cannot write %s\n", path.c_str());
  return false;
}

int Main(int argc, char** argv) {
  Options options;
  workload::Trace trace;
  int status = 0;
  if (!ReadOptions(argc, argv, &options, &trace, &status)) return status;
  const RunResult result = Run(options, trace);
  Print(result, trace);
  const bool written =
      Write(options.json_path, ToJson(result, trace, options.source)) &&
      Write(options.svg_path, ToSvg(result));
  return written && result.answered > 0 ? 0 : 1;
}

}  // namespace
}  // namespace fineserve::loadgen

int main(int argc, char** argv) { return fineserve::loadgen::Main(argc, argv); }
