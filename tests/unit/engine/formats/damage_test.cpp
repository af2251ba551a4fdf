// Files with seeded random damage. Opening one returns an error of one line or a model whose every row can be
// read. The libFuzzer programs in tests/fuzz run the same check without a limit.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/formats/gguf_model.h"
#include "engine/formats/model_file.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/support/tiny_model.h"

namespace draftscope::testing {
namespace {

namespace fs = std::filesystem;

/// Changes bytes in the first `span` bytes, which hold the format's structure.
class Damage {
  public:
    explicit Damage(std::uint32_t seed) : rng_(seed) {}

    std::string apply(std::string bytes, std::size_t span) {
        for (std::size_t changes = 1 + below(3); changes > 0 && !bytes.empty(); --changes)
            change(bytes, below(std::min(bytes.size(), span)));
        return bytes;
    }

  private:
    std::size_t below(std::size_t limit) { return rng_() % limit; }

    void change(std::string& bytes, std::size_t at) {
        const std::size_t length = std::min(bytes.size() - at, 1 + below(16));
        switch (below(8)) {
            case 0:
                bytes.erase(at, length);
                break;
            case 1:
                bytes.insert(at, bytes.substr(at, length));
                break;
            case 2:
                if (below(4) == 0) bytes.resize(at);
                break;
            case 3: {
                // Lengths, counts and offsets at their extremes.
                constexpr std::array<std::uint64_t, 6> extremes = {
                    0, 1, 0x7fffffff, 0xffffffff, 0x7fffffffffffffff, 0xffffffffffffffff};
                const std::uint64_t value = extremes[below(extremes.size())];
                for (std::size_t i = 0; i < 8 && at + i < bytes.size(); ++i)
                    bytes[at + i] = static_cast<char>(value >> (8 * i));
                break;
            }
            case 4: {
                constexpr std::array<std::string_view, 8> pieces = {
                    "9999999999999999999", "-1", "null", "[]", "{}", "\"\"", "1e308", "\\ud800"};
                bytes.replace(at, below(3), pieces[below(pieces.size())]);
                break;
            }
            default:
                bytes[at] = static_cast<char>(rng_());
        }
    }

    std::mt19937 rng_;
};

/// Creates a new file each time: rewriting a truncated file would flush it to disk at once.
void write(const std::string& path, const std::string& bytes) {
    fs::remove(path);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

void expect_plain_error(const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::bad_input) << error.message;
    EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
}

void read_everything(const WeightSource& weights) {
    std::vector<float> row;
    for (const std::string& name : weights.names()) {
        const TensorInfo& info = *weights.find(name);
        if (info.rows() == 0 || info.cols() == 0) continue;
        row.resize(info.cols());
        for (const std::int64_t r : {std::int64_t{0}, info.rows() / 2, info.rows() - 1})
            weights.read_row(info, r, row.data());
        (void)weights.read_integers(name);
    }
}

/// Returns how many of `rounds` damaged models still opened.
int open_damaged(const std::function<std::string(Damage&)>& damaged, int rounds, std::uint32_t seed) {
    Damage damage(seed);
    int opened = 0;
    for (int round = 0; round < rounds; ++round) {
        const std::string path = damaged(damage);
        const auto file = open_model_file(path);
        if (!file.ok()) {
            expect_plain_error(file.error());
            continue;
        }
        ++opened;
        read_everything(*file->weights);
        if (file->tokenizer == nullptr) continue;
        const std::string text = "the <|im_end|>\xff <0x41> 12 \xe2\x96\x81x";
        for (const bool special : {false, true})
            (void)file->tokenizer->decode(file->tokenizer->encode(text, special), true);
        if (file->chat.problem().empty()) (void)file->chat.render({{"user", text}});
    }
    return opened;
}

TinyModelOptions small() {
    TinyModelOptions options{.hidden = 32, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 16, .ffn = 32};
    return options;
}

TEST(DamagedFiles, Gguf) {
    const ScratchFolder folder;
    const std::string whole = make_tiny_gguf(3, small()).bytes(), path = folder.file("m.gguf");
    const auto damaged = [&](Damage& damage) {
        write(path, damage.apply(whole, 12000));
        return path;
    };
    const int opened = open_damaged(damaged, 2000, 11);
    // Most damage must be detected, but some is harmless (a letter of a name).
    EXPECT_GT(opened, 100);
    EXPECT_LT(opened, 1900);
}

TEST(DamagedFiles, GgufWithSentencePieces) {
    const auto golden = nlohmann::json::parse(
        read_text(std::string(DS_SOURCE_DIR) + "/tests/golden/model/sentencepiece.json"));
    const int count = 280;  // rows of the tiny model's embedding
    GgufWriter file = make_tiny_gguf(3, small());
    for (const char* key : {"model", "pre", "tokens", "token_type", "merges"})
        file.remove(std::string("tokenizer.ggml.") + key);
    auto pieces = golden["pieces"].get<std::vector<std::string>>();
    auto scores = golden["scores"].get<std::vector<float>>();
    auto types = golden["types"].get<std::vector<std::int32_t>>();
    pieces.resize(count), scores.resize(count), types.resize(count);
    // Placed last in the metadata, so that the damage below hits the tokenizer.
    file.add("tokenizer.ggml.model", std::string("llama"));
    file.add("tokenizer.ggml.tokens", pieces);
    file.add("tokenizer.ggml.scores", scores);
    file.add("tokenizer.ggml.token_type", types);
    file.add("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
    const ScratchFolder folder;
    const std::string whole = file.bytes(), path = folder.file("m.gguf");
    const auto damaged = [&](Damage& damage) {
        write(path, damage.apply(whole, 10000));
        return path;
    };
    EXPECT_GT(open_damaged(damaged, 1000, 12), 50);
}

TEST(DamagedFiles, Safetensors) {
    const ScratchFolder folder;
    const std::string good = folder.file("good.safetensors"), path = folder.file("bad.safetensors");
    ASSERT_TRUE(
        write_safetensors(good, {{"a", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"b.weight", {4}, {1, 2, 3, 4}}}).ok());
    const std::string whole = read_text(good);
    Damage damage(13);
    int opened = 0;
    for (int round = 0; round < 3000; ++round) {
        write(path, damage.apply(whole, whole.size()));
        const auto file = open_safetensors(path);
        if (!file.ok()) {
            expect_plain_error(file.error());
            continue;
        }
        ++opened;
        read_everything(**file);
    }
    EXPECT_GT(opened, 100);
    EXPECT_LT(opened, 2900);
}

TEST(DamagedFiles, HubFolder) {
    const fs::path model = fs::path(DS_SOURCE_DIR) / "tests/golden/models/qwen2";
    const ScratchFolder folder;
    for (const auto& entry : fs::directory_iterator(model))
        fs::copy_file(entry.path(), fs::path(folder.path()) / entry.path().filename());
    for (const char* name : {"config.json", "tokenizer.json", "generation_config.json",
                             "tokenizer_config.json", "model.safetensors"}) {
        const std::string whole = read_text(model / name);
        const std::size_t header = std::string_view(name).ends_with("json") ? whole.size() : 3000;
        const auto damaged = [&](Damage& damage) {
            write(folder.file(name), damage.apply(whole, header));
            return folder.path();
        };
        const int opened = open_damaged(damaged, 300, 14);
        EXPECT_LT(opened, 300) << name;
        write(folder.file(name), whole);
    }
    EXPECT_TRUE(open_model_file(folder.path()).ok());
}

}  // namespace
}  // namespace draftscope::testing
