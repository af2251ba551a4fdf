#include <array>
#include <utility>

#include "engine/tokenizer/pretokenizer.h"
#include "kernels/ops/float16.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace draftscope::testing {
namespace {

constexpr std::array<std::string_view, 3> control_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};

/// Left and right part of each merged token. Both are in the vocabulary before it. "_" is a space.
constexpr std::array<std::pair<std::string_view, std::string_view>, 24> merges = {{
    {"t", "h"},  {"th", "e"},  {"i", "n"},   {"a", "n"}, {"an", "d"}, {"e", "r"}, {"o", "n"},   {"r", "e"},
    {"in", "g"}, {"_", "the"}, {"_", "and"}, {"o", "r"}, {"e", "n"},  {"a", "t"}, {"i", "s"},   {"_", "a"},
    {"_", "in"}, {"e", "s"},   {"l", "l"},   {"o", "u"}, {"y", "ou"}, {"h", "e"}, {"he", "ll"}, {"hell", "o"},
}};

/// The chat template of SmolLM2.
constexpr const char* chat_template =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
    "'<|im_start|>system\n"
    "You are tiny<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif "
    "%}";

std::string spell(std::string_view text) {
    std::string plain(text);
    for (char& c : plain) c = c == '_' ? ' ' : c;
    return encode_byte_level(plain);
}

void add_config(GgufWriter& out, const TinyModelOptions& o) {
    const auto number = [](int value) { return static_cast<std::uint32_t>(value); };
    out.add("general.architecture", std::string("llama"));
    out.add("general.name", std::string("tiny"));
    out.add("llama.block_count", number(o.layers));
    out.add("llama.context_length", number(o.context));
    out.add("llama.embedding_length", number(o.hidden));
    out.add("llama.feed_forward_length", number(o.ffn));
    out.add("llama.attention.head_count", number(o.heads));
    out.add("llama.attention.head_count_kv", number(o.kv_heads));
    out.add("llama.attention.key_length", number(o.head_dim));
    out.add("llama.attention.value_length", number(o.head_dim));
    out.add("llama.rope.freq_base", 10000.0f);
    out.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

void add_tokenizer(GgufWriter& out) {
    std::vector<std::string> tokens;
    std::vector<std::int32_t> types;
    std::vector<std::string> lines;
    for (const std::string_view name : control_tokens) tokens.emplace_back(name);
    types.assign(tokens.size(), 3);
    for (int byte = 0; byte < 256; ++byte)
        tokens.push_back(encode_byte_level(std::string(1, static_cast<char>(byte))));
    for (const auto& [left, right] : merges) {
        lines.push_back(spell(left) + " " + spell(right));
        tokens.push_back(spell(left) + spell(right));
    }
    types.resize(tokens.size(), 1);
    out.add("tokenizer.ggml.model", std::string("gpt2"));
    out.add("tokenizer.ggml.pre", std::string("smollm"));
    out.add("tokenizer.ggml.tokens", tokens);
    out.add("tokenizer.ggml.token_type", types);
    out.add("tokenizer.ggml.merges", lines);
    out.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
    out.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
    out.add("tokenizer.ggml.add_bos_token", false);
    out.add("tokenizer.chat_template", std::string(chat_template));
}

/// In files of this architecture the halves of each q/k head are interleaved: (half s, j) is row 2j + s.
std::int64_t half_split_row(std::int64_t stored, int head_dim) {
    const std::int64_t in_head = stored % head_dim;
    return stored - in_head + in_head / 2 + (in_head % 2) * (head_dim / 2);
}

std::string tensor_bytes(const WeightSource& weights, const TensorInfo& info, int head_dim, bool f16) {
    const bool permuted = info.name.ends_with("attn_q.weight") || info.name.ends_with("attn_k.weight");
    std::string out;
    std::vector<float> row(static_cast<std::size_t>(info.cols()));
    for (std::int64_t r = 0; r < info.rows(); ++r) {
        weights.read_row(info, permuted ? half_split_row(r, head_dim) : r, row.data());
        if (!f16) {
            out.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
            continue;
        }
        for (const float value : row) out += raw_bytes(kernels::float_to_f16(value));
    }
    return out;
}

}  // namespace

int tiny_gguf_vocab() {
    return static_cast<int>(control_tokens.size() + 256 + merges.size());
}

Status write_tiny_gguf(const std::string& path, std::uint64_t seed, const TinyModelOptions& options) {
    return make_tiny_gguf(seed, options).write(path);
}

GgufWriter make_tiny_gguf(std::uint64_t seed, TinyModelOptions options) {
    options.vocab = tiny_gguf_vocab();
    const ModelFile model = make_tiny_model(seed, options);
    GgufWriter out;
    add_config(out, options);
    add_tokenizer(out);
    for (const std::string& name : model.weights->names()) {
        const TensorInfo& info = *model.weights->find(name);
        const bool f16 = options.f16 && info.shape.size() > 1;
        out.add_tensor(name, info.shape, f16 ? 1 : 0,
                       tensor_bytes(*model.weights, info, options.head_dim, f16));
    }
    return out;
}

}  // namespace draftscope::testing
