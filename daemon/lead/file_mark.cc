#include "daemon/lead/file_mark.h"

#include <sys/stat.h>

namespace fineserve::lead {
namespace {

FileMark Of(const struct stat& st) {
  return {st.st_dev, st.st_ino,
          st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec};
}

}  // namespace

FileMark MarkOf(const std::string& path) {
  struct stat st;
  return lstat(path.c_str(), &st) == 0 ? Of(st) : FileMark();
}

FileMark MarkOf(int descriptor) {
  struct stat st;
  return fstat(descriptor, &st) == 0 ? Of(st) : FileMark();
}

}  // namespace fineserve::lead
