#include "tests/unit/engine/tiny_drafter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace draftscope::testing {
namespace {

std::string make_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "draftscope-tiny-XXXXXX").string();
    return mkdtemp(name.data());
}

/// A safetensors file of one element type of four bytes.
class SafetensorsWriter {
  public:
    explicit SafetensorsWriter(std::string type) : type_(std::move(type)) {}
    template <typename T>
    void add(std::string_view name, const std::vector<int>& shape, const std::vector<T>& values) {
        static_assert(sizeof(T) == 4);
        const std::size_t first = data_.size();
        data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
        header_ +=
            fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        header_.empty() ? '{' : ',', name, type_, fmt::join(shape, ","), first, data_.size());
    }
    void write(const std::string& path) {
        header_ += '}';
        while (header_.size() % 8 != 0) header_ += ' ';
        const std::uint64_t length = header_.size();
        std::ofstream file(path, std::ios::binary);
        file.write(reinterpret_cast<const char*>(&length), sizeof(length));
        file << header_ << data_;
    }

  private:
    std::string type_, header_, data_;
};

}  // namespace

TinyEagle2::TinyEagle2(const ModelConfig& target, std::uint64_t seed) : folder_(make_folder()) {
    const int d = target.hidden, q = target.heads * target.head_dim, kv = target.kv_heads * target.head_dim;
    std::ofstream(folder_ + "/config.json")
        << "{\"hidden_size\":" << d << ",\"intermediate_size\":" << target.ffn
        << ",\"num_attention_heads\":" << target.heads << ",\"num_key_value_heads\":" << target.kv_heads
        << ",\"head_dim\":" << target.head_dim << ",\"vocab_size\":" << target.vocab
        << ",\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"bias\":false}";
    SafetensorsWriter out("F32");
    std::uint64_t stream = 0;
    // `copied`: the leading square is the identity, and the rest small. A random target's next token depends
    // on the last token's embedding most, so a drafter that passes it on is often right.
    const auto matrix = [&](const std::string& name, int rows, int cols, bool copied = false) {
        Rng rng(seed, ++stream);
        std::vector<float> values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
        for (float& value : values)
            value = static_cast<float>((copied ? 0.3 : 0.6) * rng.normal() / std::sqrt(cols));
        for (int r = 0; copied && r < rows; ++r) values[static_cast<std::size_t>(r * cols + r)] += 1.0f;
        out.add(name, {rows, cols}, values);
    };
    matrix("fc.weight", d, 2 * d, true);
    matrix("layers.0.self_attn.q_proj.weight", q, d);
    matrix("layers.0.self_attn.k_proj.weight", kv, d);
    matrix("layers.0.self_attn.v_proj.weight", kv, d);
    matrix("layers.0.self_attn.o_proj.weight", d, q);
    matrix("layers.0.mlp.gate_proj.weight", target.ffn, d);
    matrix("layers.0.mlp.up_proj.weight", target.ffn, d);
    matrix("layers.0.mlp.down_proj.weight", d, target.ffn);
    out.add("layers.0.post_attention_layernorm.weight", {d},
            std::vector<float>(static_cast<std::size_t>(d), 1.0f));
    out.write(folder_ + "/model.safetensors");
}

TinyEagle2::~TinyEagle2() {
    std::filesystem::remove_all(folder_);
}

TinyRanking::TinyRanking(int vocab) : folder_(make_folder()), path_(folder_ + "/ranking.safetensors") {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(vocab));
    for (int i = 0; i < vocab; ++i) ids[static_cast<std::size_t>(i)] = i;
    Rng rng(17);
    for (int i = vocab - 1; i > 0; --i)
        std::swap(ids[static_cast<std::size_t>(i)], ids[rng.below(static_cast<std::uint32_t>(i + 1))]);
    SafetensorsWriter out("I32");
    out.add("ids", {vocab}, ids);
    out.write(path_);
}

TinyRanking::~TinyRanking() {
    std::filesystem::remove_all(folder_);
}

}  // namespace draftscope::testing
