// Runs a fuzz target without a fuzzer: random inputs and random damage to
// seeds of the target's own. The same targets link with libFuzzer
// (CMake -DFINESERVE_LIBFUZZER=ON with clang) for long runs.
//
//   x_fuzz [RUNS [SEED]]
//   x_fuzz --seeds FOLDER    writes the seeds there, for libFuzzer to start
//   from

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/target.h"

namespace {

std::vector<uint8_t> RandomBytes(std::mt19937* random) {
  std::vector<uint8_t> bytes((*random)() % 2048);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>((*random)());
  return bytes;
}

std::vector<uint8_t> Damaged(std::vector<uint8_t> bytes, std::mt19937* random) {
  for (uint32_t n = 1 + (*random)() % 8; n > 0 && !bytes.empty(); --n) {
    // Headers decide how the rest is read, so most of the damage goes there.
    const size_t reach = (*random)() % 4 == 0
                             ? bytes.size()
                             : std::min<size_t>(bytes.size(), 256);
    bytes[(*random)() % reach] ^= 1u << ((*random)() % 8);
  }
  if ((*random)() % 4 == 0) bytes.resize((*random)() % (bytes.size() + 1));
  return bytes;
}

int WriteSeeds(const std::string& folder) {
  int number = 0;
  for (const std::vector<uint8_t>& seed : fineserve::fuzz::Seeds()) {
    const std::string path = folder + "/seed-" + std::to_string(number++);
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()),
               static_cast<std::streamsize>(seed.size()));
    if (!file.flush()) {
      fprintf(stderr, "%s: cannot be written\n", path.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--seeds") == 0) return WriteSeeds(argv[2]);
  const int runs = argc > 1 ? atoi(argv[1]) : 20000;
  const uint32_t seed =
      argc > 2 ? static_cast<uint32_t>(atoi(argv[2])) : std::random_device{}();
  printf("%d runs, seed %u\n", runs, seed);
  fflush(stdout);  // the seed must be known after a crash
  std::mt19937 random(seed);
  const std::vector<std::vector<uint8_t>> seeds = fineserve::fuzz::Seeds();
  for (int i = 0; i < runs; ++i) {
    const bool fresh = seeds.empty() || random() % 4 == 0;
    const std::vector<uint8_t> input =
        fresh ? RandomBytes(&random)
              : Damaged(seeds[random() % seeds.size()], &random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  puts("no crash");
  return 0;
}
