// SPDX-License-Identifier: Apache-2.0
// Objects of Python that own threads, files or sockets belong to the process that made them. Every use in a forked
// child raises RuntimeError with a sentence; the child leaves the object as it is when it ends.
#pragma once

#include <memory>
#include <utility>

#include "process.hpp"

namespace kvdrive {

template <typename T>
class Owned {
 public:
  template <typename... Args>
  explicit Owned(std::in_place_t, Args&&... args) : object_(std::make_unique<T>(std::forward<Args>(args)...)) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (!owner_.here()) static_cast<void>(object_.release());  // its threads are not in this process
  }

  T& operator*() const {
    owner_.require();
    return *object_;
  }

 private:
  std::unique_ptr<T> object_;
  OwnerProcess owner_;
};

// Makes a function of Python from one of C++ whose first argument, or object, is owned. All entry points of a class
// that is bound as Owned<T> go through here.
template <typename T, typename R, typename... Args>
auto owned(R (*function)(T&, Args...)) {
  return [function](const Owned<std::remove_const_t<T>>& self, Args... args) -> R {
    return function(*self, std::forward<Args>(args)...);
  };
}
template <typename T, typename R, typename... Args>
auto owned(R (T::*method)(Args...)) {
  return [method](const Owned<T>& self, Args... args) -> R { return ((*self).*method)(std::forward<Args>(args)...); };
}
template <typename T, typename R, typename... Args>
auto owned(R (T::*method)(Args...) const) {
  return [method](const Owned<T>& self, Args... args) -> R { return ((*self).*method)(std::forward<Args>(args)...); };
}

}  // namespace kvdrive
