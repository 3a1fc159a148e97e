#include "tools/lab/engines/ranks/failures.h"

#include <cstdio>
#include <cstdlib>

namespace stock_engine {

void Require(int result, const char* function) {
  if (result == FS_OK) return;
  printf("error %s %d %s\n", function, result, fs_kv_error());
  fprintf(stderr, "%s: %d %s\n", function, result, fs_kv_error());
  exit(kExitNoView);
}

}  // namespace stock_engine
