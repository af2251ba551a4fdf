#include "engine/formats/hf_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/rng.h"
#include "engine/formats/model_file.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

/// Reading model folders and their error messages. The tests copy and modify the tiny folders of
/// tests/golden/models.
namespace draftscope {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ScratchFolder;

std::string golden_folder(const std::string& architecture) {
    return std::string(DS_SOURCE_DIR) + "/tests/golden/models/" + architecture;
}

Json read_json(const std::string& path) {
    return Json::parse(std::ifstream(path));
}
/// A copy of a tiny folder that tests may modify.
class Copy {
  public:
    explicit Copy(const std::string& architecture) { fs::copy(golden_folder(architecture), scratch_.path()); }
    std::string file(const std::string& name) const { return scratch_.file(name); }
    void edit(const std::string& name, const std::function<void(Json&)>& change) const {
        Json json = read_json(file(name));
        change(json);
        testing::write_text(file(name), json.dump());
    }
    std::string error() const {
        const auto opened = open_model_file(scratch_.path());
        if (opened.ok()) return "(opened)";
        EXPECT_EQ(opened.error().kind, ErrorKind::bad_input);
        EXPECT_EQ(opened.error().message.find('\n'), std::string::npos);
        return opened.error().message;
    }
    const std::string& path() const { return scratch_.path(); }

