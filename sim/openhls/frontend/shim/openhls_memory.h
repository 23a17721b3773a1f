// SPDX-License-Identifier: Apache-2.0
// memcpy and memset of elements of one type, as loops that become bursts. The front end puts these in their places.
#pragma once

namespace openhls {

template <typename A, typename B>
struct same {
  static constexpr bool value = false;
};
template <typename A>
struct same<A, A> {
  static constexpr bool value = true;
};
template <typename T>
struct plain {
  using type = T;
};
template <typename T>
struct plain<const T> : plain<T> {};
template <typename T>
struct plain<volatile T> : plain<T> {};
template <typename T>
struct plain<const volatile T> : plain<T> {};

// True if elements of `size` bytes may not fill `bytes`. Where `size` is no power of two, only constants tell.
__attribute__((always_inline)) inline bool splits(unsigned long bytes, unsigned long size) {
  const bool told = (size & (size - 1)) == 0 || __builtin_constant_p(bytes);
  return told && bytes % size != 0;
}

template <typename To, typename From>
__attribute__((always_inline)) inline To* copy_memory(To* to, const From* from, unsigned long bytes) {
  if constexpr (same<typename plain<To>::type, typename plain<From>::type>::value &&
                !same<typename plain<To>::type, void>::value) {
    if (splits(bytes, sizeof(To))) {
      __builtin_memcpy(to, from, bytes);
      return to;
    }
    const int count = static_cast<int>(bytes / sizeof(To));
    for (int i = 0; i < count; ++i) {
      to[i] = from[i];
    }
  } else {
    __builtin_memcpy(to, from, bytes);
  }
  return to;
}

template <typename To>
__attribute__((always_inline)) inline To* set_memory(To* to, int byte, unsigned long bytes) {
  if (splits(bytes, sizeof(To))) {
    __builtin_memset(static_cast<void*>(to), byte, bytes);
    return to;
  }
  const int count = static_cast<int>(bytes / sizeof(To));
  for (int i = 0; i < count; ++i) {
    __builtin_memset(static_cast<void*>(&to[i]), byte, sizeof(To));
  }
  return to;
}

}  // namespace openhls
