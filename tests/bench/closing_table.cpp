#include <fmt/format.h>

#include <cstdio>
#include <map>

#include "base/rng.h"
#include "tests/bench/table_tools.h"
#include "tests/support/demo_fixture.h"
#include "tests/support/demo_model.h"
#include "tests/support/tiny_drafter.h"

/// Prints tau and tokens per second of every target x drafter x {greedy, T=1} x {batch 1, batch 8}. It also
/// checks that every text equals the autoregressive text, token for token. Targets are the demo model with
/// its trained drafters and tiny random models of the four architectures with random drafters. The speed of
/// the tiny models says nothing about larger ones.
///
/// usage: closing_table [PROMPTS=16] [TOKENS=64] [int8|bf16|f32] [TARGET]
///
/// TARGET: demo, llama, qwen2, qwen3 or olmo2. The exit code is 1 if any token differs.
namespace draftscope::testing {
namespace {

const std::vector<std::string> drafters = {"none", "ngram", "eagle2", "eagle3", "medusa", "hydra"};

/// A tiny model with drafters of its width. The destructor deletes its files.
class TinyTarget {
  public:
    TinyTarget(ModelFile file, kernels::Precision precision)
        : TinyTarget(DecodeFixture::build(std::move(file), precision)) {}
    DecodeFixture& fixture() { return fixture_; }

  private:
    explicit TinyTarget(std::unique_ptr<Target> target)
        : eagle2_(target->config(), 77),
          eagle3_(target->config(), 78),
          medusa_(target->config(), false, 79),
          hydra_(target->config(), true, 80),
          fixture_(std::move(target),
                   {{"eagle2", eagle2_.folder()},
                    {"eagle3", eagle3_.folder()},
                    {"medusa", medusa_.folder()},
                    {"hydra", hydra_.folder()}},
                   "") {}

    TinyEagle2 eagle2_;
    TinyEagle3 eagle3_;
    TinyDecodingHeads medusa_, hydra_;
    DecodeFixture fixture_;
};

std::vector<std::vector<TokenId>> random_prompts(const Target& target, std::size_t count) {
    std::vector<std::vector<TokenId>> prompts(count);
    for (std::size_t p = 0; p < count; ++p) {
        Rng rng(5, p);
        const std::uint64_t length = 1 + rng.below(40);
        for (std::uint64_t i = 0; i < length; ++i)
            prompts[p].push_back(
                static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(target.tokenizer()->size()))));
    }
    return prompts;
}

/// Prints the rows of one target. Returns the number of texts that differ.
int print_table(const std::string& name, DecodeFixture& fixture,
                const std::vector<std::vector<TokenId>>& prompts, int tokens) {
    int differing = 0;
    for (const double temperature : {0.0, 1.0}) {
        std::vector<PromptOutcome> expected;
        std::map<int, double> plain_speed;
        for (const std::string& drafter : drafters)
            for (const int batch : {1, 8}) {
                DecodeCase setting{.drafter = drafter,
                                   .threads = 2,
                                   .temperature = temperature,
                                   .batch = batch,
                                   .max_new = tokens,
                                   .ignore_eos = true};
                const auto found = fixture.decode(setting, prompts);
                if (expected.empty()) expected = found;
                const auto [sum, wrong] = compare_runs(expected, found);
                const double speed = fixture.totals().tokens_per_second();
                if (drafter == "none") plain_speed[batch] = speed;
                fmt::print("| {} | {} | {} | {} | {:.3f} | {:.0f} | {:.2f} | {} |\n", name, drafter,
                           temperature > 0 ? "T=1" : "greedy", batch, sum.tau(), speed,
                           speed / plain_speed[batch],
                           wrong == 0 ? std::string("yes") : fmt::format("no: {} texts differ", wrong));
                std::fflush(stdout);
                differing += wrong;
            }
    }
    return differing;
}

int run(std::size_t prompt_count, int tokens, kernels::Precision precision, const std::string& wanted) {
    fmt::print("{} prompts x {} tokens, {}, tree {}, head full, 2 threads\n\n", prompt_count, tokens,
               kernels::to_text(precision), DecodeCase().tree);
    fmt::print(
        "| target | drafter | sampling | batch | tau | tok/s | x AR | equal to autoregressive |\n"
        "| --- | --- | --- | --: | --: | --: | --: | --- |\n");
    int differing = 0;
    if (wanted.empty() || wanted == "demo") {
        const auto fixture = make_demo_fixture(precision);
        if (fixture == nullptr) return 1;
        differing +=
            print_table("SmolLM2-135M", *fixture, demo_prompts(fixture->target(), prompt_count), tokens);
    }
    for (const std::string name : {"llama", "qwen2", "qwen3", "olmo2"}) {
        if (!wanted.empty() && wanted != name) continue;
        auto file = open_model_file(std::string(DS_SOURCE_DIR) + "/tests/golden/models/" + name);
        if (!file.ok()) {
            fmt::print(stderr, "{}\n", file.error().message);
            return 1;
        }
        TinyTarget target(std::move(file).value(), precision);
        differing += print_table("tiny " + name, target.fixture(),
                                 random_prompts(target.fixture().target(), prompt_count), tokens);
    }
    return differing == 0 ? 0 : 1;
}

}  // namespace
}  // namespace draftscope::testing

int main(int argc, char** argv) {
    std::size_t prompts = 16, tokens = 64;
    const auto precision = draftscope::kernels::precision_from(argc > 3 ? argv[3] : "int8");
    const bool understood = argc <= 5 && precision.has_value() &&
                            (argc < 2 || draftscope::testing::read_number(argv[1], prompts)) &&
                            (argc < 3 || draftscope::testing::read_number(argv[2], tokens));
    if (!understood) {
        fmt::print(stderr,
                   "usage: closing_table [PROMPTS=16] [TOKENS=64] [int8|bf16|f32] "
                   "[demo|llama|qwen2|qwen3|olmo2]\n");
        return 2;
    }
    const std::string wanted = argc > 4 ? argv[4] : "";
    if ((wanted.empty() || wanted == "demo") && !draftscope::testing::demo_model_present()) {
        fmt::print(stderr, "{}\n", draftscope::testing::demo_model_hint());
        return 2;
    }
    return draftscope::testing::run(prompts, static_cast<int>(tokens), *precision, wanted);
}