  private:
    ScratchFolder scratch_;
};

std::string with(const std::string& architecture, const std::string& file,
                 const std::function<void(Json&)>& change) {
    const Copy copy(architecture);
    copy.edit(file, change);
    return copy.error();
}
std::string with_config(const std::string& architecture, const char* field, const Json& value) {
    return with(architecture, "config.json", [&](Json& json) { json[field] = value; });
}
std::string without(const std::string& architecture, const std::string& file) {
    const Copy copy(architecture);
    fs::remove(copy.file(file));
    return copy.error();
}

ModelFile open_golden(const std::string& architecture) {
    auto opened = open_model_file(golden_folder(architecture));
    EXPECT_TRUE(is_ok(opened));
    return opened.ok() ? std::move(opened).value() : ModelFile();
}

TEST(HfFolder, ReadsConfigsOfTheFamilies) {
    const ModelFile llama = open_golden("llama");
    EXPECT_EQ(llama.config.architecture, "llama");
    EXPECT_EQ(llama.config.name, "llama");
    EXPECT_EQ(llama.config.layers, 3);
    EXPECT_EQ(llama.config.head_dim, 16);
    EXPECT_EQ(llama.config.context, 256);
    EXPECT_TRUE(llama.config.tied_head);
    EXPECT_EQ(llama.quantisation, "BF16");
    EXPECT_FALSE(llama.quantised);
    EXPECT_THAT(*llama.chat.render({{"user", " x "}}), HasSubstr("user<|end_header_id|>\n\nx<|eot_id|>"));
    EXPECT_TRUE(llama.tokenizer->add_bos());
    EXPECT_EQ(llama.tokenizer->token_bytes(llama.tokenizer->bos()), "<|begin_of_text|>");
    EXPECT_EQ(llama.tokenizer->eos().size(), 2u);

    const ModelFile qwen2 = open_golden("qwen2");
    EXPECT_TRUE(qwen2.config.qkv_bias);
    EXPECT_FALSE(qwen2.config.tied_head);
    EXPECT_EQ(qwen2.quantisation, "F32");
    EXPECT_EQ(*qwen2.chat.render({{"user", "x"}}), "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(qwen2.config.vocab, qwen2.tokenizer->size() + 13);
    EXPECT_FALSE(qwen2.tokenizer->add_bos());

    const ModelFile qwen3 = open_golden("qwen3");
    EXPECT_EQ(qwen3.config.qk_norm, QkNorm::per_head);
    EXPECT_EQ(qwen3.config.head_dim, 32);
    EXPECT_EQ(*qwen3.chat.render({{"user", "x"}}), "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");

    const ModelFile olmo2 = open_golden("olmo2");
    EXPECT_EQ(olmo2.config.qk_norm, QkNorm::full);
    EXPECT_TRUE(olmo2.config.post_norms);
    EXPECT_TRUE(olmo2.chat.is_raw());
    EXPECT_TRUE(olmo2.chat.problem().empty());
    EXPECT_EQ(olmo2.weights->find("blk.0.attn_norm.weight"), nullptr);
}

// Llama 3.1's published scaling: wavelengths shorter than 8192 / 4 keep their frequency; those longer than
// 8192 get an eighth of it.
TEST(HfFolder, ComputesLlama3RopeScaling) {
    const Copy copy("llama");
    copy.edit("config.json", [](Json& json) {
        json["rope_theta"] = 500000.0;
        json["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", 8.0},
                                {"low_freq_factor", 1.0},
                                {"high_freq_factor", 4.0},
                                {"original_max_position_embeddings", 8192}};
        json["head_dim"] = 128;
    });
    const auto file = require(JsonFile::read(copy.file("config.json"), "this test"));
    Notes notes;
    const auto hf = require(read_hf_config(file, notes));
    const std::vector<float>& divisors = hf.config.rotation.divisors;
    ASSERT_EQ(divisors.size(), 64u);
    for (int j = 0; j <= 28; ++j) EXPECT_FLOAT_EQ(divisors[j], 1.0f) << j;
    for (int j = 35; j < 64; ++j) EXPECT_FLOAT_EQ(divisors[j], 8.0f) << j;
    for (std::size_t j = 29; j < 35; ++j) {
        EXPECT_GT(divisors[j], divisors[j - 1]);
        EXPECT_LT(divisors[j], 8.0f);
    }
}

TEST(HfFolder, ReadsRopeParameters) {
    const Copy copy("llama");
    copy.edit("config.json", [](Json& json) {
        json["rope_parameters"] = json["rope_scaling"];
        json["rope_parameters"]["rope_theta"] = json["rope_theta"];
        json.erase("rope_scaling");
        json.erase("rope_theta");
    });
    const auto opened = require(open_model_file(copy.path()));
    const ModelFile older = open_golden("llama");
    EXPECT_EQ(opened.config.rotation.divisors, older.config.rotation.divisors);
    EXPECT_EQ(opened.config.rotation.theta, older.config.rotation.theta);
}

TEST(HfFolder, MissingFilesAreNamed) {
    EXPECT_THAT(without("llama", "config.json"), HasSubstr("config.json: is missing; it is needed for"));
    EXPECT_THAT(without("llama", "tokenizer.json"),
                HasSubstr("tokenizer.json: is missing; it is needed for"));
    EXPECT_THAT(without("qwen2", "model.safetensors"),
                HasSubstr("holds neither model.safetensors nor model.safetensors.index.json"));
    EXPECT_THAT(without("llama", "model-00002-of-00002.safetensors"),
                HasSubstr("model-00002-of-00002.safetensors"));
    const Copy pickled("qwen2");
    fs::rename(pickled.file("model.safetensors"), pickled.file("pytorch_model.bin"));
    EXPECT_THAT(pickled.error(), HasSubstr("convert pytorch_model.bin to safetensors first"));
    // Fields with a default may be left out.
    EXPECT_EQ(without("qwen2", "generation_config.json"), "(opened)");
    EXPECT_EQ(without("qwen2", "tokenizer_config.json"), "(opened)");
}

/// The values of a stored tensor's first row.
std::vector<float> first_row(const ModelFile& file, const char* name) {
    const TensorInfo* info = file.weights->find(name);
    std::vector<float> out(info == nullptr ? 0 : static_cast<std::size_t>(info->cols()));
    if (info != nullptr) file.weights->read_row(*info, 0, out.data());
    return out;
}

/// Renames a tensor in the header of a safetensors file. Both names have the same length.
void rename_tensor(const std::string& path, const std::string& from, const std::string& to) {
    std::string bytes = testing::read_text(path);
    ASSERT_EQ(from.size(), to.size());
    bytes.replace(bytes.find(from), from.size(), to);
    testing::write_text(path, bytes);
}

// As transformers 5 does: a head that differs is used though the config ties it, and is said.
TEST(HfFolder, TiedAndSeparateHeads) {
    const Copy copy("qwen2");
    copy.edit("config.json", [](Json& json) { json["tie_word_embeddings"] = true; });
    const auto differs = require(open_model_file(copy.path()));
    EXPECT_FALSE(differs.config.tied_head);
    EXPECT_EQ(first_row(differs, "output.weight"), first_row(open_golden("qwen2"), "output.weight"));
    EXPECT_THAT(differs.notes,
                ElementsAre(HasSubstr("'lm_head.weight' differs from 'model.embed_tokens.weight'")));

    std::string bytes = testing::read_text(copy.file("model.safetensors"));
    const Json header = Json::parse(bytes.substr(8, *reinterpret_cast<const std::uint64_t*>(bytes.data())));
    const auto begin = [&](const char* name) {
        return 8 + *reinterpret_cast<const std::uint64_t*>(bytes.data()) +
               header[name]["data_offsets"][0].get<std::size_t>();
    };
    const std::size_t size = header["lm_head.weight"]["data_offsets"][1].get<std::size_t>() -
                             header["lm_head.weight"]["data_offsets"][0].get<std::size_t>();
    bytes.replace(begin("lm_head.weight"), size, bytes.substr(begin("model.embed_tokens.weight"), size));
    testing::write_text(copy.file("model.safetensors"), bytes);
    const auto equal = require(open_model_file(copy.path()));
    EXPECT_TRUE(equal.config.tied_head);
    EXPECT_THAT(equal.notes, IsEmpty());

    rename_tensor(copy.file("model.safetensors"), "model.embed_tokens.weight", "model.rotary_emb.inv_freq");
    const auto alone = require(open_model_file(copy.path()));
    EXPECT_TRUE(alone.config.tied_head);
    EXPECT_EQ(first_row(alone, "token_embd.weight"), first_row(open_golden("qwen2"), "token_embd.weight"));
    EXPECT_THAT(alone.notes,
                ElementsAre(HasSubstr("'model.embed_tokens.weight' is missing; the tied lm_head.weight")));
}

// As in transformers, model.safetensors comes first, whatever an index names.
TEST(HfFolder, AWholeFileComesBeforeAnIndex) {
    const Copy copy("qwen2");
    testing::write_text(copy.file("model.safetensors.index.json"),
                        R"({"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}})");
    const auto opened = require(open_model_file(copy.path()));
    EXPECT_EQ(first_row(opened, "output_norm.weight"), first_row(open_golden("qwen2"), "output_norm.weight"));
    EXPECT_THAT(opened.notes, ElementsAre(HasSubstr("model.safetensors.index.json: is not used")));
}

