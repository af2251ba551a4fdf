#include <gtest/gtest.h>

#include <filesystem>

#include "app/jobs/controller/choices.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/app/jobs/tiny_files.h"

namespace draftscope {
namespace {

using testing::TinyFiles;

class CheckForms : public ::testing::Test {
  protected:
    /// Returns "FIELD: MESSAGE -> NEAREST" of the session's only mistake.
    std::string mistake(const std::function<void(RunConfig&)>& edit) const {
        FormValues values{files_.config()};
        edit(values.run);
        return only(check_forms(values).run);
    }
    std::string tree(const std::string& spec) const {
        return mistake([&](RunConfig& run) { run.tree = spec; });
    }
    std::string sweep(const std::function<void(SweepRequest&)>& edit) const {
        FormValues values{files_.config()};
        edit(values.sweep.emplace());
        values.sweep->drafters.clear();
        return only(check_forms(values).sweep);
    }
    static std::string only(const std::vector<Mistake>& mistakes) {
        if (mistakes.empty()) return "";
        EXPECT_EQ(mistakes.size(), 1u);
        const Mistake& one = mistakes.front();
        return one.field + ": " + one.message.substr(0, one.message.find(';')) + " -> " + one.nearest;
    }

    TinyFiles files_;
};

TEST_F(CheckForms, ValidFormsHaveNoMistakes) {
    FormValues values{files_.config(), SweepRequest(), KernelSettings()};
    values.sweep->drafters = "eagle2:" + files_.file("eagle2") + ",ngram";
    values.sweep->heads = "full,fr-spec:v=2048|8192";
    values.run.tree = "depth=3,topk=4,nodes=12";
    const FormCheck checked = check_forms(values);
    for (const auto* mistakes : {&checked.run, &checked.sweep, &checked.kernels})
        EXPECT_EQ(only(*mistakes), "");
    EXPECT_EQ(checked.values, values);
}

TEST_F(CheckForms, TreesGetTheNearestOne) {
    EXPECT_EQ(tree("chian=3"), "Tree: \"chian=3\" in \"chian=3\" is unknown -> chain=3");
    EXPECT_EQ(tree("depth=3,topk=90,nodes=20"), "Tree: topk=90 is outside 1..64 -> depth=3,topk=64,nodes=20");
    EXPECT_EQ(tree("depth=1,topk=2,nodes=60"),
              "Tree: nodes=60 exceeds what depth=1,topk=2 can propose -> depth=1,topk=2,nodes=7");
    EXPECT_EQ(tree("paper:frspec"), "Tree: unknown preset paper:frspec -> paper:fr-spec");
    EXPECT_EQ(tree("depht=90,topk=4"),
              "Tree: \"depht=90\" in \"depht=90,topk=4\" is unknown -> depth=63,topk=4")
        << "two mistakes in one value";
    EXPECT_NE(tree(std::string(1 << 20, 'x')), "") << "a pasted text";
    EXPECT_EQ(tree("depth=two"), "Tree: depth=two is not a whole number -> ") << "nothing is near";
}

TEST_F(CheckForms, HeadsDraftersAndNumbers) {
    EXPECT_EQ(mistake([](RunConfig& run) { run.shadow = "full,slimspc"; }),
              "Shadow heads: unknown head slimspc -> full,slimspec");
    EXPECT_EQ(mistake([](RunConfig& run) { run.head = "frspec"; }), "Head: unknown head frspec -> fr-spec");
    EXPECT_EQ(mistake([](RunConfig& run) { run.drafter = "egale3"; }), "Drafter: unknown drafter -> eagle3");
    EXPECT_EQ(mistake([](RunConfig& run) { run.threads = 5000; }),
              "Threads: must be 1 to 1024 (0 = all cores) -> 1024");
    EXPECT_EQ(mistake([](RunConfig& run) { run.batch = 0; }), "Batch: must be 1 to 1024 -> 1");
    EXPECT_EQ(mistake([](RunConfig& run) { run.max_new = 0; }), "New tokens: must be at least 1 -> 1");
    EXPECT_EQ(mistake([](RunConfig& run) { run.temperature = -1; }),
              "Temperature: must be a finite number of 0 or more -> 0");
    EXPECT_EQ(mistake([](RunConfig& run) { run.limit = -2; }), "Limit: must not be negative -> 0");
}

TEST_F(CheckForms, PathsGetASimilarName) {
    const std::string folder = std::filesystem::path(files_.model()).parent_path();
    EXPECT_EQ(mistake([&](RunConfig& run) { run.model = folder + "/tinny.gguf"; }),
              "Model: no such file or folder -> " + files_.model());
    EXPECT_EQ(mistake([&](RunConfig& run) { run.drafter = "eagle2:" + folder + "/eagel2"; }),
              "Drafter: no such file or folder -> eagle2:" + folder + "/eagle2");
    EXPECT_EQ(mistake([](RunConfig& run) { run.prompts_file = "/nonexistent/prompts.jsonl"; }),
              "Prompt file: no such file -> ");
    EXPECT_EQ(mistake([](RunConfig& run) { run.artefacts = {"slimspec=/nonexistent"}; }),
              "Head's file: no such file -> ");
    EXPECT_EQ(mistake([](RunConfig& run) { run.save = "/nonexistent/run.dscope"; }),
              "Capture file: /nonexistent/: no such folder -> ");
}

TEST_F(CheckForms, SweepsAndKernels) {
    EXPECT_EQ(sweep([](SweepRequest& request) { request.heads = "full,fr-spec:w=2048|8192"; }),
              "Heads: unknown parameter w=2048 -> ");
    EXPECT_EQ(sweep([](SweepRequest& request) { request.heads = "slimspc"; }),
              "Heads: unknown head slimspc -> slimspec");
    EXPECT_EQ(sweep([&](SweepRequest& request) { request.recording = files_.file("eagle2"); }),
              "Recording: is not a recording: it has no trace.json -> ");
    EXPECT_EQ(sweep([](SweepRequest& request) { request.profile = "/nonexistent.json"; }),
              "Costs: no such file -> ");
    FormValues values{files_.config()};
    values.sweep.emplace().drafters = "ngramm";
    values.kernels.emplace().vocab = 0;
    const FormCheck checked = check_forms(values);
    EXPECT_EQ(only(checked.sweep), "Drafters: unknown drafter -> ngram");
    EXPECT_EQ(only(checked.kernels), "V: must be at least 1 -> 1");
}

/// While a path is typed, it names the folders on its way.
TEST_F(CheckForms, FoldersInPlaceOfFiles) {
    const std::string folder = std::filesystem::path(files_.model()).parent_path();
    EXPECT_NE(sweep([&](SweepRequest& request) { request.profile = folder; }), "");
    EXPECT_NE(tree("choices:" + folder), "");
    EXPECT_EQ(mistake([&](RunConfig& run) { run.model = folder; }), "") << "its files are read by the run";
    for (const std::string& drafter :
         {"eagle2:" + folder, "eagle3:" + folder, "medusa:" + folder, "model:" + folder})
        check_forms({.run = [&] {
            RunConfig run = files_.config();
            run.drafter = drafter;
            return run;
        }()});
    FormValues values{files_.config()};
    for (const char* head : {"fr-spec", "slimspec", "coral", "dynaspec", "specvocab"}) {
        values.run.head = head;
        values.run.artefacts = {head + ("=" + folder)};
        EXPECT_FALSE(check_forms(values).run.empty()) << head;
    }
}

/// A message may not name an option: the window has fields.
TEST_F(CheckForms, MessagesSpeakOfFields) {
    FormValues values{files_.config()};
    values.run.tree = "quick";
    values.run.head = "auto";
    values.run.drafter = "eagle3";
    values.run.temperature = 1;
    values.run.verify = "pqq";
    values.run.shadow = "full";
    const FormCheck checked = check_forms(values);
    EXPECT_FALSE(checked.run.empty());
    for (const Mistake& one : checked.run)
        EXPECT_EQ(one.message.find("--"), std::string::npos) << one.field << ": " << one.message;
}

}  // namespace
}  // namespace draftscope
