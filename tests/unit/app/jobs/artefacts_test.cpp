#include "app/jobs/resolve/artefacts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/run/run_job.h"
#include "engine/draft/registry.h"
#include "engine/formats/tensor_file.h"
#include "engine/heads/artefact.h"
#include "engine/heads/registry.h"
#include "engine/heads/static_vocab.h"
#include "tests/support/demo_model.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/app/jobs/tiny_files.h"

namespace draftscope::testing {
namespace {

class Artefacts : public ::testing::Test {
  protected:
    Artefacts() {
        ::setenv("DRAFTSCOPE_ASSETS", folder_.path().c_str(), 1);
        // Empty folders for every drafter hide the shipped files.
        for (const DrafterInfo& drafter : drafter_registry())
            std::filesystem::create_directories(folder_.file("heads/" + std::string(drafter.id)));
    }
    ~Artefacts() override { ::unsetenv("DRAFTSCOPE_ASSETS"); }

    /// Writes a weights file with metadata only; tensors matter only to prepare().
    std::string save(const std::string& relative, const std::string& head, const std::string& rank = "",
                     bool joint = false, const std::string& drafter_weights = "") {
        const std::filesystem::path path = std::filesystem::path(folder_.path()) / relative;
        std::filesystem::create_directories(path.parent_path());
        ArtefactInfo info;
        info.head = head;
        info.target = "tiny";
        info.vocab = 10;
        info.hidden = 4;
        info.joint = joint;
        info.drafter_weights = drafter_weights;
        if (!rank.empty()) info.parameters["rank"] = rank;
        EXPECT_TRUE(save_artefact(path.string(), info, {}).ok());
        return path.string();
    }
    static HeadSpec spec(const std::string& text) { return parse_head_spec(text).value(); }