TEST(HfFolder, NamesGitLfsPointers) {
    for (const char* name : {"model.safetensors", "tokenizer.json", "config.json"}) {
        const Copy copy("qwen2");
        testing::write_text(copy.file(name),
                            "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n");
        EXPECT_THAT(copy.error(),
                    HasSubstr(std::string(name) + ": is a git-lfs pointer, not the file itself"));
    }
}

TEST(HfFolder, NamesWhatAFolderHoldsInstead) {
    const Copy adapter("qwen2");
    fs::remove(adapter.file("model.safetensors"));
    testing::write_text(adapter.file("adapter_config.json"), "{}");
    EXPECT_THAT(adapter.error(), HasSubstr("holds a LoRA adapter: merge it"));
    fs::remove(adapter.file("config.json"));
    EXPECT_THAT(adapter.error(), HasSubstr("holds a LoRA adapter: merge it"));
    const ScratchFolder lone;
    testing::write_text(lone.file("x.Q4_0.gguf"), "GGUF");
    EXPECT_THAT(open_model_file(lone.path()).error().message,
                HasSubstr("name the GGUF file itself: " + lone.file("x.Q4_0.gguf")));
}

TEST(HfFolder, TensorsAreCheckedAgainstTheConfig) {
    EXPECT_THAT(with_config("qwen2", "intermediate_size", 96),
                HasSubstr("tensor 'model.layers.0.mlp.gate_proj.weight' has shape [80, 48], config.json "
                          "requires [96, 48]"));
    EXPECT_THAT(with_config("qwen2", "vocab_size", 300),
                HasSubstr("tensor 'model.embed_tokens.weight' has shape [312, 48]"));
    EXPECT_THAT(with_config("qwen2", "num_hidden_layers", 3),
                HasSubstr("tensor 'model.layers.2.input_layernorm.weight' is missing"));
    EXPECT_THAT(with_config("qwen2", "num_hidden_layers", 1),
                HasSubstr("is not part of a qwen2 model as config.json describes it"));
    EXPECT_THAT(with_config("qwen2", "architectures", {"LlamaForCausalLM"}),
                HasSubstr("tensor 'model.layers.0.self_attn.k_proj.bias' is not part of a llama model"));
    EXPECT_THAT(with_config("qwen3", "tie_word_embeddings", false),
                HasSubstr("tensor 'lm_head.weight' is missing"));
    EXPECT_EQ(with("qwen2", "config.json", [](Json& json) { json.erase("tie_word_embeddings"); }),
              "(opened)");
    const auto index = "model.safetensors.index.json";
    EXPECT_THAT(with("llama", index,
                     [](Json& json) {
                         json["weight_map"]["model.norm.weight"] = "model-00001-of-00002.safetensors";
                     }),
                HasSubstr("model-00001-of-00002.safetensors: tensor 'model.norm.weight' is missing, though"));
    EXPECT_THAT(with("llama", index, [](Json& json) { json["weight_map"]["model.norm.weight"] = "../x"; }),
                HasSubstr("weight_map gives '\"../x\"' as file of tensor 'model.norm.weight'"));
    EXPECT_THAT(with("llama", index, [](Json& json) { json["weight_map"].erase("model.norm.weight"); }),
                HasSubstr("tensor 'model.norm.weight' is missing"));
    EXPECT_THAT(with("llama", index, [](Json& json) { json.erase("weight_map"); }),
                HasSubstr("weight_map is missing, expected an object"));
}

