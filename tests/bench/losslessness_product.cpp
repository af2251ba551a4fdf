#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <regex>

#include "engine/draft/registry.h"
#include "tests/bench/table_tools.h"
#include "tests/support/demo_fixture.h"
#include "tests/support/demo_model.h"

/// Compares every drafter x head x tree x thread count x temperature on the demo model with plain decoding.
/// Prints tau and the number of prompts with different tokens, which must be 0. Takes minutes to hours.
///
/// usage: losslessness_product [PROMPTS=24] [TOKENS=64] [int8|bf16|f32] [REGEX]
///
/// REGEX selects the settings that it matches completely, written drafter/head/tree/threads/temperature. The
/// exit code is 1 if any token differs.
namespace draftscope::testing {
namespace {

const std::vector<std::string> trees = {"chain=1",
                                        "chain=4",
                                        "depth=2,topk=3,nodes=8",
                                        "depth=3,topk=4,nodes=12",
                                        "depth=4,topk=8,nodes=72",
                                        "depth=5,topk=10,nodes=60"};
const std::vector<std::string> heads = {"full", "fr-spec:v=2048", "fr-spec:v=8192", "fr-spec:v=16384"};

std::vector<DecodeCase> product(int tokens) {
    std::vector<DecodeCase> settings;
    for (const double temperature : {0.0, 0.8})
        for (const DrafterInfo& drafter : drafter_registry())
            for (const std::string& head : heads)
                for (const std::string& tree : trees)
                    for (const int threads : {1, 2}) {
                        if (!drafter.uses_head && head != heads.front()) continue;
                        if (!drafter.drafts && tree != trees.front()) continue;
                        DecodeCase setting{.drafter = std::string(drafter.id),
                                           .head = drafter.uses_head ? head : "",
                                           .tree = tree,
                                           .threads = threads,
                                           .temperature = temperature,
                                           .max_new = tokens};
                        settings.push_back(setting);
                    }
    return settings;
}

int run(std::size_t prompt_count, int tokens, kernels::Precision precision, const std::string& wanted) {
    const std::regex pattern(wanted);
    const auto fixture = make_demo_fixture(precision);
    if (fixture == nullptr) return 1;
    const auto prompts = demo_prompts(fixture->target(), prompt_count);
    std::map<double, std::vector<PromptOutcome>> plain;
    fmt::print("{} prompts x {} tokens, {}\n\n", prompts.size(), tokens, kernels::to_text(precision));
    fmt::print(
        "| drafter | head | tree | threads | T | rounds | tau | tok/s | prompts that differ |\n"
        "| --- | --- | --- | --: | --: | --: | --: | --: | --: |\n");
    int differing = 0, rows = 0;
    for (const DecodeCase& setting : product(tokens)) {
        const std::string name = fmt::format("{}/{}/{}/{}/{}", setting.drafter, setting.head, setting.tree,
                                             setting.threads, setting.temperature);
        if (!std::regex_match(name, pattern)) continue;
        std::vector<PromptOutcome>& expected = plain[setting.temperature];
        if (expected.empty()) {
            DecodeCase reference = setting;
            reference.drafter = "none";
            reference.threads = 2;
            expected = fixture->decode(reference, prompts);
        }
        const auto found = fixture->decode(setting, prompts);
        const auto [sum, wrong] = compare_runs(expected, found);
        fmt::print("| {} | {} | {} | {} | {} | {} | {:.3f} | {:.1f} | {} |\n", setting.drafter, setting.head,
                   setting.tree, setting.threads, setting.temperature, sum.rounds, sum.tau(),
                   sum.decode_ns > 0 ? static_cast<double>(sum.committed) / seconds(sum.decode_ns) : 0.0,
                   wrong);
        std::fflush(stdout);
        differing += wrong;
        ++rows;
    }
    fmt::print("\n{} settings, {} prompts differ\n", rows, differing);
    return differing == 0 ? 0 : 1;
}

}  // namespace
}  // namespace draftscope::testing

int main(int argc, char** argv) {
    std::size_t prompts = 24, tokens = 64;
    const auto precision = draftscope::kernels::precision_from(argc > 3 ? argv[3] : "int8");
    const bool understood = argc <= 5 && precision.has_value() &&
                            (argc < 2 || draftscope::testing::read_number(argv[1], prompts)) &&
                            (argc < 3 || draftscope::testing::read_number(argv[2], tokens));
    if (!understood) {
        fmt::print(stderr, "usage: losslessness_product [PROMPTS=24] [TOKENS=64] [int8|bf16|f32] [REGEX]\n");
        return 2;
    }
    if (!draftscope::testing::demo_model_present()) {
        fmt::print(stderr, "{}\n", draftscope::testing::demo_model_hint());
        return 2;
    }
    return draftscope::testing::run(prompts, static_cast<int>(tokens), *precision, argc > 4 ? argv[4] : ".*");
}
