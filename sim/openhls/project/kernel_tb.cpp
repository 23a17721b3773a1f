#include <cstdio>

#include "kernel.hpp"

static int in[kMost], out[kMost];

// Calls the kernel with several lengths, and looks at all that it may have written.
int main() {
  const int lengths[] = {0, 1, 7, 300};
  for (const int n : lengths) {
    for (int i = 0; i < kMost; ++i) in[i] = 3 * i - 100, out[i] = -1;
    kernel(in, out, n, n + 2);
    for (int i = 0; i < kMost; ++i) {
      const int expected = i < n ? in[i] * (n + 2) : -1;
      if (out[i] != expected) {
        std::printf("n = %d: out[%d] is %d, not %d\n", n, i, out[i], expected);
        return 1;
      }
    }
  }
  return 0;
}
