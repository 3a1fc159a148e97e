#include "tools/fsctl/process/read_file.h"

#include <fstream>
#include <iterator>

namespace fineserve::fsctl {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace fineserve::fsctl