TEST(HfFolder, UnsupportedModelsAreNamed) {
    EXPECT_THAT(
        with_config("llama", "architectures", {"FalconForCausalLM"}),
        HasSubstr(
            "architecture 'FalconForCausalLM' is not supported by this version (supported: "
            "LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Olmo2ForCausalLM, MistralForCausalLM)"));
    EXPECT_THAT(with_config("mistral", "sliding_window", 64),
                HasSubstr("sliding_window is 64, shorter than max_position_embeddings 256"));
    EXPECT_EQ(with_config("mistral", "sliding_window", Json()), "(opened)");
    EXPECT_THAT(with_config("llama", "architectures", Json()), HasSubstr("architectures is missing"));
    EXPECT_THAT(with_config("llama", "rope_scaling", {{"type", "longrope"}, {"factor", 4.0}}),
                HasSubstr("rope_scaling.type is \"longrope\", expected default, linear, llama3 or yarn"));
    EXPECT_THAT(with_config("llama", "rope_scaling", {{"rope_type", "llama3"}, {"factor", 4.0}}),
                HasSubstr("rope_scaling.low_freq_factor is missing, expected a positive number"));
    EXPECT_THAT(with_config("llama", "attention_bias", true), HasSubstr("attention_bias is true, expected"));
    EXPECT_THAT(with_config("llama", "mlp_bias", true), HasSubstr("mlp_bias is true, expected false"));
    EXPECT_THAT(with_config("qwen2", "use_sliding_window", true), HasSubstr("use_sliding_window is true"));
    EXPECT_THAT(with_config("qwen2", "hidden_act", "gelu"), HasSubstr("hidden_act is \"gelu\""));
    EXPECT_THAT(with_config("qwen2", "quantization_config", {{"bits", 4}}), HasSubstr("are quantised"));
}

