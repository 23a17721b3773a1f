// SPDX-License-Identifier: Apache-2.0
// What a process that loads the plugin itself can ask it, beside what llama.cpp asks: functions of C, for
// host/kvdrive/llama/plugin.py. They change together with it, which the number below says.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// The number of this interface.
std::uint32_t kvdrive_llama_interface();

// From now on sentences for the user go to `hear` and not to stderr; null: to stderr.
void kvdrive_llama_hear(void (*hear)(const char* sentence));

// All counters as JSON, with a zero at the end if there is room. Returns the bytes that the text takes without it; 0 if
// there is no drive.
std::size_t kvdrive_llama_statistics(char* text, std::size_t room);

}  // extern "C"
