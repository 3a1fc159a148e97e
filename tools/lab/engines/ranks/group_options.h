#ifndef TOOLS_LAB_ENGINES_RANKS_GROUP_OPTIONS_H_
#define TOOLS_LAB_ENGINES_RANKS_GROUP_OPTIONS_H_

#include <cstdint>
#include <vector>

namespace stock_engine {

struct GroupOptions {
  std::vector<int> gpus = {0};  // CUDA ordinals, one for each rank
  int rank = -1;                // this process is that rank; -1: the parent
  bool alone = false;           // one process, without ranks
  bool random = false;
  uint32_t seed = 1;
  uint32_t floor_blocks = 1;
  uint32_t weights_mib = 0;  // of each rank, which also share memory
  uint32_t port = 0;         // serves HTTP there; 0: none
  bool prompts = false;      // completions hold KV until "finish"
};

// Parses the command line; on a mistake prints one line and exits with 2.
GroupOptions ParseGroupOptions(int argc, char** argv);

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_RANKS_GROUP_OPTIONS_H_