TEST(HfFolder, AllowsAddedTokensBeyondTheEmbedding) {
    const ModelFile mistral = open_golden("mistral");
    EXPECT_EQ(mistral.config.architecture, "llama");
    EXPECT_EQ(mistral.tokenizer->size(), mistral.config.vocab + 2);
    EXPECT_EQ(mistral.tokenizer->encode("<think>", true).at(0), mistral.config.vocab);
    // An end-of-turn token that cannot be generated is ignored.
    const Copy copy("mistral");
    copy.edit("generation_config.json", [&](Json& json) {
        json["eos_token_id"] = {296, mistral.config.vocab + 1};
    });
    const auto opened = require(open_model_file(copy.path()));
    EXPECT_FALSE(opened.tokenizer->is_eos(mistral.config.vocab + 1));
    EXPECT_TRUE(opened.tokenizer->is_eos(296));
}

TEST(HfFolder, RejectsInvalidConfigs) {
    EXPECT_THAT(with_config("llama", "hidden_size", 0),
                HasSubstr("hidden_size is 0, expected an integer from 1"));
    EXPECT_THAT(with_config("llama", "hidden_size", 1e300), HasSubstr("hidden_size is 1e+300"));
    EXPECT_THAT(with_config("llama", "hidden_size", "64"), HasSubstr("hidden_size is \"64\""));
    EXPECT_THAT(with_config("llama", "num_hidden_layers", std::int64_t{1} << 60),
                HasSubstr("num_hidden_layers"));
    EXPECT_THAT(with_config("llama", "num_key_value_heads", 3),
                HasSubstr("4 heads cannot share 3 key/value heads"));
    EXPECT_THAT(with_config("llama", "head_dim", 15), HasSubstr("heads are 15 wide, expected an even width"));
    EXPECT_THAT(with_config("llama", "rms_norm_eps", -1), HasSubstr("rms_norm_eps is -1"));
    EXPECT_THAT(with_config("llama", "rms_norm_eps", Json()), HasSubstr("rms_norm_eps is missing"));
    const Copy damaged("llama");
    testing::write_text(damaged.file("config.json"), "{\"architectures\": [");
    EXPECT_THAT(damaged.error(), HasSubstr("config.json: is not a JSON object; the file is damaged"));
}

