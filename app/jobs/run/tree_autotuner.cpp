#include "app/jobs/run/tree_autotuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/jobs/run/conversation_feed.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/phase.h"

namespace draftscope {
namespace {

// Our defaults: the pilot's trees, its number of tokens and of conversations.
constexpr TreeShape largest_tree{3, 4, 24};
constexpr int longest_chain = 6;
constexpr int pilot_tokens = 40;
constexpr std::size_t pilot_conversations = 2;
constexpr int verified_rows[] = {1, 2, 3, 4, 5, 7, 9, 12, 16, 24};
constexpr int verify_repeats = 5;
constexpr int verify_context = 128;
// --tree quick: tokens decoded, and verifications per size.
constexpr int quick_tokens = 12;
constexpr int quick_repeats = 3;

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

bool drafts(int phase_id) {
    switch (static_cast<Phase>(phase_id)) {
        case Phase::backbone:
        case Phase::router:
        case Phase::head:
        case Phase::topk:
        case Phase::gather:
            return true;
        default:
            return false;
    }
}

/// Collects trees, their accepted paths and the times of their rounds.
class AutotuneSink final : public RecordSink {
  public:
    explicit AutotuneSink(int depth) : depth_(depth) {}

    void push(Record record) override {
        const auto* step = std::get_if<StepRecord>(&record);
        if (step == nullptr) return;
        for (const RoundRecord& round : step->rounds) {
            PilotRound nodes;
            for (const NodeRow& node : round.nodes)
                nodes.push_back({node.parent, node.depth, node.cum_logprob, node.accepted});
            if (!nodes.empty()) rounds.push_back(std::move(nodes));
        }
        if (!step->step.time_counts()) return;
        double verify = 0, levels = 0;
        for (const SpanRow& span : step->spans) {
            if (span.nesting > 0 || span.lane != 0) continue;
            const auto took = static_cast<double>(span.end_ns - span.start_ns);
            if (span.phase_id == static_cast<int>(Phase::verify)) verify += took;
            if (drafts(span.phase_id) && span.level >= 1) levels += took;
        }
        const StepRow& row = step->step;
        level_.push_back(depth_ > 0 ? levels / depth_ : 0);
        fixed_.push_back(static_cast<double>(row.busy_ns()) - verify - levels);
    }
    DraftCost cost() const { return {median(fixed_), median(level_)}; }

    std::vector<PilotRound> rounds;

