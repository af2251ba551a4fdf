#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "engine/heads/registry.h"
#include "tests/support/demo_fixture.h"
#include "tests/support/demo_model.h"
#include "tests/support/replay_fixture.h"

/// Replayed rounds equal live rounds on the demo model, greedy and sampled. Every drafter and every head
/// whose file the demo ships, or that needs none, occurs at least once. The full product runs on a tiny model
/// (replay_test.cpp).
namespace draftscope::testing {
namespace {

struct Case {
    std::string drafter, head, tree;
    double temperature;
};

const std::string heads_folder = std::string(DS_SOURCE_DIR) + "/assets/heads/";

const Case listed_cases[] = {
    {"eagle2", "fr-spec:v=8192", "depth=3,topk=4,nodes=12", 0},
    {"eagle2", "full", "chain=4", 1},
    {"eagle3", "slimspec", "depth=3,topk=4,nodes=12", 0},
    {"eagle3", "dynaspec", "depth=3,topk=4,nodes=12", 1},
    {"eagle3", "vocabtrim-t", "chain=4", 1},
    {"eagle3", "full", "depth=2,topk=3,nodes=8", 1},
    {"eagle3", "specvocab", "depth=3,topk=4,nodes=12", 1},
    {"eagle3", "coral", "chain=4", 0},
    {"eagle3", "microspec:branch=path", "depth=3,topk=4,nodes=12", 0},
    {"medusa", "full", "depth=3,topk=4,nodes=12", 0},
    {"medusa", "fr-spec:v=4096", "chain=3", 1},
    {"medusa", "microspec:branch=path", "depth=3,topk=4,nodes=12", 1},
    {"hydra", "pa-fr", "depth=3,topk=4,nodes=12", 0},
    {"hydra", "bcl", "depth=2,topk=3,nodes=8", 1},
    {"hydra", "vocabtrim:v=8192", "chain=4", 1},
    {"hydra", "microspec:branch=path", "depth=3,topk=4,nodes=12", 0},
};

/// Returns whether the head needs no file of its own, or the demo has one for this drafter.
bool demo_has(const HeadInfo& info, const std::string& drafter) {
    return info.required_file != RequiredFile::fitted ||
           std::filesystem::exists(heads_folder + drafter + "/" + std::string(info.id) + ".safetensors");
}

/// The listed cases, and one for every other head that the demo has.
std::vector<Case> all_cases() {
    std::vector<Case> cases(std::begin(listed_cases), std::end(listed_cases));
    for (const HeadInfo& info : head_registry()) {
        const auto uses = [&](const Case& one) { return one.head.substr(0, one.head.find(':')) == info.id; };
        if (!info.replay_only && demo_has(info, "eagle3") && std::ranges::none_of(cases, uses))
            cases.push_back({"eagle3", std::string(info.id), "chain=4", 0});
    }
    return cases;
}

TEST(DemoReplay, TheCasesCoverDraftersGreedyAndSampled) {
    std::set<std::pair<std::string, double>> drafters;
    for (const Case& one : listed_cases) drafters.emplace(one.drafter, one.temperature);
    EXPECT_EQ(drafters.size(), 2u * 4u);
}

TEST(DemoReplay, RoundsMatchALiveRun) {
    ASSERT_TRUE(demo_model_present()) << demo_model_hint();
    const auto fixture = make_demo_fixture(kernels::Precision::int8);
    ASSERT_NE(fixture, nullptr);
    const std::vector<Case> cases = all_cases();
    for (const Case& one : cases)  // a fitted head occurs with one drafter
        if (const HeadInfo* info = find_head(one.head);
            info != nullptr && info->required_file == RequiredFile::fitted)
            fixture->use_artefact(one.head, heads_folder + one.drafter + "/" + one.head + ".safetensors");
    const auto prompts = demo_prompts(fixture->target(), 1);
    const std::span<const int> layers = fixture->drafter("eagle3").aux_layers();
    const ScratchFolder folder;
    std::int64_t accepted = 0, rounds = 0;
    for (const double temperature : {0.0, 1.0}) {
        DecodeCase setting{.threads = 2, .temperature = temperature, .max_new = 20};
        const auto recording = record(*fixture, setting, prompts, {layers.begin(), layers.end()},
                                      folder.file(temperature > 0 ? "sampled" : "greedy"), 2);
        ASSERT_NE(recording, nullptr);
        for (const Case& one : cases) {
            if (one.temperature != temperature) continue;
            setting.drafter = one.drafter;
            setting.head = one.head;
            setting.tree = one.tree;
            Drafter& drafter = fixture->drafter(one.drafter);
            const auto live = live_rounds(*fixture, setting, prompts);
            const auto found = replayed_rounds(*fixture, *recording, fixture->target(), drafter,
                                               &fixture->head(one.head, drafter), setting);
            ASSERT_EQ(found.size(), live.size());
            for (std::size_t p = 0; p < live.size(); ++p) {
                EXPECT_EQ(round_texts(found[p]), round_texts(live[p])) << to_text(setting) << " prompt " << p;
                for (const HeadRound& round : live[p]) {
                    ++rounds;
                    accepted += round.accepted;
                }
            }
        }
    }
    EXPECT_GT(accepted, rounds / 8);
}

}  // namespace
}  // namespace draftscope::testing
