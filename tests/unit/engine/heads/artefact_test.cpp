#include "engine/heads/artefact.h"

#include <fstream>

#include "tests/support/lm_head_fixture.h"
#include "tests/support/results.h"

namespace draftscope::testing {
namespace {

class Artefact : public LmHeadFixture {
  protected:
    static Tensors slim(int rank = 8) {
        const auto r = static_cast<std::size_t>(rank);
        Tensors tensors;
        tensors.floats("down", {rank, hidden}, random(r * hidden, 1));
        tensors.floats("up", {vocab, rank}, random(vocab * r, 2));
        return tensors;
    }
};

TEST_F(Artefact, ReadsBackMetadataAndTensors) {
    ArtefactInfo info = LmHeadFixture::info("slimspec");
    info.tokenizer = 0xfedcba9876543210u;
    info.joint = true;
    info.drafter_weights = "slimspec.drafter";
    info.parameters = {{"rank", "8/4"}};
    info.prompts = {prompt_hash("one"), prompt_hash("two")};
    info.report = R"({"kl":0.25,"top1":0.5})";
    save(info, slim());
    const auto read = require(HeadArtefact::open(artefacts_.artefact_path, "slimspec"));
    const ArtefactInfo& found = read.info();
    EXPECT_EQ(found.head, "slimspec");
    EXPECT_EQ(found.target, "tiny");
    EXPECT_EQ(found.tokenizer, info.tokenizer);
    EXPECT_EQ(found.drafter, "eagle2");
    EXPECT_EQ(found.drafter_hash, info.drafter_hash);
    EXPECT_EQ(found.drafter_weights, "slimspec.drafter");
    EXPECT_TRUE(found.joint);
    EXPECT_EQ(found.vocab, vocab);
    EXPECT_EQ(found.hidden, hidden);
    EXPECT_EQ(found.parameters, info.parameters);
    EXPECT_EQ(found.prompts, info.prompts);
    EXPECT_EQ(found.report, info.report);
    EXPECT_TRUE(is_head_artefact(artefacts_.artefact_path));
}

TEST_F(Artefact, RejectsOtherModelDrafterOrShapeByName) {
    struct Change {
        void (*error_after)(ArtefactInfo&);
        const char* message;
    };
    const Change changes[] = {
        {[](ArtefactInfo& i) { i.vocab = 300; }, "vocabulary size 300, but the run has 301"},
        {[](ArtefactInfo& i) { i.hidden = 32; }, "hidden size 32, but the run has 64"},
        {[](ArtefactInfo& i) { i.tokenizer = 78; }, "tokenizer 000000000000004e"},
        {[](ArtefactInfo& i) { i.target = "other"; }, "target other, but the run has tiny"},
        {[](ArtefactInfo& i) { i.drafter = "medusa"; }, "drafter medusa, but the run has eagle2"},
        {[](ArtefactInfo& i) { i.drafter_hash = "ff"; }, "drafter weights ff"},
    };
    for (const Change& change : changes) {
        ArtefactInfo info = LmHeadFixture::info("slimspec");
        change.error_after(info);
        save(info, slim());
        EXPECT_THAT(error_message("slimspec"), ::testing::HasSubstr(change.message));
        EXPECT_THAT(error_message("slimspec"), ::testing::HasSubstr(artefacts_.artefact_path));
    }
    // Fields that the artefact leaves empty match any value.
    ArtefactInfo any = LmHeadFixture::info("slimspec");
    any.drafter.clear();
    any.drafter_hash.clear();
    save(any, slim());
    EXPECT_EQ(error_message("slimspec"), "");
}

TEST_F(Artefact, RejectsOtherHeadOrFormat) {
    EXPECT_THAT(error_message("slimspec"), ::testing::HasSubstr("draftscope fit slimspec"));
    save(LmHeadFixture::info("specvocab"), slim());
    EXPECT_THAT(error_message("slimspec"),
                ::testing::HasSubstr("weights of head specvocab, expected head slimspec"));
    artefacts_.artefact_path = "/nowhere/file.safetensors";
    EXPECT_THAT(error_message("slimspec"), ::testing::HasSubstr("/nowhere/file.safetensors"));
    ScratchFolder folder;
    const Tensors tensors = slim();
    artefacts_.artefact_path = folder.file("a.safetensors");
    const auto with = [&](std::map<std::string, std::string> metadata) {
        EXPECT_TRUE(save_safetensors(artefacts_.artefact_path, tensors.list(), metadata).ok());
        return error_message("slimspec");
    };
    EXPECT_THAT(with({}), ::testing::HasSubstr("not head weights"));
    EXPECT_FALSE(is_head_artefact(artefacts_.artefact_path));
    std::map<std::string, std::string> good = {{"format", "draftscope-head"},
                                               {"version", "1"},
                                               {"head", "slimspec"},
                                               {"target", "tiny"},
                                               {"vocab", "301"},
                                               {"hidden", "64"},
                                               {"trained", "post-hoc"},
                                               {"tokenizer_fingerprint", "4d"}};
    EXPECT_EQ(with(good), "");
    const std::pair<const char*, const char*> spoilt[] = {{"version", "2"},
                                                          {"version", "x"},
                                                          {"vocab", "-3"},
                                                          {"vocab", ""},
                                                          {"hidden", "1e9"},
                                                          {"trained", "maybe"},
                                                          {"tokenizer_fingerprint", "no"},
                                                          {"parameters", "[1]"},
                                                          {"parameters", "{"},
                                                          {"parameters", "{\"rank\":8}"},
                                                          {"prompts", "{}"},
                                                          {"prompts", "[1]"},
                                                          {"report", "[]"}};
    for (const auto& [key, value] : spoilt) {
        auto metadata = good;
        metadata[key] = value;
        EXPECT_THAT(with(metadata), ::testing::HasSubstr(artefacts_.artefact_path)) << key << "=" << value;
    }
}

TEST_F(Artefact, RejectsTruncatedFiles) {
    save(LmHeadFixture::info("slimspec"), slim());
    std::ifstream file(artefacts_.artefact_path, std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(file)), {});
    for (const std::size_t length : {whole.size() - 1, whole.size() / 2, std::size_t{100}, std::size_t{7}}) {
        std::ofstream(artefacts_.artefact_path, std::ios::binary | std::ios::trunc)
            << whole.substr(0, length);
        EXPECT_THAT(error_message("slimspec"), ::testing::HasSubstr(artefacts_.artefact_path)) << length;
    }
}

TEST_F(Artefact, FailedWriteLeavesNoFile) {
    const Tensors tensors = slim();
    EXPECT_FALSE(
        save_artefact("/nowhere/x.safetensors", LmHeadFixture::info("slimspec"), tensors.list()).ok());
    std::vector<TensorToSave> wrong = tensors.list();
    wrong[0].shape = {9, hidden};
    ScratchFolder folder;
    EXPECT_FALSE(save_artefact(folder.file("x"), LmHeadFixture::info("slimspec"), wrong).ok());
    wrong = tensors.list();
    wrong[1].name = wrong[0].name;
    wrong[1].shape = wrong[0].shape;
    wrong[1].data = wrong[0].data;
    EXPECT_FALSE(save_artefact(folder.file("x"), LmHeadFixture::info("slimspec"), wrong).ok());
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(CheckpointHash, DependsOnWeights) {
    ScratchFolder folder;
    std::string bytes(600'000, 'a');
    const auto hash = [&](const std::string& content) {
        std::ofstream(folder.file("model.safetensors"), std::ios::binary | std::ios::trunc) << content;
        return checkpoint_hash(folder.path()).value();
    };
    const std::string first = hash(bytes);
    EXPECT_EQ(first.size(), 16u);
    EXPECT_EQ(first, checkpoint_hash(folder.file("model.safetensors")).value());
    EXPECT_NE(first, hash(bytes + "a"));
    std::string changed = bytes;
    changed.back() = 'b';
    EXPECT_NE(first, hash(changed));
    EXPECT_NE(hash("x"), hash("y"));
    EXPECT_FALSE(checkpoint_hash(folder.file("none")).ok());
    std::filesystem::remove(folder.file("model.safetensors"));
    EXPECT_FALSE(checkpoint_hash(folder.path()).ok());
    testing::write_text(folder.file("a.bin"), "x");
    EXPECT_EQ(checkpoint_hash(folder.path()).value(), checkpoint_hash(folder.file("a.bin")).value());
    testing::write_text(folder.file("b.bin"), "y");
    const std::string both = checkpoint_hash(folder.path()).value();
    testing::write_text(folder.file("b.bin"), "z");
    EXPECT_NE(checkpoint_hash(folder.path()).value(), both);
}

TEST(PromptHash, IsFnv1aOfTheTrimmedText) {
    EXPECT_EQ(prompt_hash("a"), "af63dc4c8601ec8c");  // published test vector of FNV-1a, 64 bits
    EXPECT_EQ(prompt_hash("  a\n"), prompt_hash("a"));
    EXPECT_EQ(prompt_hash(""), "cbf29ce484222325");
    EXPECT_NE(prompt_hash("a b"), prompt_hash("ab"));
}

}  // namespace
}  // namespace draftscope::testing
