#include "tests/unit/app/cli/program.h"

namespace draftscope::testing {
namespace {

TEST(Usage, EveryCommandHasHelpWithAnExample) {
    const ScratchFolder folder;
    const ProcessResult all = run(folder, {"--help"});
    EXPECT_EQ(all.exit_code, 0);
    for (const char* name :
         {"gui", "run", "bench", "stats", "check", "export", "doctor", "kernels", "profile-machine"}) {
        EXPECT_NE(all.out.find(name), std::string::npos) << name;
        const ProcessResult help = run(folder, {name, "--help"});
        EXPECT_EQ(help.exit_code, 0) << name;
        EXPECT_NE(help.out.find("Example: draftscope " + std::string(name)), std::string::npos) << help.out;
        EXPECT_EQ(help.err, "");
    }
}

TEST(Usage, RunHasTheDocumentedOptions) {
    const ScratchFolder folder;
    const std::string help = run(folder, {"run", "--help"}).out;
    for (const char* option :
         {"--prompt",   "--prompts",   "--model",       "--drafter",    "--head",  "--head-weights",
          "--tree",     "--verify",    "--temperature", "--top-p",      "--top-k", "--seed",
          "--max-new",  "--precision", "--threads",     "--baseline",   "--save",  "--limit",
          "--balanced", "--raw",       "--batch",       "--ignore-eos", "--json"})
        EXPECT_NE(help.find(option), std::string::npos) << option;
}

TEST(Usage, VersionGoesToStdout) {
    const ScratchFolder folder;
    const ProcessResult done = run(folder, {"--version"});
    EXPECT_EQ(done.exit_code, 0);
    EXPECT_EQ(done.out.rfind("draftscope ", 0), 0u);
}

TEST(Usage, UsageErrorsReturnTwo) {
    const ScratchFolder folder;
    expect_one_line_error(run(folder, {"runn"}), {"--help"});
    expect_one_line_error(run(folder, {"run", "--promt", "x"}), {"--promt"});
    expect_one_line_error(run(folder, {"run", "--max-new", "many", "--prompt", "x"}), {"--max-new"});
    expect_one_line_error(run(folder, {"run", "--prompt", "x", "--prompts", "y"}), {"--prompt"});
    expect_one_line_error(run(folder, {"stats"}), {"file"});
    expect_one_line_error(run(folder, {"export", "x.dscope"}), {"--out"});
}

TEST(Usage, DoctorNamesCapabilitiesAndRemedies) {
    const ScratchFolder folder;
    const ProcessResult done = run(folder, {"doctor", "--no-probe"});
    EXPECT_EQ(done.exit_code, 0);
    for (const char* word : {"CPU", "memory", "NVIDIA driver", "CUPTI", "NVTX listener", "demo model"})
        EXPECT_NE(done.out.find(word), std::string::npos) << word;
}

TEST(Usage, WindowWithoutDisplayReportsAnError) {
    const ScratchFolder folder;
    const ProcessResult done = run(folder, {"gui"});
    EXPECT_EQ(done.exit_code, 2);
    EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
}

}  // namespace
}  // namespace draftscope::testing
