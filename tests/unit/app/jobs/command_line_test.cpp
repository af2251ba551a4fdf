#include <gtest/gtest.h>

#include "app/jobs/commands/commands.h"

namespace draftscope {
namespace {

TEST(CommandLine, OmitsDefaults) {
    RunConfig config;
    config.prompt = "Hi";
    EXPECT_EQ(to_command_line(config, {}), "draftscope run --drafter eagle3 --head full --prompt Hi");
}

TEST(CommandLine, QuotesForTheShell) {
    RunConfig config;
    config.prompt = "it's $5; `x`\nend";
    config.head = "fr-spec:v=8192";
    const std::string line = to_command_line(config, {});
    EXPECT_NE(line.find("--head fr-spec:v=8192 "), std::string::npos);
    EXPECT_NE(line.find("--prompt 'it'\\''s $5; `x`\nend'"), std::string::npos);
}

TEST(CommandLine, ContainsEveryChangedSetting) {
    RunConfig config;
    config.model = "/models/a b.gguf";
    config.drafter = "eagle2:/d";
    config.artefacts = {"fr-spec=/r.safetensors"};
    config.tree = "chain=6";
    config.precision = "int8";
    config.gpu_graphs = false;
    config.pin = true;
    config.l2_window = true;
    config.verify = "pq";
    config.batch = 8;
    config.temperature = 0.7;
    config.top_p = 0.9;
    config.top_k = 40;
    config.seed = 5;
    config.max_new = 64;
    config.context = 900;
    config.threads = 2;
    config.ignore_eos = true;
    config.raw = true;
    config.system = "Be brief.";
    config.prompts_file = "p.jsonl";
    config.limit = 3;
    config.balanced = true;
    config.shard = {2, 8};
    config.tags = {"node=a b"};
    config.baseline = 2;
    config.shadow = "slimspec,microspec";
    config.calibration_rounds = 0;
    config.save = "x.dscope";
    config.overwrite = true;
    config.save_rows = 1000000;
    config.save_size = 5000000;
    config.save_ring = true;
    config.drop_when_full = true;
    EXPECT_EQ(
        to_command_line(config, {}),
        "draftscope run --model '/models/a b.gguf' --drafter eagle2:/d --head full --head-weights "
        "fr-spec=/r.safetensors --tree chain=6 --verify pq --temperature 0.7 --top-p 0.9 --top-k 40 --seed 5 "
        "--max-new 64 --context 900 --batch 8 --no-gpu-graphs --l2-window --precision int8 --threads 2 --pin "
        "--ignore-eos "
        "--raw --system 'Be brief.' --prompts p.jsonl --limit 3 --balanced --shard 2/8 --baseline 2 --shadow "
        "slimspec,microspec "
        "--calibrate 0 --tag 'node=a b' --save x.dscope --overwrite --save-rows 1000000 --save-size 5000000 "
        "--save-ring --drop-when-full");
}

/// The command line rejects options that the drafter does not use.
TEST(CommandLine, LeavesOutWhatTheDrafterDoesNotUse) {
    const std::vector<DrafterChoice> choices = {{"none", "", true, "", {false, false}},
                                                {"ngram", "", true, "", {true, false}}};
    RunConfig config;
    config.tree = "chain=3";
    config.prompt = "Hi";
    const auto line = [&](const char* drafter) {
        config.drafter = drafter;
        return to_command_line(config, find_traits(choices, drafter));
    };
    EXPECT_EQ(line("none"), "draftscope run --drafter none --prompt Hi");
    EXPECT_EQ(line("ngram:max=2"), "draftscope run --drafter ngram:max=2 --tree chain=3 --prompt Hi");
    EXPECT_EQ(line("other:x"), "draftscope run --drafter other:x --head full --tree chain=3 --prompt Hi");
}

}  // namespace
}  // namespace draftscope
