// A very old driver, with a few functions and no resolver.

#define OLD_DRIVER_EXPORT \
  extern "C" __attribute__((visibility("default"))) unsigned

OLD_DRIVER_EXPORT cuInit(unsigned) { return 0; }
OLD_DRIVER_EXPORT cuMemAlloc_v2(unsigned long long* address, unsigned long) {
  *address = 4096;
  return 0;
}
OLD_DRIVER_EXPORT cuMemFree_v2(unsigned long long) { return 0; }
