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

// The process has no context and makes none any more: closes the drive now, and not when the process ends.
void kvdrive_llama_close();

// All counters as JSON, with a zero at the end if there is room. Returns the bytes that the text takes without it; 0 if
// there is no drive.
std::size_t kvdrive_llama_statistics(char* text, std::size_t room);

// The process may store sessions of its own on the plugin's drive, and exchange them with those of its only context,
// whose sequence i is the cache's stream i. Functions that return bool tell a reason by a sentence where it is false.

// Executes a command of 64 bytes. Up to `room` bytes come to `out`, `returned` of them; `result` is the completion's.
// Returns the status; -1 if the drive does not answer.
std::int32_t kvdrive_llama_execute(const void* command, const void* data, std::size_t bytes, void* out,
                                   std::size_t room, std::size_t* returned, std::uint64_t* result);
// Numbers of all sessions of the drive, up to `room` of them. Returns how many there are.
std::size_t kvdrive_llama_sessions(std::uint32_t* numbers, std::size_t room);
// Why the latest command with status INTERNAL_ERROR failed. As kvdrive_llama_statistics.
std::size_t kvdrive_llama_failure(char* text, std::size_t room);
// Layer, kind, heads and head dimension of the rows of a token, as JSON. As kvdrive_llama_statistics; 0 where the
// context's cache cannot be kept.
std::size_t kvdrive_llama_rows(char* text, std::size_t room);
// A copy of the first `tokens` tokens of a sequence, which the plugin removes like its own sessions unless it is
// released. Token i is that of cell i. Returns its number; 0 where there is none.
std::uint32_t kvdrive_llama_fork(std::uint32_t sequence, std::uint32_t tokens);
// A session is the process's from now on, which names it.
bool kvdrive_llama_release(std::uint32_t session);
// llama.cpp has freed the cells of a sequence from `cells` on: their rows are forgotten now. With 0, a context may have
// several caches.
bool kvdrive_llama_shorten(std::uint32_t sequence, std::uint32_t cells);
// A sequence continues with a session of the drive, which becomes the plugin's. Next, the process restores its first
// `tokens` cells by llama_state_seq_set_data, whose rows are not read.
bool kvdrive_llama_take(std::uint32_t sequence, std::uint32_t session, std::uint32_t tokens);
// True if llama.cpp has restored all cells of `kvdrive_llama_take`.
bool kvdrive_llama_taken();

}  // extern "C"
