// SPDX-License-Identifier: Apache-2.0
// A program over libllama that executes commands from its standard input, for the tests of the plugin:
//   host MODEL OUT [option value]...
//
//   decode SEQUENCE POSITION TOKEN...    appends the logits of the last token to OUT, as binary32
//   batch SEQUENCE:POSITION:TOKEN...     one batch; appends the logits of every token
//   rm SEQUENCE FROM TO, cp FROM TO, add SEQUENCE FROM TO DELTA, clear, save SEQUENCE FILE, load SEQUENCE FILE
//   tokens FILE                          prints the tokens of a text
//   time                                 prints milliseconds since the last `time`
//   memory                               prints this process's anonymous memory in KiB
//   die                                  as kill -9 does
// Each command prints a line: ok, or what failed. Options: ctx, seqs, unified (0, 1), ubatch, threads, fa (on, off,
// auto), type (of the cache, a number of ggml), swa (0, 1).
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Host {
  llama_context* context = nullptr;
  int vocabulary = 0;
  std::FILE* out = nullptr;
  Clock::time_point since = Clock::now();

  bool decode(llama_batch& batch) {
    const int status = llama_decode(context, batch);
    if (status != 0) {
      std::printf("decode failed with %d\n", status);
      return false;
    }
    for (int i = 0; i < batch.n_tokens; ++i) {
      if (batch.logits[i] == 0) continue;
      std::fwrite(llama_get_logits_ith(context, i), sizeof(float), static_cast<std::size_t>(vocabulary), out);
    }
    std::fflush(out);
    return true;
  }
};

void add(llama_batch& batch, int token, int position, int sequence, bool logits) {
  const int at = batch.n_tokens++;
  batch.token[at] = token;
  batch.pos[at] = position;
  batch.n_seq_id[at] = 1;
  batch.seq_id[at][0] = sequence;
  batch.logits[at] = static_cast<std::int8_t>(logits);
}

bool decode(Host& host, std::istringstream& words) {
  int sequence = 0, position = 0;
  words >> sequence >> position;
  std::vector<int> tokens;
  for (int token = 0; words >> token;) tokens.push_back(token);
  llama_batch batch = llama_batch_init(static_cast<int>(tokens.size()), 0, 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    add(batch, tokens[i], position + static_cast<int>(i), sequence, i + 1 == tokens.size());
  }
  const bool done = host.decode(batch);
  llama_batch_free(batch);
  return done;
}

bool decode_batch(Host& host, std::istringstream& words) {
  std::vector<std::string> entries;
  for (std::string entry; words >> entry;) entries.push_back(entry);
  llama_batch batch = llama_batch_init(static_cast<int>(entries.size()), 0, 1);
  for (const std::string& entry : entries) {
    int sequence = 0, position = 0, token = 0;
    std::sscanf(entry.c_str(), "%d:%d:%d", &sequence, &position, &token);
    add(batch, token, position, sequence, true);
  }
  const bool done = host.decode(batch);
  llama_batch_free(batch);
  return done;
}

void print_tokens(const llama_vocab* vocabulary, const std::string& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  const std::string bytes = text.str();
  std::vector<llama_token> tokens(bytes.size() + 8);
  const int count = llama_tokenize(vocabulary, bytes.data(), static_cast<int>(bytes.size()), tokens.data(),
                                   static_cast<int>(tokens.size()), true, false);
  for (int i = 0; i < count; ++i) std::printf("%d ", tokens[static_cast<std::size_t>(i)]);
  std::printf("\n");
}

void print_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) std::printf("%s\n", line.substr(8).c_str());
  }
}

// True if the command succeeded; false if it has printed what failed.
bool execute(Host& host, const std::string& line) {
  std::istringstream words(line);
  std::string name;
  words >> name;
  llama_memory_t memory = llama_get_memory(host.context);
  int sequence = 0, from = 0, to = 0, delta = 0;
  std::string file;
  if (name == "decode") return decode(host, words);
  if (name == "batch") return decode_batch(host, words);
  if (name == "rm") {
    words >> sequence >> from >> to;
    if (!llama_memory_seq_rm(memory, sequence, from, to)) return std::printf("rm failed\n") < 0;
  } else if (name == "cp") {
    words >> from >> to;
    llama_memory_seq_cp(memory, from, to, -1, -1);
  } else if (name == "add") {
    words >> sequence >> from >> to >> delta;
    llama_memory_seq_add(memory, sequence, from, to, delta);
  } else if (name == "clear") {
    llama_memory_clear(memory, true);
  } else if (name == "save") {
    words >> sequence >> file;
    if (llama_state_seq_save_file(host.context, file.c_str(), sequence, nullptr, 0) == 0)
      return std::printf("save failed\n") < 0;
  } else if (name == "load") {
    words >> sequence >> file;
    std::size_t tokens = 0;
    llama_token none = 0;
    if (llama_state_seq_load_file(host.context, file.c_str(), sequence, &none, 1, &tokens) == 0)
      return std::printf("load failed\n") < 0;
  } else if (name == "time") {
    const auto now = Clock::now();
    std::printf("%.3f\n", std::chrono::duration<double, std::milli>(now - host.since).count());
    host.since = now;
    return false;
  } else if (name == "tokens") {
    words >> file;
    print_tokens(llama_model_get_vocab(llama_get_model(host.context)), file);
    return false;
  } else if (name == "memory") {
    print_memory();
    return false;
  } else if (name == "die") {
    std::raise(SIGKILL);
  } else {
    return std::printf("unknown command\n") < 0;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options = {{"ctx", "1024"},  {"seqs", "1"},  {"unified", "0"}, {"ubatch", "512"},
                                                {"threads", "1"}, {"fa", "auto"}, {"type", "1"},    {"swa", "0"}};
  for (int i = 3; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const auto number = [&options](const char* name) { return std::atoi(options.at(name).c_str()); };
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  ggml_backend_load_all_from_path(LIBRARIES);
  llama_model_params of_model = llama_model_default_params();
  of_model.n_gpu_layers = 999;
  llama_model* model = llama_model_load_from_file(argv[1], of_model);
  if (model == nullptr) return std::printf("no model\n"), 3;
  llama_context_params parameters = llama_context_default_params();
  if (parameters.n_threads != 4 || parameters.type_k != GGML_TYPE_F16 || !parameters.offload_kqv) {
    return std::printf("the headers are not those of this libllama\n"), 5;
  }
  parameters.n_ctx = static_cast<std::uint32_t>(number("ctx"));
  parameters.n_seq_max = static_cast<std::uint32_t>(number("seqs"));
  parameters.n_batch = parameters.n_ctx;
  parameters.n_ubatch = static_cast<std::uint32_t>(number("ubatch"));
  parameters.n_threads = parameters.n_threads_batch = number("threads");
  parameters.kv_unified = number("unified") != 0;
  parameters.swa_full = number("swa") != 0;
  parameters.type_k = parameters.type_v = static_cast<ggml_type>(number("type"));
  parameters.flash_attn_type = options["fa"] == "on"    ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                               : options["fa"] == "off" ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                                                        : LLAMA_FLASH_ATTN_TYPE_AUTO;
  Host host;
  host.context = llama_init_from_model(model, parameters);
  if (host.context == nullptr) return std::printf("no context\n"), 4;
  host.vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  host.out = std::fopen(argv[2], "wb");
  for (std::string line; std::getline(std::cin, line);) {
    if (execute(host, line)) std::printf("ok\n");
    std::fflush(stdout);
  }
  std::fclose(host.out);
  llama_free(host.context);
  llama_model_free(model);
}
