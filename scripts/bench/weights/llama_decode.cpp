// SPDX-License-Identifier: Apache-2.0
// llama.cpp for scripts/llama_mixture.py: one token at a time, and a call for every layer of a token.
// It is compiled there against the headers of the llama.cpp that is measured: their structures change from version to
// version.
#include <cstdint>
#include <cstring>

#include "ggml-backend.h"
#include "ggml.h"
#include "llama.h"

namespace {

// What a layer has done: the tensor's name in llama.cpp's graph and its numbers. False stops the token.
using OnTensor = bool (*)(const char* name, const void* data);

constexpr const char* kChosenExperts = "ffn_moe_topk-";
constexpr const char* kEndOfLayer = "l_out-";

struct Model {
  llama_model* model = nullptr;
  llama_context* context = nullptr;
  OnTensor on_tensor = nullptr;
};

bool begins_with(const char* text, const char* with) { return std::strncmp(text, with, std::strlen(with)) == 0; }

bool evaluated(ggml_tensor* tensor, bool ask, void* user) {
  const char* name = ggml_get_name(tensor);
  if (!begins_with(name, kChosenExperts) && !begins_with(name, kEndOfLayer)) return !ask;
  return ask || static_cast<Model*>(user)->on_tensor(name, ggml_get_data(tensor));
}

}  // namespace

extern "C" {

// A model in a GGUF file, mapped as llama.cpp does by itself. `on_tensor` may be null. Null if llama.cpp refuses the
// file. LIBRARIES is the folder of llama.cpp's libraries, where those of the processor lie if they are not linked.
void* open_model(const char* path, int context_tokens, int threads, OnTensor on_tensor) {
  ggml_backend_load_all_from_path(LIBRARIES);
  llama_backend_init();
  auto* opened = new Model{};
  opened->on_tensor = on_tensor;
  opened->model = llama_model_load_from_file(path, llama_model_default_params());
  if (opened->model == nullptr) return nullptr;
  llama_context_params parameters = llama_context_default_params();
  parameters.n_ctx = static_cast<std::uint32_t>(context_tokens);
  parameters.n_batch = parameters.n_ubatch = 1;
  parameters.n_threads = parameters.n_threads_batch = threads;
  if (on_tensor != nullptr) {
    parameters.cb_eval = evaluated;
    parameters.cb_eval_user_data = opened;
  }
  opened->context = llama_init_from_model(opened->model, parameters);
  return opened->context == nullptr ? nullptr : opened;
}

// The logits after this token, one for each token of the vocabulary; null if llama.cpp could not compute them.
const float* decode(void* opened, int token) {
  llama_context* context = static_cast<Model*>(opened)->context;
  llama_token one = token;
  return llama_decode(context, llama_batch_get_one(&one, 1)) == 0 ? llama_get_logits(context) : nullptr;
}
}
