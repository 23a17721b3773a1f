// SPDX-License-Identifier: Apache-2.0
// A file that appears under its name only when it is whole: it is written beside, flushed, then renamed.
//
// A process that is killed meanwhile leaves a file with the ending kUnfinished. Nobody ever finished it, so whoever
// makes the file next takes it over. kvdrive/private.py does the same for files that Python writes.
#pragma once

#include <filesystem>

namespace kvdrive {

inline constexpr const char* kUnfinished = ".unfinished";

// The name under which `path` is written. A symbolic link is followed: the file it names is made, not the link
// replaced.
std::filesystem::path unfinished(const std::filesystem::path& path);

// Gives the file written under `unfinished(path)` its name, durably. Precondition: its contents are durable. Throws
// std::system_error.
void publish(const std::filesystem::path& path);

// Removes what a process that was killed left of `path`. Precondition: no other process can be making the file.
void remove_unfinished(const std::filesystem::path& path) noexcept;

}  // namespace kvdrive
