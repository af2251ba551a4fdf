#include "capture/head_traits.h"

#include <gtest/gtest.h>

namespace draftscope {
namespace {

RunRow run_with(const std::string& traits) {
    RunRow run;
    run.config_json = "{\"" + std::string(head_traits_key) + "\": " + traits + "}";
    return run;
}

TEST(HeadTraits, ARunStatesThem) {
    const std::map<std::string, HeadTraits> stated = {
        {"new-head:v=8", {0x00A1FF, HeadSupport::dynamic, false, true}},
        {"fr-spec:v=8", {0x123456, HeadSupport::all, true}},
        {"full", {0xBFC5CB, HeadSupport::fixed, false}}};
    const RunHeadTraits heads(run_with(to_json(stated)));
    for (const auto& [head, traits] : stated) EXPECT_EQ(heads.of(head), traits) << head;
    EXPECT_EQ(heads.of("slimspec"), published_head_traits("slimspec"));
}

TEST(HeadTraits, EarlierCapturesShowKnownHeads) {
    const RunHeadTraits heads((RunRow()));
    EXPECT_EQ(heads.of("full"), (HeadTraits{0xBFC5CB, HeadSupport::all, false}));
    EXPECT_EQ(heads.of("slimspec:rank=72+rdk").support, HeadSupport::all);
    EXPECT_EQ(heads.of("fr-spec:v=8192"), (HeadTraits{0x0072B2, HeadSupport::fixed, true}));
    EXPECT_EQ(heads.of("fr-spec:v=8192+rdk"), (HeadTraits{0x0072B2, HeadSupport::dynamic, true}));
    EXPECT_EQ(heads.of("microspec").support, HeadSupport::dynamic);
    EXPECT_EQ(heads.of("unknown:k=3"), HeadTraits());
}

TEST(HeadTraits, DamagedSettingsStateNothing) {
    for (const char* traits : {"3", "{\"bcl\": 3}", "{\"bcl\": {}}",
                               R"({"bcl": {"rgb": "#12345", "support": "all", "ranked": false}})",
                               R"({"bcl": {"rgb": "#12345G", "support": "all", "ranked": false}})",
                               R"({"bcl": {"rgb": "#123456", "support": "some", "ranked": false}})",
                               R"({"bcl": {"rgb": "#123456", "support": "all", "ranked": 1}})"})
        EXPECT_EQ(RunHeadTraits(run_with(traits)).of("bcl"), published_head_traits("bcl")) << traits;
    RunRow run;
    run.config_json = "no JSON";
    EXPECT_EQ(RunHeadTraits(run).of("bcl"), published_head_traits("bcl"));
}

}  // namespace
}  // namespace draftscope
