#include "app/gui/models/dropped.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "app/gui/models/session.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using testing::ScratchFolder;
using testing::write_text;

TEST(Dropped, KindsByNameAndContents) {
    const ScratchFolder folder;
    const auto file = [&](const std::string& name, const std::string& text) {
        const std::string path = folder.file(name);
        std::filesystem::create_directories(std::filesystem::path(path).parent_path());
        write_text(path, text);
        return path;
    };
    EXPECT_EQ(dropped_kind(file("m.gguf", "GGUF")), DroppedKind::model);
    EXPECT_EQ(dropped_kind(file("head.safetensors", "x")), DroppedKind::head_weights);
    EXPECT_EQ(dropped_kind(file("run.dscope", "x")), DroppedKind::capture);
    EXPECT_EQ(dropped_kind(file("p.jsonl", R"({"prompt": "hello"})")), DroppedKind::prompts);
    EXPECT_EQ(dropped_kind(file("rounds.jsonl", R"({"dsrounds": 1})")), DroppedKind::capture);
    EXPECT_EQ(dropped_kind(file("machine.json", R"({"machine": "x", "costs": []})")), DroppedKind::profile);
    EXPECT_EQ(dropped_kind(file("trace.json", R"({"traceEvents": []})")), DroppedKind::capture);
    file("rec/trace.json", "{}");
    EXPECT_EQ(dropped_kind(folder.file("rec")), DroppedKind::recording);
    file("llama/config.json", R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 16})");
    EXPECT_EQ(dropped_kind(folder.file("llama")), DroppedKind::model);
    file("e3/config.json", R"({"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1})");
    EXPECT_EQ(dropped_kind(folder.file("e3")), DroppedKind::drafter);
    file("e2/config.json", R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1})");
    EXPECT_EQ(dropped_kind(folder.file("e2")), DroppedKind::drafter);
    file("other/readme.txt", "");
    EXPECT_EQ(dropped_kind(folder.file("other")), DroppedKind::unknown);
}

TEST(Dropped, BecomesPartOfTheSession) {
    RunConfig config;
    config.drafter = "eagle2";
    use_dropped("/d/e2", DroppedKind::drafter, true, config);
    EXPECT_EQ(config.drafter, "eagle2:/d/e2");
    config.drafter = "ngram";
    use_dropped("/d/e3", DroppedKind::drafter, false, config);
    EXPECT_EQ(config.drafter, "eagle3:/d/e3");
    EXPECT_NE(use_dropped("/h.safetensors", DroppedKind::head_weights, true, config).find("select the head"),
              std::string::npos)
        << "the full head has no file";
    EXPECT_TRUE(config.artefacts.empty());
    config.head = "slimspec";
    config.artefacts = {"slimspec=/old"};
    use_dropped("/h.safetensors", DroppedKind::head_weights, true, config);
    EXPECT_EQ(config.artefacts, std::vector<std::string>{"slimspec=/h.safetensors"});
    use_dropped("/p.jsonl", DroppedKind::prompts, false, config);
    EXPECT_EQ(config.prompts_file, "/p.jsonl");
}

TEST(AdaptToModel, DropsWhatBelongsToAnotherModel) {
    RunConfig config;
    config.head = "microspec";
    config.tree = quick_tree;
    adapt_to_model(config, true);
    EXPECT_EQ(config.head, "microspec") << "the demo model";
    config.model = "/own.gguf";
    adapt_to_model(config, true);
    EXPECT_EQ(config.drafter, "suffix");
    EXPECT_EQ(config.head, "full");
    EXPECT_EQ(config.tree, "");
    config.drafter = "eagle3:/own";
    adapt_to_model(config, true);
    EXPECT_EQ(config.drafter, "eagle3:/own");
    config.drafter = "ngram";
    adapt_to_model(config, false);
    EXPECT_EQ(config.drafter, "ngram");
}

}  // namespace
}  // namespace draftscope
