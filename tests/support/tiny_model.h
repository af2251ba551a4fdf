#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/model/model_file.h"
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
    bool f16 = false;        ///< matrices of files are fp16
    bool tied_head = false;  ///< text then repeats itself: a token's own embedding scores it highest
    /// Spread of the logits: their standard deviation is about this. Around 4, the best token usually leads
    /// clearly and still depends on the context.
    float logit_scale = 4.0f;
};

/// A llama with random f32 weights in memory, the same for the same seed and options on every machine. It has
/// no tokenizer; its text depends on the context and does not fall into a constant.
ModelFile make_tiny_model(std::uint64_t seed, const TinyModelOptions& options = {});

/// Vocabulary size of the files below: 3 control tokens as SmolLM2's (<|endoftext|>, <|im_start|>,
/// <|im_end|>), the 256 bytes, and some merged tokens of English.
int tiny_gguf_vocab();

/// Writes a small valid GGUF file (F32, architecture llama, byte-level tokenizer, ChatML template). Apart
/// from options.vocab, which is tiny_gguf_vocab() whatever it says, its weights are those of
/// make_tiny_model(seed, options).
Status write_tiny_gguf(const std::string& path, std::uint64_t seed, const TinyModelOptions& options = {});

/// The same file before it is written, for tests that spoil it.
GgufWriter make_tiny_gguf(std::uint64_t seed, TinyModelOptions options = {});

}  // namespace draftscope::testing