    ScratchFolder folder_;
};

TEST_F(Artefacts, ShippedFilesMatchDrafterAndParameters) {
    const std::string wide = save("heads/eagle2/slimspec-72.safetensors", "slimspec", "72");
    const std::string narrow = save("heads/eagle2/slimspec-36.safetensors", "slimspec", "36");
    save("heads/eagle2/a-joint.safetensors", "slimspec", "36", true);
    save("heads/medusa/specvocab.safetensors", "specvocab", "36");
    const std::string affinity = save("heads/eagle2/rdk.safetensors", "rdk");
    const ArtefactSources demo{{}, true, "eagle2"};
    EXPECT_EQ(find_artefacts(spec("slimspec"), demo).artefact_path, narrow);  // the first by name
    EXPECT_EQ(find_artefacts(spec("slimspec:rank=72"), demo).artefact_path, wide);
    EXPECT_EQ(find_artefacts(spec("slimspec:rank=72"), demo).affinity_path, affinity);
    // An affinity of the target's LM head is used for drafters without one.
    const std::string shared = save("heads/rdk.safetensors", "rdk");
    EXPECT_EQ(find_artefacts(spec("full"), demo).affinity_path, affinity);
    EXPECT_EQ(find_artefacts(spec("full"), {{}, true, "medusa"}).affinity_path, shared);
    EXPECT_EQ(find_artefacts(spec("specvocab"), demo).artefact_path, "");
    EXPECT_NE(find_artefacts(spec("specvocab"), {{}, true, "medusa"}).artefact_path, "");
    EXPECT_EQ(find_artefacts(spec("slimspec"), {{}, false, "eagle2"}).artefact_path, "");
    // No file agrees: the head's error names the parameters of the existing file.
    const HeadFiles other = find_artefacts(spec("slimspec:rank=9"), demo);
    const auto head = make_head(spec("slimspec:rank=9"), other);
    ASSERT_FALSE(head.ok());
    EXPECT_THAT(head.error().message, ::testing::HasSubstr("not rank=9"));
}

TEST_F(Artefacts, AHeadMayNameItsFile) {
    const std::string wide = save("a.safetensors", "slimspec", "72");
    const HeadSpec named = spec("slimspec:rank=72,file=" + wide);
    EXPECT_EQ(to_text(named), "slimspec:file=" + wide + ",rank=72");
    EXPECT_EQ(find_artefacts(named, {}).artefact_path, wide);
    EXPECT_TRUE(check_file_of(named).ok());
    EXPECT_FALSE(check_file_of(spec("slimspec:file=/nowhere")).ok());
    EXPECT_FALSE(check_file_of(spec("full:file=" + wide)).ok());
    EXPECT_FALSE(parse_head_spec("slimspec:file=a,file=b").ok());
    // A head that names its file does not use --head-weights.
    const std::vector<std::string> given = {"slimspec=" + wide};
    const std::vector<HeadSpec> heads = {named};
    EXPECT_FALSE(check_artefacts_used(given, heads).ok());
}

TEST_F(Artefacts, SyntheticTargetsUseGeneratedWeights) {
    const std::string target = "synthetic:olmo2-1b/2";
    const ArtefactSources sources{{}, false, "eagle3", target};
    EXPECT_EQ(find_artefacts(spec("slimspec"), sources).artefact_path, target);
    EXPECT_EQ(find_artefacts(spec("slimspec"), sources).ranking_path, "");
    EXPECT_EQ(find_artefacts(spec("fr-spec"), sources).ranking_path, target);
    EXPECT_EQ(find_artefacts(spec("bcl"), sources).ranking_path, target);
    EXPECT_EQ(find_artefacts(spec("bcl"), sources).artefact_path, "");
    EXPECT_EQ(find_artefacts(spec("microspec"), sources).ranking_path, "");
    for (const char* head : {"slimspec:rank=512", "specvocab", "vocabtrim-t:v=64", "coral", "dynaspec:r=16",
                             "fr-spec:v=9", "bcl"})
        EXPECT_TRUE(make_head(spec(head), find_artefacts(spec(head), sources)).ok()) << head;
    const auto wide =
        make_head(spec("slimspec:rank=2049"), find_artefacts(spec("slimspec:rank=2049"), sources));
    ASSERT_FALSE(wide.ok());
    EXPECT_THAT(wide.error().message, ::testing::HasSubstr("use 1..2048"));
}

/// FR-Spec counts raw text, VocabTrim the target's own responses.
TEST_F(Artefacts, TheDemoHasTwoRankings) {
    std::vector<std::string> paths;
    for (const char* name : {"heads/demo_text_ranking.safetensors", "heads/demo_ranking.safetensors"}) {
        paths.push_back(folder_.file(name));
        std::filesystem::create_directories(folder_.file("heads"));
        ASSERT_TRUE(save_safetensors(paths.back(), {}, {}).ok());
    }
    const ArtefactSources sources{{}, true, "eagle3"};
    for (const char* head : {"fr-spec", "pa-fr"})
        EXPECT_EQ(find_artefacts(spec(head), sources).ranking_path, paths[0]) << head;
    for (const char* head : {"vocabtrim", "bcl"})
        EXPECT_EQ(find_artefacts(spec(head), sources).ranking_path, paths[1]) << head;
}

/// Both rank every token of the demo model once, in different orders, and have the counts that they rank by.
TEST_F(Artefacts, ShippedRankingsAreComplete) {
    const std::string heads = DS_SOURCE_DIR "/assets/heads/";
    std::vector<std::vector<TokenId>> rankings;
    for (const char* name : {"demo_text_ranking.safetensors", "demo_ranking.safetensors"}) {
        rankings.push_back(require(load_ranking(heads + name, "fr-spec")));
        const std::set<TokenId> distinct(rankings.back().begin(), rankings.back().end());
        EXPECT_EQ(rankings.back().size(), 49152u) << name;
        EXPECT_EQ(distinct.size(), 49152u) << name;
        EXPECT_EQ(*distinct.rbegin(), 49151) << name;
        const auto file = require(open_tensor_file(heads + name));
        const auto counts = require(file->read_integers("counts"));
        EXPECT_EQ(counts.size(), 49152u) << name;
        EXPECT_TRUE(std::ranges::is_sorted(counts, std::greater<>())) << name;
        EXPECT_EQ(std::to_string(std::accumulate(counts.begin(), counts.end(), std::int64_t{0})),
                  file->metadata("tokens"))
            << name;
    }
    EXPECT_NE(rankings[0], rankings[1]);
}

TEST_F(Artefacts, GivenFilesTakePrecedence) {
    save("heads/eagle2/slimspec.safetensors", "slimspec");
    const std::string mine = save("mine.safetensors", "slimspec"), bcl = save("bcl.safetensors", "bcl");
    const std::string ranking = folder_.file("ranking.safetensors");
    ASSERT_TRUE(save_safetensors(ranking, {}, {}).ok());
    const std::vector<std::string> given = {"slimspec=" + mine, "fr-spec=" + ranking, "bcl=" + bcl,
                                            "rdk=" + mine};
    ASSERT_TRUE(check_given_artefacts(given).ok());
    const ArtefactSources sources{given, true, "eagle2"};
    EXPECT_EQ(find_artefacts(spec("slimspec"), sources).artefact_path, mine);
    EXPECT_EQ(find_artefacts(spec("slimspec"), sources).affinity_path, mine);
    EXPECT_EQ(find_artefacts(spec("fr-spec"), sources).ranking_path, ranking);
    // BCL accepts a ranking or a trained head.
    EXPECT_EQ(find_artefacts(spec("bcl"), sources).artefact_path, bcl);
    const std::vector<std::string> ranked = {"bcl=" + ranking};
    EXPECT_EQ(find_artefacts(spec("bcl"), {ranked, false, ""}).artefact_path, "");
    EXPECT_EQ(find_artefacts(spec("bcl"), {ranked, false, ""}).ranking_path, ranking);
}

TEST_F(Artefacts, RejectsInvalidOptions) {
    const auto message = [](std::vector<std::string> given) {
        return check_given_artefacts(given).error().message;
    };
    EXPECT_THAT(message({"slimspec"}), ::testing::HasSubstr("expected HEAD=PATH"));
    EXPECT_THAT(message({"slim=x"}), ::testing::HasSubstr("unknown head 'slim'"));
    EXPECT_THAT(message({"slimspec=/nowhere/x"}), ::testing::HasSubstr("no such file"));
}

TEST_F(Artefacts, JointlyTrainedHeadSelectsItsDrafter) {
    const std::string path = save("joint.safetensors", "slimspec", "", true, "joint.drafter");
    HeadFiles artefacts;
    artefacts.artefact_path = path;
    EXPECT_THAT(find_trained_drafter(spec("slimspec"), artefacts).error().message,
                ::testing::HasSubstr("'joint.drafter' is missing"));
    std::filesystem::create_directory(folder_.file("joint.drafter"));
    EXPECT_EQ(find_trained_drafter(spec("slimspec"), artefacts).value(), folder_.file("joint.drafter"));
    save("joint.safetensors", "slimspec", "", true, "../elsewhere");
    EXPECT_FALSE(find_trained_drafter(spec("slimspec"), artefacts).ok());
    save("joint.safetensors", "slimspec");
    EXPECT_EQ(find_trained_drafter(spec("slimspec"), artefacts).value(), "");

    // In a run, the drafter trained with the head replaces the default drafter.
    save("joint.safetensors", "slimspec", "", true, "joint.drafter");
    const TinyFiles files;
    RunConfig config = files.config();
    config.head = "slimspec";
    config.artefacts = {"slimspec=" + path};
    EXPECT_EQ(resolve_run(config)->drafter_path, files.file("eagle2"));  // an explicit path takes precedence
}

TEST_F(Artefacts, HeadChoicesNameMissingFiles) {
    // Empty folders hide the shipped files.
    for (const DrafterInfo& drafter : drafter_registry())
        std::filesystem::create_directories(folder_.file("heads/" + std::string(drafter.id)));
    save("heads/eagle3/slimspec.safetensors", "slimspec");
    std::map<std::string, HeadChoice> choices;
    for (const HeadChoice& choice : head_choices()) choices[choice.spec] = choice;
    EXPECT_TRUE(choices["full"].usable);
    EXPECT_TRUE(choices["slimspec"].usable);
    EXPECT_EQ(choices["slimspec"].name, "SlimSpec (post-hoc)");
    EXPECT_EQ(choices["microspec"].name, "MicroSpec");
    // A head with files for some drafters names how to make that of each other one.
    EXPECT_EQ(why_not(choices["slimspec"], "eagle3"), "");
    EXPECT_EQ(why_not(choices["slimspec"], "eagle2"),
              "no weights file for eagle2: run tools/make_head_artefacts.sh eagle2");
    EXPECT_EQ(why_not(choices["slimspec"], "ngram"), "");
    EXPECT_EQ(why_not(choices["full"], "eagle2"), "");
    EXPECT_EQ(why_not(choices["specvocab"], "eagle2"), choices["specvocab"].why_not);
    EXPECT_FALSE(choices["specvocab"].usable);
    EXPECT_EQ(choices["specvocab"].why_not, "no weights file: run draftscope fit specvocab");
    EXPECT_FALSE(choices["oracle"].usable);
    EXPECT_EQ(choices.size(), head_registry().size());
}

/// The demo's drafters have a script; a checkpoint of one's own needs a fit.
TEST_F(Artefacts, MissingDemoHeadsNameTheirScript) {
    ASSERT_TRUE(demo_model_present()) << demo_model_hint();
    RunConfig config;
    config.model = demo_model_path();
    config.prompt = "hello";
    config.drafter = "eagle2";
    config.head = "slimspec";
    const auto message = [](const RunConfig& one) { return resolve_run(one).error().message; };
    const std::string wanted = "make them with tools/make_head_artefacts.sh eagle2";
    EXPECT_THAT(message(config), ::testing::HasSubstr(wanted));
    config.head = "full";
    config.shadow = "slimspec";
    EXPECT_THAT(resolve_shadows(*resolve_run(config)).error().message, ::testing::HasSubstr(wanted));
    config.shadow.clear();
    config.head = "slimspec";
    config.drafter = "eagle2:" + find_asset("drafters/eagle2");
    EXPECT_THAT(message(config), ::testing::HasSubstr("make them with draftscope fit slimspec"));
}

TEST_F(Artefacts, RedistributionRequiresRejectionSampling) {
    const std::string affinity = save("rdk.safetensors", "rdk");
    const TinyFiles files;
    RunConfig config = files.config();
    config.head = "full+rdk";
    EXPECT_THAT(resolve_run(config).error().message, ::testing::HasSubstr("--head-weights rdk=FILE"));
    config.artefacts = {"rdk=" + affinity};
    EXPECT_THAT(resolve_run(config).error().message, ::testing::HasSubstr("--verify pq"));
    config.verify = "pq";
    EXPECT_TRUE(resolve_run(config).ok());
}

TEST_F(Artefacts, OracleIsReplayOnly) {
    const TinyFiles files;
    RunConfig config = files.config();
    config.head = "oracle";
    EXPECT_THAT(resolve_run(config).error().message, ::testing::HasSubstr("draftscope replay"));
}

}  // namespace
}  // namespace draftscope::testing
