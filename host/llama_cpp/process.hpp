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

// The process may store sessions of its own on the plugin's drive, and exchange them with the one of its only context.
// Functions that return bool tell a reason by a sentence where it is false.

// Executes a command of 64 bytes. Up to `room` bytes come to `out`, `returned` of them; `result` is the completion's.
// Returns the status; -1 if the drive does not answer.
std::int32_t kvdrive_llama_execute(const void* command, const void* data, std::size_t bytes, void* out,
                                   std::size_t room, std::size_t* returned, std::uint64_t* result);
// Numbers of all sessions of the drive, up to `room` of them. Returns how many there are.
std::size_t kvdrive_llama_sessions(std::uint32_t* numbers, std::size_t room);
// Why the latest command with status INTERNAL_ERROR failed. As kvdrive_llama_statistics.
std::size_t kvdrive_llama_failure(char* text, std::size_t room);
// The session of the only context as JSON: its number and tokens, and layer, kind, heads and head dimension of its
// rows. Token i is that of cell i. As kvdrive_llama_statistics; 0 where it cannot be kept.
std::size_t kvdrive_llama_session(char* text, std::size_t room);
// A copy of the first `tokens` tokens of that session, which the plugin removes like its own unless it is released.
// Returns its number; 0 where there is none.
std::uint32_t kvdrive_llama_fork(std::uint32_t tokens);
// A session is the process's from now on, which names it.
bool kvdrive_llama_release(std::uint32_t session);
// llama.cpp has freed the cells from `cells` on: their rows are forgotten now.
bool kvdrive_llama_shorten(std::uint32_t cells);
// The only context continues with a session of the drive, which becomes the plugin's. Next, the process restores its
// first `tokens` cells by llama_state_seq_set_data, whose rows are not read.
bool kvdrive_llama_take(std::uint32_t session, std::uint32_t tokens);
// True if llama.cpp has restored all cells of `kvdrive_llama_take`.
bool kvdrive_llama_taken();

}  // extern "C"