TEST(HfFolder, ReportsUnsupportedTokenizers) {
    const auto change = [](const std::function<void(Json&)>& edit) {
        return with("qwen2", "tokenizer.json", edit);
    };
    EXPECT_THAT(
        change([](Json& json) {
            json["pre_tokenizer"] = {{"type", "Metaspace"}};
        }),
        HasSubstr("pre_tokenizer has the step 'Metaspace(, always, split)', which this version does not"));
    EXPECT_THAT(change([](Json& json) { json["pre_tokenizer"] = Json(); }),
                HasSubstr("pre_tokenizer is missing, expected"));
    EXPECT_THAT(
        change([](Json& json) { json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\h+"; }),
        HasSubstr("the splitting pattern '\\h+' cannot be used by this version"));
    EXPECT_THAT(
        change([](Json& json) { json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(("; }),
        HasSubstr("the splitting pattern '((' cannot be used by this version (at 2, error"));
    EXPECT_THAT(
        change([](Json& json) { json["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Sideways"; }),
        HasSubstr("pre_tokenizer has the step 'Split Sideways("));
    EXPECT_THAT(change([](Json& json) { json["pre_tokenizer"]["pretokenizers"].erase(1); }),
                HasSubstr("expected steps with ByteLevel among them"));
    EXPECT_THAT(change([](Json& json) {
                    json["normalizer"] = {{"type", "Lowercase"}};
                }),
                HasSubstr("normalizer is 'Lowercase', which this version does not support (supported: NFC)"));
    EXPECT_THAT(change([](Json& json) {
                    json["post_processor"] = {{"type", "BertProcessing"}};
                }),
                HasSubstr("post_processor 'BertProcessing' is not supported"));
    EXPECT_THAT(change([](Json& json) { json["model"]["type"] = "Unigram"; }),
                HasSubstr("model.type is \"Unigram\", expected BPE"));
    EXPECT_THAT(change([](Json& json) { json["model"]["byte_fallback"] = true; }),
                HasSubstr("which this version does not support with byte_fallback"));
    EXPECT_THAT(with("llama", "tokenizer.json",
                     [](Json& json) {
                         json["post_processor"]["single"].push_back(
                             {{"SpecialToken", {{"id", "<|eot_id|>"}, {"type_id", 0}}}});
                     }),
                HasSubstr("the post_processor writes"));
}

TEST(HfFolder, RejectsDamagedTokenizers) {
    const auto change = [](const std::function<void(Json&)>& edit) {
        return with("qwen2", "tokenizer.json", edit);
    };
    EXPECT_THAT(change([](Json& json) { json.erase("model"); }), HasSubstr("model is missing"));
    EXPECT_THAT(change([](Json& json) { json["model"].erase("vocab"); }),
                HasSubstr("model.vocab is missing"));
    EXPECT_THAT(change([](Json& json) { json["model"]["merges"][3] = {"a"}; }),
                HasSubstr("merge 3 is [\"a\"], expected two tokens"));
    EXPECT_THAT(change([](Json& json) { json["model"]["merges"][3] = "q z"; }),
                HasSubstr("tokenizer merge 3 ('q z') does not join two tokens into a third"));
    EXPECT_THAT(change([](Json& json) { json["model"]["vocab"]["a"] = -4; }),
                HasSubstr("token 'a' has id -4"));
    EXPECT_THAT(change([](Json& json) { json["model"]["vocab"]["a"] = 1e9; }), HasSubstr("token 'a' has id"));
    EXPECT_THAT(change([](Json& json) { json["model"]["vocab"]["a"] = json["model"]["vocab"]["b"]; }),
                HasSubstr("belongs to"));
    EXPECT_THAT(change([](Json& json) { json["model"]["vocab"]["new"] = 5000; }),
                HasSubstr("the tokenizer has 5001 tokens, the embedding only 312 rows"));
    EXPECT_THAT(
        with("qwen2", "generation_config.json",
             [](Json& json) {
                 json["eos_token_id"] = {2, 9999};
             }),
        HasSubstr("generation_config.json: eos_token_id is [2,9999], expected ids of the 299 tokens"));
}

TEST(HfFolder, FallsBackToRawWithAnUnusableTemplate) {
    const Copy copy("qwen2");
    testing::write_text(copy.file("chat_template.jinja"), "{{ messages | strange }}");
    const auto opened = require(open_model_file(copy.path()));
    EXPECT_TRUE(opened.chat.is_raw());
    EXPECT_THAT(opened.chat.problem(), HasSubstr("filter 'strange' is not supported"));
}

/// Each place of transformers, and which of two is used.
TEST(HfFolder, FindsChatTemplates) {
    const auto text = [](const std::string& mark) { return mark + "{{ messages[0].content }}"; };
    const auto open = [](const Copy& copy) {
        const auto opened = require(open_model_file(copy.path()));
        std::string out = *opened.chat.render({{"user", "?"}});
        for (const std::string& note : opened.chat.notes(false))
            out += " // " + note.substr(copy.path().size());
        return out;
    };
    const Copy copy("qwen2");
    const auto set = [&](const Json& value) {
        copy.edit("tokenizer_config.json", [&](Json& json) { json["chat_template"] = value; });
    };
    set(text("A"));
    EXPECT_EQ(open(copy), "A?");
    set({{{"name", "rag"}, {"template", text("R")}}, {{"name", "default"}, {"template", text("D")}}});
    EXPECT_EQ(open(copy), "D?");
    set({{{"name", "tool_use"}, {"template", text("T")}}});
    EXPECT_EQ(open(copy),
              "T? // /tokenizer_config.json: no chat template is named default; 'tool_use' is used");
    set({{"default", text("M")}});
    EXPECT_EQ(open(copy), "M?");
    set(nullptr);
    testing::write_text(copy.file("processor_config.json"), Json{{"chat_template", text("P")}}.dump());
    EXPECT_EQ(open(copy), "P? // : the chat template is that of processor_config.json");
    testing::write_text(copy.file("chat_template.json"), Json{{"chat_template", text("C")}}.dump());
    EXPECT_THAT(open(copy), HasSubstr("C? // : the chat template is that of chat_template.json"));
    fs::create_directory(copy.file("additional_chat_templates"));
    testing::write_text(copy.file("additional_chat_templates/tool_use.jinja"), text("J"));
    EXPECT_EQ(open(copy),
              "J? // /additional_chat_templates: no chat template is named default; 'tool_use' is used");
    testing::write_text(copy.file("chat_template.jinja"), text("F"));
    set(text("F"));
    EXPECT_THAT(open(copy), HasSubstr("F? // : chat_template.jinja and chat_template.json hold different"));
}

/// transformers puts no token in front of a rendered chat; a raw text has the post-processor's.
TEST(HfFolder, BeginningOfTextIsOfRawTextOnly) {
    const Copy copy("llama");
    const auto open = [&] { return std::move(require(open_model_file(copy.path())).tokenizer); };
    EXPECT_TRUE(open()->add_bos());
    EXPECT_FALSE(open()->add_bos(true));
    EXPECT_EQ(open()->bos_note(), "");
    copy.edit("tokenizer_config.json", [](Json& json) { json["add_bos_token"] = false; });
    EXPECT_TRUE(open()->add_bos());
    EXPECT_THAT(open()->bos_note(), HasSubstr("tokenizer_config.json: add_bos_token is false, but"));
}

TEST(HfFolder, NamesADownloadCacheFolderAfterItsModel) {
    const ScratchFolder scratch;
    const fs::path folder = fs::path(scratch.path()) / "models--some--Tiny-1B" / "snapshots" / "0123abcd";
    fs::create_directories(folder.parent_path());
    fs::copy(golden_folder("qwen2"), folder);
    for (const std::string& path : {folder.string(), folder.string() + "/"}) {
        const auto opened = require(open_model_file(path));
        EXPECT_EQ(opened.config.name, "Tiny-1B");
    }
}

/// Returns every path in a JSON document.
void collect_paths(const Json& json, const Json::json_pointer& at, std::vector<Json::json_pointer>& out) {
    if (!at.empty()) out.push_back(at);
    if (json.is_object()) {
        for (const auto& [key, value] : json.items()) collect_paths(value, at / key, out);
    } else if (json.is_array()) {
        for (std::size_t i = 0; i < json.size(); ++i) collect_paths(json[i], at / i, out);
    }
}

// With any value replaced, the folder opens or returns an error of one line.
TEST(HfFolder, SurvivesAnyReplacedValue) {
    const std::vector<Json> wrong = {Json(),        true,           -1,    0, 3, 1e18, "x", "",
                                     Json::array(), Json::object(), {1, 2}};
    const Copy copy("llama");
    Rng rng(5);
    int refused = 0;
    for (const std::string name : {"config.json", "tokenizer_config.json", "generation_config.json",
                                   "model.safetensors.index.json", "tokenizer.json"}) {
        const Json whole = read_json(copy.file(name));
        std::vector<Json::json_pointer> paths;
        collect_paths(whole, Json::json_pointer(), paths);
        for (int trial = 0; trial < 80; ++trial) {
            Json spoiled = whole;
            const auto& place = paths[rng.below(static_cast<std::uint32_t>(paths.size()))];
            spoiled[place] = wrong[rng.below(static_cast<std::uint32_t>(wrong.size()))];
            testing::write_text(copy.file(name), spoiled.dump());
            SCOPED_TRACE(name + " " + place.to_string());
            refused += copy.error() != "(opened)";
        }
        testing::write_text(copy.file(name), whole.dump());
    }
    EXPECT_GT(refused, 100);
    EXPECT_EQ(copy.error(), "(opened)");
}

/// Writes the GGUF file of a folder's model, as a converter does.
testing::GgufWriter make_gguf(const std::string& architecture, const ModelFile& model) {
    const ModelConfig& c = model.config;
    testing::GgufWriter out;
    const auto number = [&](const char* key, int value) {
        out.add(architecture + "." + key, static_cast<std::uint32_t>(value));
    };
    out.add("general.architecture", architecture);
    number("block_count", c.layers);
    number("context_length", c.context);
    number("embedding_length", c.hidden);
    number("feed_forward_length", c.ffn);
    number("attention.head_count", c.heads);
    number("attention.head_count_kv", c.kv_heads);
    number("attention.key_length", c.head_dim);
    number("attention.value_length", c.head_dim);
    out.add(architecture + ".rope.freq_base", c.rotation.theta);
    out.add(architecture + ".attention.layer_norm_rms_epsilon", c.norm_eps);
    const auto config = JsonFile::read(golden_folder(architecture) + "/config.json", "this test");
    const auto spec = read_hf_tokenizer(golden_folder(architecture), *config);
    out.add("tokenizer.ggml.model", std::string("gpt2"));
    out.add("tokenizer.ggml.pre", spec->pre);
    out.add("tokenizer.ggml.tokens", spec->tokens);
    out.add("tokenizer.ggml.token_type", std::vector<std::int32_t>(spec->types.begin(), spec->types.end()));
    out.add("tokenizer.ggml.merges", spec->merges);
    for (const std::string& name : model.weights->names()) {
        const TensorInfo& info = *model.weights->find(name);
        std::vector<float> values(static_cast<std::size_t>(info.rows() * info.cols()));
        for (std::int64_t r = 0; r < info.rows(); ++r)
            model.weights->read_row(info, r, values.data() + r * info.cols());
        out.add_tensor(
            name, info.shape, 0,
            std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
    }
    return out;
}

// GGUF files of these families store q and k in the folders' order.
TEST(HfFolder, MatchesTheGgufFileOfTheSameModel) {
    const ScratchFolder scratch;
    for (const std::string architecture : {"qwen2", "qwen3", "olmo2"}) {
        const ModelFile model = open_golden(architecture);
        testing::GgufWriter writer = make_gguf(architecture, model);
        const std::string path = scratch.file(architecture + ".gguf");
        ASSERT_TRUE(writer.write(path).ok());
        const auto opened = require(open_model_file(path));
        EXPECT_EQ(opened.config.qkv_bias, model.config.qkv_bias);
        EXPECT_EQ(opened.config.qk_norm, model.config.qk_norm);
        EXPECT_EQ(opened.config.post_norms, model.config.post_norms);
        EXPECT_EQ(opened.config.tied_head, model.config.tied_head);
        EXPECT_EQ(opened.config.vocab, model.config.vocab);
        EXPECT_EQ(opened.config.head_dim, model.config.head_dim);
        EXPECT_EQ(opened.tokenizer->fingerprint(), model.tokenizer->fingerprint());
        ASSERT_EQ(opened.weights->names(), model.weights->names());
        for (const std::string& name : model.weights->names()) {
            const TensorInfo& info = *model.weights->find(name);
            std::vector<float> expected(static_cast<std::size_t>(info.cols())), found(expected.size());
            model.weights->read_row(info, info.rows() / 2, expected.data());
            opened.weights->read_row(*opened.weights->find(name), info.rows() / 2, found.data());
            EXPECT_EQ(found, expected) << architecture << " " << name;
        }
        const std::string gone = architecture == "qwen2" ? "blk.1.attn_v.bias" : "blk.1.attn_k_norm.weight";
        writer.remove_tensor(gone);
        ASSERT_TRUE(writer.write(path).ok());
        EXPECT_THAT(open_model_file(path).error().message, HasSubstr("tensor '" + gone + "' is missing"));
    }
}

}  // namespace
}  // namespace draftscope
