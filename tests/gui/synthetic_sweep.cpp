#include "tests/gui/synthetic_sweep.h"

#include <fmt/format.h>

namespace draftscope::test {
namespace {

/// `share`: of the full head's tau; `head_ms`: its time in a level.
void add_trees(SweepReport& view, const std::string& head, double share, double head_ms) {
    const std::vector<TreeShape> shapes = {{0, 1, 2}, {1, 1, 3}, {2, 1, 4}, {2, 2, 6}, {2, 2, 9}, {3, 4, 12}};
    for (const int batch : {1, 4})
        for (const TreeShape& shape : shapes) {
            SweepSetting one;
            one.drafter = "eagle3";
            one.head = head;
            one.tree = shape.topk == 1
                           ? fmt::format("chain={}", shape.depth + 1)
                           : fmt::format("depth={},topk={},nodes={}", shape.depth, shape.topk, shape.nodes);
            one.shape = shape;
            one.batch = batch;
            one.plain_ms = 20;
            one.round_ms = 21 + 0.3 * shape.nodes * batch + (1 + head_ms) * (shape.depth + 1);
            const double gain = 0.75 * (shape.depth + 1) / (1 + 0.35 * (shape.depth + 1));
            for (int c = 0; c < 7; ++c) {
                const double tau = 1 + share * (gain + 0.02 * shape.nodes) * (0.9 + 0.04 * c);
                one.units.push_back({20, 20 * tau});
            }
            view.settings.push_back(one);
        }
}

}  // namespace

std::shared_ptr<const SweepReport> synthetic_sweep(const std::string& file) {
    auto view = std::make_shared<SweepReport>();
    view->file = file;
    view->source = "tiny, 448 rows, 7 prompts, 64 tokens, T=0, int8";
    view->recording = "/recordings/demo";
    view->costs = "test machine (measured)";
    view->run.model = "/models/other.gguf";
    view->run.prompts_file = view->recording;
    view->run.precision = "int8";
    view->run.threads = 1;
    view->run.temperature = 0.7;
    view->run.max_new = 64;
    view->run.artefacts = {"slimspec=own.safetensors", "fr-spec=ranking.txt"};
    view->conversations = 7;
    view->categories = {"chat", "chat", "chat", "code", "code", "code", "code"};
    view->max_new = 64;
    add_trees(*view, "full", 1, 2.4);
    for (const int size : {1024, 4096, 16384})
        add_trees(*view, fmt::format("fr-spec:v={}", size), 1 - 150.0 / size, 2.4 * size / 49152);
    for (const int rank : {36, 72, 144})
        add_trees(*view, fmt::format("slimspec:rank={}", rank), 1 - 5.0 / rank, 2.4 * rank / 576);
    rank_settings(view->settings);
    const auto bound = [&](const char* drafter, const char* head, int batch, int tokens, double plain_ms) {
        std::vector<double> rounds(static_cast<std::size_t>(tokens) + 1);
        rounds.back() = 1;
        view->oracles.push_back({{drafter}, head, "", tokens, batch, {rounds}, {}, 10, plain_ms});
    };
    bound("eagle3", "full", 1, 4, 4.5);                 // tau 4, speed-up 1.8
    bound("eagle3", "fr-spec:v=4096", 1, 3, 19.0 / 3);  // 3, 1.9
    bound("eagle3", "full", 4, 4, 4.25);                // 4, 1.7
    bound("ngram", "", 1, 5, 5);
    for (std::size_t s = 0; s < view->settings.size(); ++s) {
        const SweepSetting& one = view->settings[s];
        if (one.batch == 1 && one.head == "full" && one.shape.nodes == 12) view->usual = s;
    }
    view->advice.choice.chosen = 0;
    view->advice.choice.runner_up = 1;
    const SweepSetting& best = view->settings[0];
    view->advice.summary = fmt::format("Use eagle3 x {} @ {}: predicted {:.2f}x plain decoding at batch 1.",
                                       best.head, best.tree, best.speedup());
    view->advice.changes = {"below a tau of 1.20 plain decoding is faster",
                            "texts of another kind are accepted differently; record some of your own"};
    view->advice.run_line =
        fmt::format("draftscope run --drafter eagle3 --head {} --tree {}", best.head, best.tree);
    view->advice.serving = {"SGLang: --speculative-algorithm EAGLE3"};
    return view;
}

}  // namespace draftscope::test
