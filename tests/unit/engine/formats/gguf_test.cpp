// Damaged and unsupported GGUF files return an error of one line and never crash.
#include "engine/formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/rng.h"
#include "engine/formats/gguf_model.h"
#include "engine/tokenizer/pretokenizer.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_model.h"

namespace draftscope {
namespace {

using testing::GgufWriter;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::raw_bytes;
using ::testing::StartsWith;

std::string scratch(const std::string& name) {
    static const testing::ScratchFolder folder;
    return folder.file(name);
}

GgufWriter small_file() {
    return testing::make_tiny_gguf(
        3, {.hidden = 32, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 16, .ffn = 32, .context = 64});
}

/// Opens the bytes as a model. A failure must be a bad-input error of one line that starts with the file
/// name. After a success, every row must be readable.
std::string open_bytes(const std::string& bytes) {
    const std::string path = scratch("case.gguf");
    EXPECT_TRUE(testing::write_file(path, bytes).ok());
    const auto file = open_model_file(path);
    if (!file.ok()) {
        EXPECT_EQ(file.error().kind, ErrorKind::bad_input);
        EXPECT_THAT(file.error().message, StartsWith(path + ": "));
        EXPECT_THAT(file.error().message, Not(HasSubstr("\n")));
        return file.error().message.substr(path.size() + 2);
    }
    std::vector<float> row;
    for (const std::string& name : file->weights->names()) {
        const TensorInfo& info = *file->weights->find(name);
        row.resize(info.cols());
        for (std::int64_t r = 0; r < info.rows(); ++r) file->weights->read_row(info, r, row.data());
    }
    for (const TokenId id : file->tokenizer->encode("The hello, 12 <|im_end|>", true))
        EXPECT_LT(id, file->config.vocab);
    EXPECT_TRUE(file->chat.render({{"user", "x"}}).ok());
    return "";
}

std::string open_changed(const std::function<void(GgufWriter&)>& change) {
    GgufWriter file = small_file();
    change(file);
    return open_bytes(file.bytes());
}

/// Replaces a metadata entry.
template <typename T>
std::string open_with(const std::string& key, const T& value) {
    return open_changed([&](GgufWriter& file) {
        file.remove(key);
        file.add(key, value);
    });
}

TEST(Gguf, OpensTheUnchangedFile) {
    EXPECT_EQ(open_bytes(small_file().bytes()), "");
}

TEST(Gguf, RejectsEveryTruncation) {
    const std::string bytes = small_file().bytes();
    const std::size_t header = bytes.find("blk.0.attn_k.weight") + 2000;
    // Only the padding after the last tensor may be missing.
    Rng rng(11);
    std::vector<std::size_t> cuts;
    for (std::size_t cut = 0; cut < header; cut += cut < 2000 ? 3 : 37) cuts.push_back(cut);
    for (int i = 0; i < 200; ++i) cuts.push_back(rng.below(static_cast<std::uint32_t>(bytes.size() - 32)));
    for (const std::size_t cut : cuts) EXPECT_NE(open_bytes(bytes.substr(0, cut)), "") << "cut at " << cut;
}

TEST(Gguf, ReportsTheTruncatedTensorAndItsSize) {
    const std::string bytes = small_file().bytes();
    const std::string message = open_bytes(bytes.substr(0, bytes.size() - 4000));
    EXPECT_THAT(message, HasSubstr("tensor 't"));
    EXPECT_THAT(message, HasSubstr(fmt::format("{} are present", bytes.size() - 4000)));
    EXPECT_THAT(message, HasSubstr("truncated"));
}

TEST(Gguf, FlippedBytesNeverCrash) {
    const std::string bytes = small_file().bytes();
    const std::size_t header = bytes.find("token_embd.weight") + 200;
    Rng rng(12);
    int refused = 0;
    for (int i = 0; i < 1500; ++i) {
        std::string damaged = bytes;
        const std::uint32_t flips = 1 + rng.below(3);
        for (std::uint32_t f = 0; f < flips; ++f)
            damaged[rng.below(static_cast<std::uint32_t>(header))] = static_cast<char>(rng.below(256));
        refused += open_bytes(damaged).empty() ? 0 : 1;
    }
    EXPECT_GT(refused, 100);
}

TEST(Gguf, RejectsLengthsAndCountsBeyondTheFile) {
    const std::string good = small_file().bytes();
    const auto with = [&](std::size_t at, std::uint64_t value) {
        return std::string(good).replace(at, 8, raw_bytes(value));
    };
    for (const std::uint64_t huge :
         {std::uint64_t{1} << 20, std::uint64_t{1} << 40, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
        EXPECT_THAT(open_bytes(with(8, huge)), HasSubstr("tensors, more than the file can hold"));
        EXPECT_THAT(open_bytes(with(16, huge)), HasSubstr("metadata entries, more than the file can hold"));
        EXPECT_THAT(open_bytes(with(24, huge)), HasSubstr("ends inside the name of metadata entry 0"));
        // The array's count follows its element type.
        for (const std::uint32_t element : {0u, 4u, 8u, 12u}) {
            const std::string message = open_changed(
                [&](GgufWriter& file) { file.add_raw("x.list", 9, raw_bytes(element) + raw_bytes(huge)); });
            EXPECT_THAT(message, HasSubstr("x.list"));
        }
    }
}

TEST(Gguf, IdentifiesOtherFileTypes) {
    EXPECT_THAT(open_bytes("PK\x03\x04 and more bytes"),
                HasSubstr("not a GGUF file: first bytes are \"PK\\x03\\x04\""));
    EXPECT_THAT(open_bytes("GG"), HasSubstr("first bytes are \"GG\""));
    EXPECT_THAT(open_bytes(""), HasSubstr("is empty"));
    std::string bytes = small_file().bytes();
    bytes.replace(4, 4, std::string("\0\0\0\3", 4));
    EXPECT_THAT(open_bytes(bytes), HasSubstr("big-endian"));
    bytes.replace(4, 4, std::string("\0\0\0\2", 4));
    EXPECT_THAT(open_bytes(bytes), HasSubstr("big-endian"));
    bytes.replace(4, 4, raw_bytes<std::uint32_t>(1));
    EXPECT_THAT(open_bytes(bytes), HasSubstr("GGUF version 1, this program reads versions 2 and 3; convert"));
    bytes.replace(4, 4, raw_bytes<std::uint32_t>(4));
    EXPECT_THAT(open_bytes(bytes), HasSubstr("GGUF version 4, this program reads versions 2 and 3; update"));
    bytes.replace(4, 4, raw_bytes<std::uint32_t>(2));
    EXPECT_EQ(open_bytes(bytes), "");
    EXPECT_THAT(open_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n"),
                HasSubstr("is a git-lfs pointer, not the file itself; fetch it with git lfs pull"));
    const auto missing = open_model_file(scratch("nowhere.gguf"));
    EXPECT_THAT(missing.error().message, HasSubstr("no such file"));
    const auto folder = open_model_file(::testing::TempDir());
    EXPECT_THAT(folder.error().message,
                HasSubstr("config.json: is missing; it is needed for a model folder"));
    const auto backend = open_model_file("/dev/null");
    EXPECT_THAT(backend.error().message, HasSubstr("not a regular file"));
}

/// Writes a model in three parts, the first without tensors, as llama.cpp's tool does.
class SplitFile {
  public:
    SplitFile() {
        GgufWriter first = small_file();
        std::vector<GgufWriter> parts(2);
        const auto whole = require(open_model_file(write_whole()));
        int next = 0;
        for (const std::string& name : whole.weights->names()) {
            const TensorInfo& info = *whole.weights->find(name);
            const auto bytes = whole.weights->stored(info);
            parts[static_cast<std::size_t>(next++ % 2)].add_tensor(name, info.shape, 0,
                                                                   {bytes.begin(), bytes.end()});
            first.remove_tensor(name);
        }
        add_split(first, 0, next);
        write(first, 1);
        for (int i = 0; i < 2; ++i) {
            add_split(parts[static_cast<std::size_t>(i)], i + 1, next);
            write(parts[static_cast<std::size_t>(i)], i + 2);
        }
    }
    std::string part(int number) const {
        return folder_.file(fmt::format("m-F32-0000{}-of-00003.gguf", number));
    }
    std::string error(int number) const {
        const auto opened = open_model_file(part(number));
        return opened.ok() ? "" : opened.error().message;
    }
    std::string write_whole() const {
        EXPECT_TRUE(small_file().write(folder_.file("whole.gguf")).ok());
        return folder_.file("whole.gguf");
    }

  private:
    static void add_split(GgufWriter& file, int number, int tensors) {
        file.add_raw("split.no", 2, raw_bytes(static_cast<std::uint16_t>(number)));
        file.add_raw("split.count", 2, raw_bytes(std::uint16_t{3}));
        file.add_raw("split.tensors.count", 5, raw_bytes(std::int32_t{tensors}));
    }
    void write(const GgufWriter& file, int number) const { EXPECT_TRUE(file.write(part(number)).ok()); }
    testing::ScratchFolder folder_;
};

TEST(Gguf, OpensThePartsOfASplitModelTogether) {
    const SplitFile split;
    const auto whole = require(open_model_file(split.write_whole()));
    const auto opened = require(open_model_file(split.part(1)));
    EXPECT_EQ(opened.config.name, "m");
    EXPECT_EQ(opened.weights->files().size(), 3u);
    EXPECT_EQ(opened.weights->names(), whole.weights->names());
    for (const std::string& name : whole.weights->names()) {
        const TensorInfo& info = *whole.weights->find(name);
        std::vector<float> a(info.cols()), b(info.cols());
        for (std::int64_t r = 0; r < info.rows(); ++r) {
            whole.weights->read_row(info, r, a.data());
            opened.weights->read_row(*opened.weights->find(name), r, b.data());
            ASSERT_EQ(a, b) << name;
        }
    }
    EXPECT_THAT(gguf_parts(split.part(1)),
                ::testing::ElementsAre(split.part(1), split.part(2), split.part(3)));
    EXPECT_THAT(gguf_parts("x.gguf"), ::testing::ElementsAre("x.gguf"));
}

TEST(Gguf, NamesPartsOfASplitModel) {
    const SplitFile split;
    EXPECT_THAT(split.error(2), HasSubstr("is part 2 of 3 of a model; name the first, " + split.part(1)));
    const std::string other = split.part(1) + ".bak";
    std::filesystem::rename(split.part(2), other);
    EXPECT_THAT(split.error(1), HasSubstr(split.part(2) + ": is missing"));
    std::filesystem::copy(split.part(3), split.part(2));
    EXPECT_THAT(split.error(1), HasSubstr("metadata 'split.no' is 2, expected 1"));
    std::filesystem::remove(split.part(2));
    std::filesystem::rename(split.part(1), other + ".gguf");
    EXPECT_THAT(open_model_file(other + ".gguf").error().message,
                HasSubstr("its name does not end in -00001-of-00003.gguf; rename it"));
}

// llama.cpp's default splits punctuation, then words, then numbers in threes.
TEST(Gguf, SplitsByLlamaCppsDefaultWithoutAName) {
    GgufWriter file = small_file();
    file.remove("tokenizer.ggml.pre");
    const std::string path = scratch("default.gguf");
    ASSERT_TRUE(file.write(path).ok());
    const auto opened = require(open_model_file(path));
    EXPECT_THAT(opened.notes, ::testing::ElementsAre(HasSubstr("'tokenizer.ggml.pre' is missing")));
    std::vector<std::string_view> pieces;
    require(PreTokenizer::create("default", path)).split("Hi, you're 12345 <x>\n ok", pieces);
    EXPECT_THAT(pieces, ::testing::ElementsAre("Hi", ",", " you", "'", "re", " ", "123", "45", " ", "<", "x",
                                               ">", "\n", " ok"));
}

TEST(Gguf, RejectsRepeatedNames) {
    EXPECT_THAT(open_changed([](GgufWriter& file) { file.add("general.name", std::string("again")); }),
                HasSubstr("metadata 'general.name' appears twice"));
    EXPECT_THAT(open_changed([](GgufWriter& file) {
                    file.add_tensor("output_norm.weight", {32}, 0, std::string(128, '\0'));
                }),
                HasSubstr("tensor 'output_norm.weight' appears twice"));
}

TEST(Gguf, ReportsUnsupportedArchitecturesAndTypes) {
    EXPECT_THAT(
        open_with("general.architecture", std::string("mamba")),
        HasSubstr(
            "architecture 'mamba' is not supported by this version (supported: llama, qwen2, qwen3, olmo2)"));
    EXPECT_THAT(
        open_changed([](GgufWriter& file) {
            file.change_tensor("output.weight", {283, 32}, 20);
        }),
        HasSubstr("tensor 'output.weight' has type IQ4_NL, which this version does not read (it reads F32"));
    EXPECT_THAT(open_changed([](GgufWriter& file) {
                    file.change_tensor("output.weight", {283, 32}, 4711);
                }),
                HasSubstr("has type number 4711"));
    EXPECT_THAT(open_changed([](GgufWriter& file) {
                    file.change_tensor("output.weight", {283, 32}, 12);
                }),
                HasSubstr("rows of 32 elements, which is not a multiple of Q4_K's block of 256"));
}

TEST(Gguf, ChecksShapesAgainstTheMetadata) {
    EXPECT_THAT(open_changed([](GgufWriter& file) {
                    file.change_tensor("blk.0.ffn_up.weight", {16, 32}, 0);
                }),
                HasSubstr("tensor 'blk.0.ffn_up.weight' has shape [16, 32], the metadata requires [32, 32]"));
    EXPECT_THAT(open_changed([](GgufWriter& file) { file.remove_tensor("blk.0.attn_v.weight"); }),
                HasSubstr("tensor 'blk.0.attn_v.weight' is missing"));
    EXPECT_THAT(open_changed([](GgufWriter& file) { file.remove_tensor("token_embd.weight"); }),
                HasSubstr("tensor 'token_embd.weight' is missing"));
    EXPECT_THAT(open_changed([](GgufWriter& file) {
                    file.add_tensor("blk.0.attn_q.bias", {32}, 0, std::string(128, '\0'));
                }),
                HasSubstr("tensor 'blk.0.attn_q.bias' is not part of a model that this version supports"));
    const auto impossible = [](const std::vector<std::int64_t>& shape) {
        return open_changed([&](GgufWriter& file) { file.change_tensor("output.weight", shape, 0); });
    };
    EXPECT_THAT(impossible({1, 1, 1, 1, 32}), HasSubstr("has 5 dimensions, expected 1 to 4"));
    EXPECT_THAT(impossible({}), HasSubstr("has 0 dimensions"));
    EXPECT_THAT(impossible({0, 32}), HasSubstr("invalid"));
    EXPECT_THAT(impossible({-1, 32}), HasSubstr("invalid"));
    const std::int64_t large = std::int64_t{1} << 31;
    EXPECT_THAT(impossible({large, large, 32}), HasSubstr("too large for any file"));
    EXPECT_THAT(impossible({large, 32}), HasSubstr("truncated"));
}

TEST(Gguf, MetadataOfTheModelIsChecked) {
    EXPECT_THAT(open_changed([](GgufWriter& file) { file.remove("llama.block_count"); }),
                HasSubstr("metadata 'llama.block_count' is missing"));
    EXPECT_THAT(open_with("llama.block_count", std::string("two")),
                HasSubstr("metadata 'llama.block_count' is one string, expected an integer"));
    EXPECT_THAT(open_with("llama.block_count", 0u), HasSubstr("'llama.block_count' is 0, expected 1 to"));
    EXPECT_THAT(open_with("llama.block_count", 2u), HasSubstr("tensor 'blk.1.attn_norm.weight' is missing"));
    EXPECT_THAT(open_with("llama.context_length", 0xffffffffu), HasSubstr("llama.context_length"));
    EXPECT_THAT(open_with("llama.attention.head_count_kv", 3u), HasSubstr("cannot share 3 key/value heads"));
    EXPECT_THAT(open_with("llama.attention.key_length", 15u), HasSubstr("expected an even width"));
    EXPECT_THAT(open_with("llama.attention.value_length", 8u), HasSubstr("keys are 16 wide and values 8"));
    EXPECT_THAT(open_with("llama.rope.dimension_count", 8u), HasSubstr("partial rotation"));
    EXPECT_THAT(open_with("llama.rope.freq_base", -1.0f), HasSubstr("expected a positive number"));
    EXPECT_THAT(open_with("llama.rope.freq_base", std::string("x")),
                HasSubstr("expected a floating-point number"));
    EXPECT_THAT(open_with("llama.attention.layer_norm_rms_epsilon", 0.0f),
                HasSubstr("layer_norm_rms_epsilon"));
    EXPECT_THAT(open_with("llama.vocab_size", 100u), HasSubstr("token_embd.weight has 283 rows"));
    EXPECT_THAT(open_with("general.alignment", 48u),
                HasSubstr("general.alignment is 48, expected a power of two"));
    EXPECT_THAT(open_with("general.alignment", 0u), HasSubstr("general.alignment is 0"));
}

TEST(Gguf, ReadsIntegersOfAnyWidthAndUniformLists) {
    const auto with_heads = [](std::uint32_t type, const std::string& value) {
        return open_changed([&](GgufWriter& file) {
            file.remove("llama.attention.head_count");
            file.add_raw("llama.attention.head_count", type, value);
        });
    };
    EXPECT_EQ(with_heads(0, raw_bytes<std::uint8_t>(2)), "");
    EXPECT_EQ(with_heads(3, raw_bytes<std::int16_t>(2)), "");
    EXPECT_EQ(with_heads(10, raw_bytes<std::uint64_t>(2)), "");
    EXPECT_EQ(with_heads(11, raw_bytes<std::int64_t>(2)), "");
    const std::string list =
        raw_bytes<std::uint32_t>(5) + raw_bytes<std::uint64_t>(2) + raw_bytes<std::int32_t>(2);
    EXPECT_EQ(with_heads(9, list + raw_bytes<std::int32_t>(2)), "");
    EXPECT_THAT(with_heads(9, list + raw_bytes<std::int32_t>(3)), HasSubstr("differs between layers"));
    EXPECT_THAT(with_heads(9, raw_bytes<std::uint32_t>(5) + raw_bytes<std::uint64_t>(0)),
                HasSubstr("is an array of 0 i32"));
    EXPECT_THAT(with_heads(10, raw_bytes(~std::uint64_t{0})), HasSubstr("is out of range"));
    EXPECT_THAT(with_heads(13, ""), HasSubstr("unknown value type 13"));
    EXPECT_THAT(with_heads(9, raw_bytes<std::uint32_t>(9) + raw_bytes<std::uint64_t>(0)),
                HasSubstr("array of arrays"));
}

TEST(Gguf, TokenizerMetadataIsChecked) {
    EXPECT_THAT(open_changed([](GgufWriter& file) { file.remove("tokenizer.ggml.model"); }),
                HasSubstr("holds no tokenizer"));
    EXPECT_THAT(open_changed([](GgufWriter& file) { file.remove("tokenizer.ggml.merges"); }),
                HasSubstr("'tokenizer.ggml.merges' is missing"));
    EXPECT_THAT(open_with("tokenizer.ggml.model", std::string("bert")), HasSubstr("tokenizer model 'bert'"));
    EXPECT_THAT(open_with("tokenizer.ggml.model", std::string("llama")),
                HasSubstr("'tokenizer.ggml.scores' is missing"));
    EXPECT_THAT(open_with("tokenizer.ggml.pre", std::string("viking")), HasSubstr("pre-tokenizer 'viking'"));
    EXPECT_EQ(open_changed([](GgufWriter& file) { file.remove("tokenizer.ggml.pre"); }), "");
    EXPECT_THAT(open_with("tokenizer.ggml.tokens", 5u), HasSubstr("expected an array of strings"));
    EXPECT_THAT(open_with("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 2}),
                HasSubstr("2 token types"));
    EXPECT_THAT(open_with("tokenizer.ggml.eos_token_id", 100000u), HasSubstr("end-of-text id 100000"));
    EXPECT_EQ(open_with("tokenizer.ggml.bos_token_id", 0xffffffffu), "");
    EXPECT_THAT(open_with("tokenizer.ggml.add_bos_token", 1u), HasSubstr("expected a bool"));
    std::vector<std::string> many(300);
    for (std::size_t i = 0; i < many.size(); ++i) many[i] = fmt::format("t{}", i);
    EXPECT_THAT(open_changed([&](GgufWriter& file) {
                    for (const char* key : {"tokens", "token_type", "merges"})
                        file.remove(std::string("tokenizer.ggml.") + key);
                    file.add("tokenizer.ggml.tokens", many);
                    file.add("tokenizer.ggml.merges", std::vector<std::string>{});
                }),
                HasSubstr("the tokenizer has 300 tokens, the embedding only 283 rows, and token 283 't283' "
                          "beyond them can occur"));
}

TEST(Gguf, OpensWithAnUnsupportedChatTemplate) {
    GgufWriter writer = small_file();
    writer.remove("tokenizer.chat_template");
    writer.add("tokenizer.chat_template", std::string("{% strange %}"));
    const std::string path = scratch("chat.gguf");
    ASSERT_TRUE(writer.write(path).ok());
    const auto file = require(open_model_file(path));
    EXPECT_TRUE(file.chat.is_raw());
    EXPECT_THAT(file.chat.problem(), HasSubstr("--raw"));
}

TEST(Gguf, ChoosesAmongNamedChatTemplates) {
    GgufWriter writer = small_file();
    writer.add("tokenizer.chat_template.rag", std::string("R{{ messages[0].content }}"));
    const std::string path = scratch("named.gguf");
    ASSERT_TRUE(writer.write(path).ok());
    EXPECT_THAT(*require(open_model_file(path)).chat.render({{"user", "?"}}), HasSubstr("<|im_start|>user"));
    writer.remove("tokenizer.chat_template");
    ASSERT_TRUE(writer.write(path).ok());
    const auto file = require(open_model_file(path));
    EXPECT_EQ(*file.chat.render({{"user", "?"}}), "R?");
    EXPECT_THAT(file.chat.notes(false), ::testing::ElementsAre(HasSubstr("'rag' is used")));
}

/// llama.cpp puts the token in front of chats as well.
TEST(Gguf, BeginningOfTextIsOfChatsToo) {
    GgufWriter writer = small_file();
    writer.remove("tokenizer.ggml.add_bos_token");
    writer.add("tokenizer.ggml.add_bos_token", true);
    const std::string path = scratch("bos.gguf");
    ASSERT_TRUE(writer.write(path).ok());
    EXPECT_TRUE(require(open_model_file(path)).tokenizer->add_bos(true));
}

/// llama.cpp's server puts the token behind every prompt.
TEST(Gguf, EndOfTextMayFollowEveryPrompt) {
    GgufWriter writer = small_file();
    writer.add("tokenizer.ggml.add_eos_token", true);
    const std::string path = scratch("eos.gguf");
    ASSERT_TRUE(writer.write(path).ok());
    const auto file = require(open_model_file(path));
    EXPECT_TRUE(file.tokenizer->add_eos());
    EXPECT_THAT(file.notes,
                ::testing::Contains(HasSubstr("add_eos_token is true: the end-of-text token '<|im_end|>'")));
    EXPECT_THAT(open_changed([](GgufWriter& changed) {
                    changed.add("tokenizer.ggml.add_eos_token", true);
                    changed.remove("tokenizer.ggml.eos_token_id");
                }),
                HasSubstr("add_eos_token is true, but tokenizer.ggml.eos_token_id names no token"));
    EXPECT_EQ(open_with("tokenizer.ggml.add_eos_token", false), "");
}

TEST(Gguf, ReadsRopeDivisorsFromTheirTensor) {
    const auto with_divisors = [](float last) {
        GgufWriter writer = small_file();
        std::string data;
        for (int i = 0; i < 8; ++i) data += raw_bytes(i < 7 ? 1.0f : last);
        writer.add_tensor("rope_freqs.weight", {8}, 0, data);
        return writer;
    };
    const std::string path = scratch("rope.gguf");
    ASSERT_TRUE(with_divisors(8.0f).write(path).ok());
    const auto file = require(open_model_file(path));
    EXPECT_EQ(file.config.rotation.divisors, (std::vector<float>{1, 1, 1, 1, 1, 1, 1, 8}));
    EXPECT_THAT(open_bytes(with_divisors(0.0f).bytes()), HasSubstr("rope_freqs.weight"));
}

TEST(Gguf, TakesTheDisplayNameFromTheFileName) {
    const auto display_name = [](const std::string& file_name) {
        const std::string path = scratch(file_name);
        EXPECT_TRUE(small_file().write(path).ok());
        const auto file = open_model_file(path);
        return file.ok() ? file->config.name : file.error().message;
    };
    EXPECT_EQ(display_name("Some-1B.Q4_1.gguf"), "Some-1B");
    EXPECT_EQ(display_name("Some-1B-q4_k_m.gguf"), "Some-1B");
    EXPECT_EQ(display_name("Some-1B-Chat.gguf"), "Some-1B-Chat");
}

}  // namespace
}  // namespace draftscope
