#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/formats/model_file.h"
#include "tests/support/gguf_writer.h"

namespace draftscope::testing {

struct TinyModelOptions {
    int vocab = 97;
    int hidden = 64;
    int layers = 2;
    int heads = 4;
    int kv_heads = 2;
    int head_dim = 16;
    int ffn = 96;
    int context = 256;
    bool f16 = false;        ///< matrices in files are fp16
    bool tied_head = false;  ///< the text then repeats itself: a token's own embedding has the highest score
    /// Approximate standard deviation of the logits. Around 4, the best token usually leads clearly and still
    /// depends on the context.
    float logit_scale = 4.0f;
};

/// Makes a Llama model with random f32 weights in memory. Equal seed and options give equal weights on every
/// machine. It has no tokenizer. Its text depends on the context and does not become constant.
ModelFile make_tiny_model(std::uint64_t seed, const TinyModelOptions& options = {});

/// Vocabulary size of the files below: 3 control tokens as in SmolLM2 (<|endoftext|>, <|im_start|>,
/// <|im_end|>), the 256 bytes, and some merged tokens of English.
int tiny_gguf_vocab();

/// Writes a small valid GGUF file (F32, architecture llama, byte-level tokenizer, ChatML template). Its
/// weights are those of make_tiny_model(seed, options), but the vocabulary always has tiny_gguf_vocab()
/// tokens.
Status write_tiny_gguf(const std::string& path, std::uint64_t seed, const TinyModelOptions& options = {});

/// Returns the same file before it is written, for tests that damage it.
GgufWriter make_tiny_gguf(std::uint64_t seed, TinyModelOptions options = {});

}  // namespace draftscope::testing
