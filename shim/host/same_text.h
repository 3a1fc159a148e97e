#ifndef SHIM_HOST_SAME_TEXT_H_
#define SHIM_HOST_SAME_TEXT_H_

namespace fineserve::shim {

// strcmp(a, b) == 0, for the code that answers dlsym: a sanitizer's runtime
// interposes strcmp and calls dlsym to find the real one.
inline bool SameText(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

}  // namespace fineserve::shim

#endif  // SHIM_HOST_SAME_TEXT_H_