  private:
    int depth_;
    std::vector<double> level_, fixed_;
};

/// Decodes the first conversations under `tree`.
Status decode(const AutotuneInputs& inputs, const AutotuneHead& head, const TreeSpec& tree, int tokens,
              const std::vector<Conversation>& conversations, DebugGate& gate, const RunHooks& hooks,
              AutotuneSink& sink) {
    DecodeOptions options = inputs.options;
    options.tree = tree;
    options.max_new = std::min(options.max_new, tokens);
    options.calibration_rounds = 0;
    options.full_shadow_ns = 0;
    options.shadows.clear();
    options.span_interval = 1;  // a pilot is short
    RowIds ids;
    CaptureOutput capture_output;
    capture_output.sink = &sink;
    capture_output.ids = &ids;
    capture_output.run_id = ++ids.run;
    capture_output.run_start = monotonic_ns();
    PhaseRecorder phases;
    phases.set_enabled(true);
    DecodeSession session(inputs.target, inputs.drafter, head.head, head.full, inputs.backend, options,
                          capture_output, phases, gate);
    RunHooks quiet;
    quiet.on_progress = hooks.on_progress;
    ConversationFeed feed(
        inputs.target, conversations, {.chat = inputs.chat, .first_turns = true, .suite = ""}, quiet,
        fmt::format("measuring to choose a tree{}{}: prompt", head.text.empty() ? "" : ", ", head.text));
    return session.run(feed);
}

/// Returns the median times of verifications of each size after the first prompt; sizes ascending.
Result<std::vector<std::pair<int, double>>> time_verifications(const AutotuneInputs& inputs,
                                                               const Conversation& conversation, int max_rows,
                                                               int repeats) {
    DS_ASSIGN(std::vector<TokenId> prompt,
              ConversationFeed::first_turn(inputs.target, conversation, inputs.chat));
    const int room = inputs.target.config().context - max_rows;
    prompt.resize(
        std::clamp(static_cast<int>(prompt.size()), 1, std::max(1, std::min(verify_context, room))));
    KvCache cache = inputs.target.make_cache(static_cast<int>(prompt.size()) + max_rows);
    ForwardOutput out;
    DS_TRY(inputs.target.prefill(cache, prompt, {}, out));
    std::vector<int> sizes;
    for (const int rows : verified_rows)
        if (rows <= max_rows && rows <= room) sizes.push_back(rows);
    std::vector<TokenId> tokens;
    for (int i = 0; i < max_rows; ++i) tokens.push_back(prompt[i % prompt.size()]);
    // Sizes alternate, so that a temporary slowdown of the machine does not affect only one size.
    std::vector<std::vector<double>> took(sizes.size());
    for (int repeat = 0; repeat < repeats; ++repeat) {
        for (std::size_t s = 0; s < sizes.size(); ++s) {
            const SequenceTokens sequence{&cache, std::span(tokens).first(sizes[s]), {}, nullptr};
            const TimeNs start = monotonic_ns();
            DS_TRY(inputs.target.forward({{&sequence, 1}, {}, {}, true}, out));
            took[s].push_back(static_cast<double>(monotonic_ns() - start));
        }
    }
    std::vector<std::pair<int, double>> times;
    for (std::size_t s = 0; s < sizes.size(); ++s) times.emplace_back(sizes[s], median(std::move(took[s])));
    // Fewer rows are never slower, except by noise.
    for (std::size_t s = times.size(); s-- > 1;)
        times[s - 1].second = std::min(times[s - 1].second, times[s].second);
    return times;
}

}  // namespace

TreeSpec to_tree_spec(const TreeShape& shape) {
    TreeSpec spec;
    spec.depth = shape.depth;
    spec.topk = shape.topk;
    spec.nodes = shape.nodes;
    return spec;
}

nlohmann::json to_json(std::span<const SweepSetting> forecasts) {
    nlohmann::json list = nlohmann::json::array();
    for (const SweepSetting& one : forecasts) {
        list.push_back({{"head", one.head.empty() ? nlohmann::json() : nlohmann::json(one.head)},
                        {"tree", one.tree},
                        {"tau", one.total().tau().value_or(1)},
                        {"round_ms", one.round_ms},
                        {"speedup", one.speedup()}});
    }
    return list;
}

TreeAutotuner::TreeAutotuner(const AutotuneInputs& inputs, std::vector<Conversation> conversations,
                             DebugGate& gate, const RunHooks& hooks)
    : inputs_(inputs), conversations_(std::move(conversations)), gate_(gate), hooks_(hooks) {
    conversations_.resize(std::min(conversations_.size(), pilot_conversations));
    // The deepest chain and tree that the drafter supports.
    const auto deepest = [&](TreeShape shape) {
        while (shape.depth > 0 && !check_tree(inputs_.drafter, to_tree_spec(shape)).ok()) {
            --shape.depth;
            shape.nodes = shape.topk == 1
                              ? shape.depth + 2
                              : std::min(shape.nodes, 1 + shape.topk + shape.depth * shape.topk * shape.topk);
        }
        return shape;
    };
    chain_ = deepest({longest_chain - 1, 1, longest_chain + 1});
    tree_ = inputs_.chains_only ? chain_ : deepest(largest_tree);
}

Status TreeAutotuner::chains(const AutotuneHead& head) {
    return measure(head, chain_, false);
}

Status TreeAutotuner::trees(const AutotuneHead& head) {
    return inputs_.chains_only ? Status{} : measure(head, tree_, true);
}

/// Forecasts chains from a chain's rounds and grown trees from a tree's rounds, so that neither depth limits
/// the other.
Status TreeAutotuner::measure(const AutotuneHead& head, const TreeShape& shape, bool only_grown) {
    if (conversations_.empty() || gate_.cancelled()) return {};
    if (hooks_.on_progress) hooks_.on_progress(0, "measuring for --tree auto");
    AutotuneSink sink(shape.depth);
    DS_TRY(decode(inputs_, head, to_tree_spec(shape), pilot_tokens, conversations_, gate_, hooks_, sink));
    if (gate_.cancelled()) return {};
    if (verify_.empty()) {
        DS_ASSIGN(verify_, time_verifications(inputs_, conversations_.front(),
                                              std::max(tree_.nodes, chain_.nodes), verify_repeats));
    }
    rounds_ += static_cast<int>(sink.rounds.size());
    for (SweepSetting& one : forecast_trees(sink.rounds, shape, {verify_, sink.cost(), sink.cost()}))
        if (!only_grown || one.shape.topk > 1) add(std::move(one), head.text);
    sort();
    return {};
}

void TreeAutotuner::add(SweepSetting forecast, const std::string& head) {
    forecast.head = head;
    forecast.tree = to_text(to_tree_spec(forecast.shape));
    forecasts_.push_back(std::move(forecast));
}

void TreeAutotuner::sort() {
    std::stable_sort(forecasts_.begin(), forecasts_.end(), [](const SweepSetting& a, const SweepSetting& b) {
        return a.speedup() != b.speedup() ? a.speedup() > b.speedup() : is_simpler(a, b);
    });
}

Status TreeAutotuner::costs(const AutotuneHead& head, std::span<const TreeAcceptance> known) {
    if (conversations_.empty() || known.empty() || gate_.cancelled()) return {};
    const auto by_nodes = [](const TreeAcceptance& a, const TreeAcceptance& b) {
        return a.tree.nodes < b.tree.nodes;
    };
    const TreeShape largest = std::max_element(known.begin(), known.end(), by_nodes)->tree;
    AutotuneSink sink(largest.depth);
    const std::vector<Conversation> first(conversations_.begin(), conversations_.begin() + 1);
    DS_TRY(decode(inputs_, head, to_tree_spec(largest), quick_tokens, first, gate_, hooks_, sink));
    if (gate_.cancelled()) return {};
    if (verify_.empty()) {
        DS_ASSIGN(verify_, time_verifications(inputs_, conversations_.front(), largest.nodes, quick_repeats));
    }
    rounds_ += static_cast<int>(sink.rounds.size());
    for (const TreeAcceptance& one : known) {
        SweepSetting forecast = forecast_tree(one.tree, 1, {verify_, sink.cost(), sink.cost()});
        forecast.units = one.units;
        add(std::move(forecast), head.text);
    }
    sort();
    return {};
}

Status measure_heads(TreeAutotuner& pilot, std::span<const std::string> heads,
                     FunctionRef<Result<AutotuneHead>(std::size_t)> load) {
    constexpr std::size_t heads_under_trees = 3;  // our default
    for (std::size_t h = 0; h < heads.size(); ++h) {
        const auto loaded = load(h);
        if (loaded.ok()) {
            DS_TRY(pilot.chains(*loaded));
        } else {
            log_warning("--head auto skips {}: {}", heads[h], loaded.error().message);
        }
    }
    std::vector<std::string> fastest;
    for (const SweepSetting& one : pilot.forecasts())
        if (std::find(fastest.begin(), fastest.end(), one.head) == fastest.end()) fastest.push_back(one.head);
    fastest.resize(std::min(fastest.size(), heads_under_trees));
    for (std::size_t h = 0; h < heads.size(); ++h) {
        if (std::find(fastest.begin(), fastest.end(), heads[h]) == fastest.end()) continue;
        DS_ASSIGN(const AutotuneHead loaded, load(h));
        DS_TRY(pilot.trees(loaded));
    }
    return {};
}

}  // namespace draftscope
